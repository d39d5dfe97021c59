//! Why keys cannot be used or changed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use torchlift_schema::Finding;

use super::index::IndexError;
use super::role::{NameError, Role};
use crate::error::Cause;
use crate::lock::LockError;

/// Why keys cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// There is no folder of keys.
    #[error("there are no keys in `{}`", folder.display())]
    Absent {
        /// The folder.
        folder: PathBuf,
    },
    /// There are keys already.
    #[error("there are keys in `{}` already", folder.display())]
    Present {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is one host's or one client's.
    #[error("the keys in `{}` are of one {holder}: no authority is there that could issue others", folder.display())]
    NoAuthority {
        /// The folder.
        folder: PathBuf,
        /// Whose they are.
        holder: Role,
    },
    /// A name that no role can have.
    #[error("the name cannot be used")]
    Name(#[from] NameError),
    /// A role has a certificate already.
    #[error("{role} has a certificate that is good until {until}")]
    Issued {
        /// The role.
        role: Role,
        /// The day of its end.
        until: String,
    },
    /// Nothing was issued for a role.
    #[error("nothing was issued for {role}")]
    Unknown {
        /// The role.
        role: Role,
        /// What there is.
        known: Vec<String>,
    },
    /// No certificate of a kind is there, or more than one.
    #[error("{wanted} is wanted, and `{}` has {found}", folder.display())]
    Choice {
        /// The folder.
        folder: PathBuf,
        /// What is wanted.
        wanted: String,
        /// What there is.
        found: String,
        /// What to do next.
        next: String,
    },
    /// The authority has come to its end.
    #[error("the authority `{id}` expired on {day}")]
    AuthorityExpired {
        /// The authority.
        id: String,
        /// When.
        day: String,
    },
    /// A rotation is under way.
    #[error("the authorities are being rotated already: `{retiring}` is still trusted")]
    Rotating {
        /// The one that goes.
        retiring: String,
    },
    /// No rotation is under way.
    #[error("no rotation is under way")]
    NotRotating,
    /// The index is none.
    #[error("`{}` cannot be used", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: IndexError,
    },
    /// A key or a certificate is none.
    #[error("`{}` {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// Why.
        #[source]
        source: Option<Cause>,
    },
    /// Several things are wrong with the folder.
    #[error("the keys in `{}` cannot be used as they are", folder.display())]
    Findings {
        /// The folder.
        folder: PathBuf,
        /// Each with its place and remedy.
        findings: Vec<Finding>,
    },
    /// Another command changes the folder.
    #[error("another command has been changing these keys for {} s: it holds `{}`", .patience.as_secs(), lock.display())]
    Busy {
        /// The lock.
        lock: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("`{}` cannot be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No key could be made or nothing signed.
    #[error("{what}")]
    Signing {
        /// What was not done.
        what: &'static str,
        /// Why.
        #[source]
        source: Cause,
    },
}

impl KeysError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Absent { .. } => {
                "make an authority with `torchlift keys init` on the machine that controls; to a host, carry what \
                                    `torchlift keys issue HOST` says there; `--keys DIR` names another folder"
                    .to_owned()
            }
            Self::Present { folder } => format!(
                "`torchlift keys show` says what there is, `torchlift keys rotate` makes a new authority; to begin anew, move `{}` away",
                folder.display()
            ),
            Self::NoAuthority { .. } => "do it on the machine that has the authority, then carry it here".to_owned(),
            Self::Name(error) => error.hint().to_owned(),
            Self::Issued { role, .. } => format!(
                "`torchlift keys issue {} --force` issues another; the old one stays good until it is revoked",
                role.kind().arguments(role.name())
            ),
            Self::Unknown { known, .. } if known.is_empty() => "nothing was issued yet".to_owned(),
            Self::Unknown { known, .. } => format!("there is {}", known.join(", ")),
            Self::Choice { next, .. } => next.clone(),
            Self::AuthorityExpired { .. } => {
                "begin anew: move the folder away, `torchlift keys init`, issue all certificates and carry them"
                    .to_owned()
            }
            Self::Rotating { .. } => {
                "carry the new folders to all hosts, then `torchlift keys rotate --finish`".to_owned()
            }
            Self::NotRotating => "`torchlift keys rotate` begins one".to_owned(),
            Self::Index { source, .. } => source.hint().to_owned(),
            Self::Content { .. } => {
                "restore it from a copy, or have it issued again: `torchlift keys issue … --force`".to_owned()
            }
            Self::Findings { .. } => "mend each of them as it says".to_owned(),
            Self::Busy { .. } => "end it, or remove that file when there is no such process".to_owned(),
            Self::Unreadable { .. } => "look at its permissions: it belongs to the user that runs torchlift".to_owned(),
            Self::Unwritable { .. } => "look at the folder's permissions and the room on its disk".to_owned(),
            Self::Signing { .. } => "try again; this system gives no random numbers, or the key is damaged".to_owned(),
        }
    }
}

impl From<LockError> for KeysError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { path, patience } => Self::Busy { lock: path, patience },
            LockError::Unusable { path, source } => Self::Unwritable { path, source },
        }
    }
}
