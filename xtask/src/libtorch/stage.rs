//! The way of a variant into a store: a folder beside the others, and one rename.
//!
//! Owns the lock of a store, what is written beside a variant's own files, and that there is either a whole variant or
//! none. Whatever ends a process before the rename leaves a folder that the next one takes away.

use std::fs::TryLockError;
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::{DigestError, hex};
use torchlift_schema::VariantId;

use super::VariantFacts;
use super::arch::{self, ArchFile, Making};
use super::event::{FetchEvent, Listener};
use super::listing::{self, Tree};
use super::record::{self, FetchRecord, Source};

/// Begins the name of what is being put in; no variant id begins with a dot.
const UNPACK: &str = ".unpack-";
/// Begins the name of what is being taken away.
pub(super) const REMOVE: &str = ".remove-";
/// Begins the name of a pointer that is being written.
pub(super) const USE: &str = ".use-";

/// Why a store cannot be used, or does not take a variant.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// There is something at the variant's place that is no variant.
    #[error("`{folder}` is there, and is no libtorch")]
    Occupied {
        /// The place.
        folder: Utf8PathBuf,
    },
    /// Another variant has the id.
    #[error("the store has another `{id}` already, in `{folder}`")]
    Taken {
        /// The id.
        id: VariantId,
        /// Its folder.
        folder: Utf8PathBuf,
    },
    /// A file of the variant could not be read again.
    #[error("the new variant cannot be read")]
    Unreadable(#[from] DigestError),
    /// The store, or a file of the new variant, cannot be written.
    #[error("`{folder}` cannot be used")]
    Store {
        /// The folder or file.
        folder: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl StageError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Occupied { folder } => Some(format!("move `{folder}` away, and try again")),
            Self::Taken { id, .. } => {
                Some(format!("give the new one another id with `--name`, or remove `{id}` first"))
            }
            Self::Unreadable(_) => None,
            Self::Store { source, .. } => store_hint(source),
        }
    }
}

/// What to do about a folder that cannot be written.
pub(super) fn store_hint(source: &io::Error) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("make room there".to_owned()),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Some("ask whoever owns that store, or name one of your own with `TORCHLIFT_HOME`".to_owned())
        }
        _ => None,
    }
}

/// Takes the lock of a folder, making the folder first; says so when it has to wait.
pub(super) fn lock(folder: &Utf8Path, listen: Listener<'_>) -> Result<fs_err::File, StageError> {
    let in_folder = |source| StageError::Store { folder: folder.to_owned(), source };
    fs_err::create_dir_all(folder).map_err(in_folder)?;
    let path = lock_file(folder);
    let mut options = fs_err::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(in_folder)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            listen(FetchEvent::Note(format!("waiting for another process that holds `{path}`")));
            file.lock().map_err(in_folder)?;
        }
        Err(TryLockError::Error(source)) => return Err(in_folder(source)),
    }
    Ok(file)
}

/// Whether a name in a store is that of what a killed process left, and [`sweep`] takes away.
pub(super) fn is_left_over(name: &str) -> bool {
    [UNPACK, REMOVE, USE].iter().any(|prefix| name.starts_with(prefix))
}

/// The lock file of a store.
pub(crate) fn lock_file(store: &Utf8Path) -> Utf8PathBuf {
    store.join(".lock")
}

/// Takes away what was left by processes that were killed. Under the lock nobody else puts in or takes away.
pub(super) fn sweep(store: &Utf8Path) -> Result<(), StageError> {
    let in_store = |source| StageError::Store { folder: store.to_owned(), source };
    for entry in store.read_dir_utf8().map_err(in_store)?.flatten() {
        let name = entry.file_name();
        if name.starts_with(USE) {
            fs_err::remove_file(entry.path()).map_err(in_store)?;
        } else if is_left_over(name) {
            fs_err::remove_dir_all(entry.path()).map_err(in_store)?;
        }
    }
    Ok(())
}

/// A variant on its way; gone when it is dropped before it was published.
pub(super) struct Stage {
    store: Utf8PathBuf,
    _folder: tempfile::TempDir,
    /// The folder that becomes the variant; there, and empty.
    pub root: Utf8PathBuf,
    /// A folder for what is unpacked on the way; there, and empty.
    pub scratch: Utf8PathBuf,
}

