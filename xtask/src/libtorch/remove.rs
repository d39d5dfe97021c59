//! Taking a variant out of its store.
//!
//! Owns what counts as in use. A variant is renamed aside first and deleted then: at no time is there half of one, and
//! what a killed removal left is no variant. Must not decide for a person: what is in use is refused with all reasons.

use std::io;

use camino::Utf8PathBuf;
use torchlift_schema::{Finding, Place, VariantId};

use super::event::{FetchEvent, Listener};
use super::hold::{Hold, HoldError};
use super::stage::{self, REMOVE, StageError};
use super::{Stores, active};

/// What to remove.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The variant.
    pub id: &'a VariantId,
    /// Where the workspace's cluster file names it; each is a finding unless `force` is given.
    pub named: &'a [Place],
    /// Remove it although files name it. What holds it now still counts.
    pub force: bool,
}

/// A variant that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Where it was.
    pub root: Utf8PathBuf,
    /// Pointers that named it, and are gone too.
    pub pointers: Vec<Utf8PathBuf>,
    /// Where another store still has one of that id.
    pub remains: Option<Utf8PathBuf>,
}

/// Why a variant was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// No store has it.
    #[error("no store has `{id}`")]
    Unknown {
        /// The id.
        id: VariantId,
        /// What the stores have.
        stored: Vec<String>,
    },
    /// It is in use.
    #[error("`{id}` is in use")]
    InUse {
        /// The id.
        id: VariantId,
        /// All uses.
        findings: Vec<Finding>,
    },
    /// The store cannot be used.
    #[error("the store cannot be changed")]
    Stage(#[from] StageError),
    /// It is no variant any more, and its files are still there.
    #[error("`{id}` is out of the store, and not all of its files could be deleted from `{folder}`")]
    Leftover {
        /// The id.
        id: VariantId,
        /// Where the rest of it is.
        folder: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Removes the variant from the first store that has its folder, whole or not.
///
/// # Errors
/// When no store has it, somebody uses it, or the store cannot be changed.
pub fn remove(request: &Request<'_>, stores: &Stores, listen: Listener<'_>) -> Result<Removed, RemoveError> {
    let Request { id, .. } = *request;
    let unknown = || RemoveError::Unknown {
        id: id.clone(),
        stored: stores.list().into_iter().map(|stored| stored.id.to_string()).collect(),
    };
    let store = stores.holding(id).ok_or_else(unknown)?;
    let root = store.join(id.as_str());
    let in_store = |source| StageError::Store { folder: store.to_owned(), source };
    let _lock = stage::lock(store, listen)?;
    stage::sweep(store)?;
    if fs_err::symlink_metadata(&root).is_err() {
        // Another process was faster.
        return Err(unknown());
    }
    let (hold, mut findings) = match Hold::alone(&root) {
        Ok(hold) => (Some(hold), Vec::new()),
        Err(HoldError::InUse { holders, .. }) => {
            let use_by = |holder: String| {
                Finding::error("libtorch-in-use", Place::file(root.as_str()), format!("{holder} uses it"))
                    .remedy("wait until it ends; `--force` does not help here")
            };
            (None, holders.into_iter().map(use_by).collect())
        }
        // A link to a folder that is gone, or a file in a variant's place: nobody can use it.
        Err(_) => (None, Vec::new()),
    };
    let pointers = active::naming(store, id);
    if !request.force {
        findings.extend(named(request.named, &pointers));
    }
    if !findings.is_empty() {
        return Err(RemoveError::InUse { id: id.clone(), findings });
    }
    let aside = tempfile::Builder::new().prefix(REMOVE).tempdir_in(store).map_err(in_store)?;
    let rest = Utf8PathBuf::from(aside.path().to_string_lossy().into_owned());
    fs_err::rename(&root, rest.join("variant")).map_err(in_store)?;
    drop(hold);
    for pointer in &pointers {
        fs_err::remove_file(pointer).map_err(in_store)?;
    }
    if let Some(family) = root.parent() {
        // Only goes when it was the last of its family.
        let _ = fs_err::remove_dir(family);
    }
    listen(FetchEvent::Note(format!("deleting the files of `{id}`")));
    aside.close().map_err(|source| RemoveError::Leftover { id: id.clone(), folder: rest, source })?;
    Ok(Removed { root, pointers, remains: stores.resolve(id) })
}

fn named(places: &[Place], pointers: &[Utf8PathBuf]) -> Vec<Finding> {
    let cluster = places.iter().map(|place| {
        Finding::error("libtorch-in-use", place.clone(), "the cluster file names it")
            .remedy("name another variant there, or remove it all the same with `--force`")
    });
    let pointer = |file: &Utf8PathBuf| {
        Finding::error("libtorch-in-use", Place::file(file.as_str()), "the pointer names it")
            .remedy("point to another with `libtorch use`, or remove both with `--force`")
    };
    cluster.chain(pointers.iter().map(pointer)).collect()
}
