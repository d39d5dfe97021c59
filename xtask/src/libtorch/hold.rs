//! Holding a variant while it is used, so that nobody takes it away.
//!
//! The lock is on the variant's own folder: it needs no file of its own, works in a store that cannot be written, and is
//! gone with the process. Users share it; whoever takes a variant away needs it alone. Where a file system has no locks
//! nothing is held, and nothing is refused.

use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8Path, Utf8PathBuf};

use crate::cargo::describe_process;

/// A variant that is held until this is dropped.
#[derive(Debug)]
pub struct Hold {
    _folder: fs_err::File,
}

/// Why a variant cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Somebody is taking it away, or has.
    #[error("`{root}` is being removed")]
    Leaving {
        /// The variant's folder.
        root: Utf8PathBuf,
    },
    /// Others use it.
    #[error("`{root}` is in use by {}", holders.join(" and "))]
    InUse {
        /// The variant's folder.
        root: Utf8PathBuf,
        /// The processes, as `process 123 (cargo xtask launch)`.
        holders: Vec<String>,
    },
    /// It cannot be opened.
    #[error("`{root}` cannot be opened")]
    Unreadable {
        /// The variant's folder.
        root: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Hold {
    /// Holds the variant in `root` together with its other users.
    ///
    /// # Errors
    /// When it is being removed, or cannot be opened.
    pub fn shared(root: &Utf8Path) -> Result<Self, HoldError> {
        Self::take(root, fs_err::File::try_lock_shared, |root| HoldError::Leaving { root })
    }

    /// Holds it alone.
    pub(super) fn alone(root: &Utf8Path) -> Result<Self, HoldError> {
        Self::take(root, fs_err::File::try_lock, |root| {
            let holders = holders(&root);
            HoldError::InUse { root, holders }
        })
    }

    fn take(
        root: &Utf8Path,
        lock: impl Fn(&fs_err::File) -> Result<(), TryLockError>,
        taken: impl Fn(Utf8PathBuf) -> HoldError,
    ) -> Result<Self, HoldError> {
        let unreadable = |source| HoldError::Unreadable { root: root.to_owned(), source };
        let folder = fs_err::File::open(root).map_err(unreadable)?;
        match lock(&folder) {
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(root.to_owned())),
        }
        // Between the opening and the lock it may have been renamed aside.
        let held = folder.metadata().map_err(unreadable)?;
        let is_there = fs_err::metadata(root).is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()));
        if is_there { Ok(Self { _folder: folder }) } else { Err(HoldError::Leaving { root: root.to_owned() }) }
    }
}

/// The processes that hold a lock on a file or folder, as `process 123 (cargo xtask launch)`; none where nobody does, or
/// the kernel does not say.
pub fn lock_holders(path: &Utf8Path) -> Vec<String> {
    let text = fs_err::read_to_string("/proc/locks").unwrap_or_default();
    let Ok(metadata) = fs_err::metadata(path) else { return Vec::new() };
    let mut found: Vec<String> = owners(&text, metadata.ino()).into_iter().map(describe_process).collect();
    found.dedup();
    found
}

/// The processes that hold a variant, of which there is one at least.
fn holders(root: &Utf8Path) -> Vec<String> {
    let mut found = lock_holders(root);
    if found.is_empty() {
        found.push("another process".to_owned());
    }
    found
}

/// The owners of the locks on a file, from lines such as `2: FLOCK  ADVISORY  READ 4321 fd:00:1234 0 EOF`.
fn owners(text: &str, inode: u64) -> Vec<u32> {
    let suffix = format!(":{inode}");
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // A waiter has an arrow in the second field.
        let is_holder = fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&suffix);
        if is_holder { fields.get(4)?.parse().ok() } else { None }
    };
    text.lines().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_share_a_variant_and_whoever_takes_it_away_is_told_who_they_are() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap().join("eine Variante");
        fs_err::create_dir(&root).unwrap();
        let (first, second) = (Hold::shared(&root).unwrap(), Hold::shared(&root).unwrap());
        let error = Hold::alone(&root).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        assert!(matches!(Hold::alone(&root), Err(HoldError::InUse { .. })));
        drop(second);
        let alone = Hold::alone(&root).unwrap();
        assert!(matches!(Hold::shared(&root), Err(HoldError::Leaving { .. })));
        drop(alone);
        fs_err::remove_dir(&root).unwrap();
        assert!(matches!(Hold::shared(&root), Err(HoldError::Unreadable { .. })));
    }

    #[test]
    fn owners_are_those_of_the_inode_and_not_those_who_wait() {
        let text = "1: FLOCK  ADVISORY  READ 7 fd:00:12 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 9 fd:00:12 0 EOF\n\
                    2: FLOCK  ADVISORY  READ 8 fd:00:112 0 EOF\n3: POSIX  ADVISORY  READ 5 fd:00:12 0 EOF\n";
        assert_eq!(owners(text, 12), [7]);
        assert_eq!(owners("nonsense", 12), [0; 0]);
    }
}
