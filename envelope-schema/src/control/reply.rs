//! What an allocator answers to a message, and the lines of its record.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule;
use crate::state::{AllocKey, RemoteProcessProcStateMessage, WorldId};

/// The answer to a message: that it was received, and what it led to at once. What becomes of ranks is in the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub enum ControlReply {
    /// The allocation is being made, or was: a repeated `Allocate` gets the same.
    Allocating {
        /// What the client calls it; the allocator's own choice where the client named none.
        alloc_key: AllocKey,
        /// What the allocator calls it.
        world_id: WorldId,
    },
    /// It does not fit beside what is held. Nothing was disturbed.
    Busy {
        /// Who holds what.
        holders: Vec<Holder>,
    },
    /// It cannot be had, or the message could not be read.
    Refused {
        /// A stable kebab-case name of the reason.
        #[schemars(regex(pattern = rule::CODE))]
        code: String,
        /// The reason, for people.
        message: String,
        /// What to do next.
        #[serde(default)]
        hint: Option<String>,
    },
    /// These allocations are being stopped; none when the session holds nothing.
    Stopping {
        /// What the client calls them.
        alloc_keys: Vec<AllocKey>,
    },
    /// The allocator lives.
    Alive {
        /// Which life of it: a restarted one has another.
        #[schemars(regex(pattern = rule::TEXT))]
        incarnation: String,
    },
    /// A message is missing before this one: send again from there.
    Gap {
        /// The number that is expected.
        #[schemars(range(max = rule::MAX_SIZE))]
        expected: u64,
    },
}

/// Who holds an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Holder {
    /// What its client calls it.
    pub alloc_key: AllocKey,
    /// Who that is: as the connection proves it, with what it calls itself.
    pub owner: String,
    /// Its ranks.
    #[schemars(range(max = rule::MAX_SIZE))]
    pub ranks: usize,
}

impl Holder {
    /// Of these parts.
    pub fn new(alloc_key: AllocKey, owner: impl Into<String>, ranks: usize) -> Self {
        Self { alloc_key, owner: owner.into(), ranks }
    }
}

/// For people: ``k1` of ada (user 1000) (2 ranks)`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
        write!(f, "`{}` of {} ({} {ranks})", self.alloc_key, self.owner, self.ranks)
    }
}

/// One line of the stream of an allocation's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RecordLine {
    /// Its number in the record, from 1; none for a `HeartBeat`, which is in no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = rule::MAX_SIZE))]
    pub n: Option<u64>,
    /// The message.
    pub message: RemoteProcessProcStateMessage,
}

impl RecordLine {
    /// A line of the record.
    pub fn new(n: u64, message: RemoteProcessProcStateMessage) -> Self {
        Self { n: Some(n), message }
    }

    /// A line that says that the allocator lives.
    pub fn heartbeat() -> Self {
        Self { n: None, message: RemoteProcessProcStateMessage::HeartBeat }
    }
}
