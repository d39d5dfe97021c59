//! One side's identity for as long as a program runs: when its files change, it is read again for the connections to come.
//!
//! Nothing is remembered beyond the files: keys that cannot be used any more let nobody in until they are mended, since what
//! was changed may be that somebody was taken back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::identity::{Identity, Wanted};
use super::role::{Role, RoleKind};
use super::{KeysError, disk};
use crate::clock;

/// An identity that follows its folder.
#[derive(Debug)]
pub struct Credentials {
    folder: PathBuf,
    wanted: Wanted,
    held: Mutex<Arc<Identity>>,
}

impl Credentials {
    /// Reads the wanted certificate from this folder.
    ///
    /// # Errors
    /// As [`Identity::open`].
    pub fn open(folder: &Path, wanted: Wanted) -> Result<Self, KeysError> {
        let identity = Identity::open(folder, &wanted, clock::wall())?;
        Ok(Self { folder: folder.to_owned(), wanted, held: Mutex::new(Arc::new(identity)) })
    }

    /// Reads the certificate to serve with under this name. A folder of several hosts, which only the machine with the authority
    /// has, gives the one of that name; a folder that was carried has one, whatever the name leads to.
    ///
    /// # Errors
    /// As [`Identity::open`].
    pub fn serving(folder: &Path, name: &str) -> Result<Self, KeysError> {
        let index = disk::read_index(folder)?;
        let is_issued = index.is_some_and(|index| {
            let mut current = index.issued.iter().filter(|entry| entry.is_current());
            current.any(|entry| entry.role == RoleKind::Host && entry.name == name)
        });
        Self::open(folder, Wanted::host(is_issued.then_some(name)))
    }

    /// The identity as its files have it now. Reads the disk.
    ///
    /// # Errors
    /// As [`Identity::open`].
    pub fn current(&self) -> Result<Arc<Identity>, KeysError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.has_changed() {
            *held = Arc::new(Identity::open(&self.folder, &self.wanted, clock::wall())?);
        }
        Ok(Arc::clone(&held))
    }

    /// Whose it was when it was read last.
    pub fn role(&self) -> Role {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).role().clone()
    }
}
