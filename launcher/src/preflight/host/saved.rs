//! `cluster.facts.json` on disk: read, and changed by one host at a time.
//!
//! Owns that nothing is lost: the file is whole at every moment, two who save at once both find their entries in it, and a
//! file that this version does not know to its end is not written at all. What is in it is [`torchlift_schema::facts`]'s.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err::File;
use torchlift_schema::facts::{self, ClusterFacts, FactsError};
use torchlift_schema::{Finding, HostFacts, Place};

use crate::lock::{Lock, LockError};
use crate::report::json::write_whole;

/// The file's name beside a `cluster.toml`.
pub const FILE_NAME: &str = "cluster.facts.json";
/// How long another one that saves is waited for. It holds the lock for milliseconds, on a slow shared folder for seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Why facts could not be read or saved.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It is there and cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a folder, a pipe, a device.
    #[error("`{}` is no regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Nothing that is written beside it could be named after it.
    #[error("`{}` has a name that is no UTF-8", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// It has no facts that this version reads.
    #[error("`{}` has no facts that can be used", path.display())]
    Facts {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: FactsError,
    },
    /// It was written by a later torchlift, whose additions would be lost.
    #[error("`{}` was written by a later torchlift (revision {revision}), and what that added would be lost", path.display())]
    NewerRevision {
        /// The file.
        path: PathBuf,
        /// The revision that it states.
        revision: u32,
    },
    /// With this host it would be larger than a reader takes.
    #[error("`{}` would have {size} bytes, and a file of facts has at most {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it would have.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// Another one saves, and does not come to its end.
    #[error("another process has held `{}` for {} s", path.display(), .patience.as_secs())]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// It, or the lock beside it, cannot be written.
    #[error("`{}` cannot be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<LockError> for SavedError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { path, patience } => Self::Busy { path, patience },
            LockError::Unusable { path, source } => Self::Unwritable { path, source },
        }
    }
}

impl SavedError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "look at its permissions",
            Self::Name { .. } => "give a file with another name",
            Self::NotAFile { .. } => "give another file, or move away what is there",
            Self::Facts { source, .. } => source.hint(),
            Self::NewerRevision { .. } => "install that torchlift here too",
            Self::TooLarge { .. } => "take hosts out that are no more, or keep clusters in folders of their own",
            Self::Busy { .. } => "end it, or remove that file when there is no such process",
            Self::Unwritable { .. } => {
                "look at the folder's permissions and the room on its disk, or give another file"
            }
        }
    }

    /// The same as findings.
    pub fn into_findings(self, file: &str) -> Vec<Finding> {
        let hint = self.hint();
        match self {
            Self::Facts { source, .. } => source.into_findings(&Place::file(file)),
            other => {
                let cause = std::error::Error::source(&other).map(|cause| format!(": {cause}")).unwrap_or_default();
                vec![Finding::error("facts-unreadable", Place::file(file), format!("{other}{cause}")).remedy(hint)]
            }
        }
    }
}

/// Reads the facts in `path`; none where there is no such file.
///
/// # Errors
/// When it cannot be read, or holds no facts that this version knows.
pub fn read(path: &Path) -> Result<Option<ClusterFacts>, SavedError> {
    let unreadable = |source| SavedError::Unreadable { path: path.to_owned(), source };
    match fs_err::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(SavedError::NotAFile { path: path.to_owned() }),
        Ok(metadata) => {
            let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
            if size > facts::MAX_BYTES {
                let source = FactsError::TooLarge { size, limit: facts::MAX_BYTES };
                return Err(SavedError::Facts { path: path.to_owned(), source });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(facts::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match facts::read(&bytes) {
        Ok(facts) => Ok(Some(facts)),
        Err(source) => Err(SavedError::Facts { path: path.to_owned(), source }),
    }
}

/// What became of a host's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The file had none.
    Added,
    /// It had one, which this takes the place of.
    Replaced,
}

/// Writes a host's facts into `path` and leaves those of all other hosts as they are; makes the file where there is none.
///
/// # Errors
/// When it cannot be read, is not of this version, or cannot be written; then it is as it was.
pub fn save(path: &Path, host: &str, facts: HostFacts, patience: Duration) -> Result<Saved, SavedError> {
    // What a link leads to is changed, and not the link.
    let path = match fs_err::canonicalize(path) {
        Ok(real) => real,
        // A link to nothing would be written over, and the file that it is for would be another one.
        Err(_) if fs_err::read_link(path).is_ok() => return Err(SavedError::NotAFile { path: path.to_owned() }),
        Err(_) => path.to_owned(),
    };
    let unwritable = |source| SavedError::Unwritable { path: path.clone(), source };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SavedError::NotAFile { path });
    };
    let Some(name) = name.to_str() else { return Err(SavedError::Name { path }) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Nobody is made to wait for what cannot be.
    read(&path)?;
    let _lock = Lock::take(&folder.join(format!(".{name}.lock")), patience)?;
    let mut all = read(&path)?.unwrap_or_default();
    if all.has_newer_revision() {
        return Err(SavedError::NewerRevision { path, revision: all.revision });
    }
    let had = all.hosts.insert(host.to_owned(), facts);
    let text = facts::to_text(&all);
    if text.len() > facts::MAX_BYTES {
        return Err(SavedError::TooLarge { path, size: text.len(), limit: facts::MAX_BYTES });
    }
    write_whole(folder, name, &text).map_err(unwritable)?;
    Ok(if had.is_some() { Saved::Replaced } else { Saved::Added })
}
