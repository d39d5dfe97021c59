//! What an allocator answers to a message.

use std::fmt;

use torchlift_schema::Extent;
use torchlift_schema::control::{ControlReply, Holder};
use torchlift_schema::state::{AllocKey, WorldId};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The allocation is being made, or was: a repeated `Allocate` gets the same.
    Allocating { key: AllocKey, world: WorldId },
    /// It does not fit beside these; nothing was disturbed.
    Busy { holders: Vec<Holder> },
    /// It cannot be had here.
    Refused(Refusal),
    /// These are being stopped; none when the session holds nothing.
    Stopping { keys: Vec<AllocKey> },
    /// The allocator lives.
    Alive { incarnation: String },
}

/// Why an allocation cannot be had, whoever else holds what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The allocator is ending.
    #[error("this allocator is ending and takes nothing new")]
    Draining,
    /// Nothing would be started.
    #[error("the view {extent} has no ranks")]
    NoRanks { extent: Extent },
    /// More than could ever be had.
    #[error("{ranks} ranks are asked for, and this allocator starts at most {most}")]
    TooManyRanks { ranks: usize, most: usize },
    /// Nothing says what to start.
    #[error("nothing says what to start: no `terms.launch`, and the allocator has no `--program`")]
    NoProgram,
    /// The key is another allocation's.
    #[error("the key `{key}` is another allocation's")]
    KeyTaken { key: AllocKey },
}

impl Refusal {
    /// A stable kebab-case name.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Draining => "allocator-draining",
            Self::NoRanks { .. } => "allocate-no-ranks",
            Self::TooManyRanks { .. } => "allocate-too-many-ranks",
            Self::NoProgram => "allocate-no-program",
            Self::KeyTaken { .. } => "allocate-key-taken",
        }
    }

    /// What to do next: a lower-case fragment.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Draining => "ask again once it is up again, or ask another host",
            Self::NoRanks { .. } => "give every dimension a size of at least 1",
            Self::TooManyRanks { .. } => "start the allocator with more `--slots`, or ask for fewer ranks",
            Self::NoProgram => "say what to start in `terms.launch`, or start the allocator with `--program`",
            Self::KeyTaken { .. } => "take another key for each allocation",
        }
    }
}

impl From<Reply> for ControlReply {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Allocating { key, world } => Self::Allocating { alloc_key: key, world_id: world },
            Reply::Busy { holders } => Self::Busy { holders },
            Reply::Refused(refusal) => Self::Refused {
                code: refusal.code().to_owned(),
                message: refusal.to_string(),
                hint: Some(refusal.hint().to_owned()),
            },
            Reply::Stopping { keys } => Self::Stopping { alloc_keys: keys },
            Reply::Alive { incarnation } => Self::Alive { incarnation },
        }
    }
}

/// In words for people: what a client that reads no replies is told.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocating { key, .. } => write!(f, "`{key}` is being allocated"),
            Self::Busy { holders } => {
                let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
                write!(f, "busy: held by {}", holders.join(", "))
            }
            Self::Refused(refusal) => write!(f, "{refusal}; {}", refusal.hint()),
            Self::Stopping { keys } => write!(f, "{} allocations are being stopped", keys.len()),
            Self::Alive { incarnation } => write!(f, "alive: {incarnation}"),
        }
    }
}