/// What a new variant is.
pub(super) struct Made<'a> {
    pub id: &'a VariantId,
    pub facts: &'a VariantFacts,
    pub making: Making,
    pub is_cut: bool,
    pub sources: Vec<Source>,
}

/// A variant that is in the store now.
pub(super) struct Published {
    pub root: Utf8PathBuf,
    /// Whether the store had the same already.
    pub was_there: bool,
}

impl Stage {
    /// A new folder in `store`, whose lock is held.
    pub(super) fn open(store: &Utf8Path) -> Result<Self, StageError> {
        let in_store = |source| StageError::Store { folder: store.to_owned(), source };
        let folder = tempfile::Builder::new().prefix(UNPACK).tempdir_in(store).map_err(in_store)?;
        let path = Utf8PathBuf::from_path_buf(folder.path().to_owned())
            .map_err(|path| in_store(io::Error::other(format!("`{}` is not UTF-8", path.display()))))?;
        let (root, scratch) = (path.join("variant"), path.join("scratch"));
        for folder in [&root, &scratch] {
            fs_err::create_dir(folder).map_err(in_store)?;
        }
        Ok(Self { store: store.to_owned(), _folder: folder, root, scratch })
    }

    /// Writes what belongs to a variant beside its files, and makes it one.
    pub(super) fn publish(self, made: Made<'_>, listen: Listener<'_>) -> Result<Published, StageError> {
        let in_store = |source| StageError::Store { folder: self.store.clone(), source };
        let home = self.store.join(made.id.as_str());
        self.describe(&made, listen)?;
        if let Ok(there) = fs_err::symlink_metadata(&home) {
            if !home.join("lib").is_dir() {
                // A person's own doing, or what is left of it, which is not overwritten.
                return Err(StageError::Occupied { folder: home });
            }
            let is_same = there.is_dir() && self.is_same(&home, &made)?;
            let taken = StageError::Taken { id: made.id.clone(), folder: home.clone() };
            return if is_same { Ok(Published { root: home, was_there: true }) } else { Err(taken) };
        }
        if let Some(family) = home.parent() {
            fs_err::create_dir_all(family).map_err(in_store)?;
        }
        fs_err::rename(&self.root, &home).map_err(in_store)?;
        Ok(Published { root: home, was_there: false })
    }

    /// Whether the variant that is there was made with the very same files.
    fn is_same(&self, home: &Utf8Path, made: &Made<'_>) -> Result<bool, StageError> {
        let in_store = |source| StageError::Store { folder: home.to_owned(), source };
        let theirs = listing::Listing::bytes(home).map_err(in_store)?;
        let ours = listing::Listing::bytes(&self.root).map_err(in_store)?;
        Ok(theirs.is_some() && theirs == ours && record::read(home).is_some_and(|record| record.id == *made.id))
    }

    fn describe(&self, made: &Made<'_>, listen: Listener<'_>) -> Result<(), StageError> {
        let root = &self.root;
        let codes = arch::gpu_codes(made.facts).unwrap_or_default();
        let arch = ArchFile::of(made.id, made.facts, made.making, &codes);
        write(&root.join(arch::FILE), arch.text().as_bytes())?;
        let tree = Tree::read(root, listen).map_err(|source| StageError::Store { folder: root.clone(), source })?;
        let listing = tree.listing()?;
        let text = listing.text();
        write(&root.join(listing::FILE), text.as_bytes())?;
        let record = FetchRecord {
            version: record::VERSION,
            revision: record::REVISION,
            id: made.id.clone(),
            torch: made.facts.version.clone(),
            is_cut: made.is_cut,
            fetched_at: torchlift::clock::wall().as_secs(),
            torchlift: env!("CARGO_PKG_VERSION").to_owned(),
            sources: made.sources.clone(),
            making: made.making,
            links: listing.links,
            listing_sha256: Some(hex(&Sha256::digest(&text))),
        };
        let mut text = serde_json::to_string_pretty(&record)
            .map_err(|error| StageError::Store { folder: root.clone(), source: error.into() })?;
        text.push('\n');
        write(&root.join(record::FILE), text.as_bytes())
    }
}

fn write(file: &Utf8Path, content: &[u8]) -> Result<(), StageError> {
    fs_err::write(file, content).map_err(|source| StageError::Store { folder: file.to_owned(), source })
}
