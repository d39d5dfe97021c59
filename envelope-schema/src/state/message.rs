//! `RemoteProcessProcStateMessage`: from an allocator to its client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{AllocKey, ProcState, WorldId};
use crate::extent::View;
use crate::named::named;
use crate::rule;

/// What an allocator tells its client, in order: `Allocated` once, then `Update`s, then `Done`; `HeartBeat` at any time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RemoteProcessProcStateMessage {
    /// The allocation is there.
    Allocated {
        /// What the allocator calls it.
        world_id: WorldId,
        /// The view that was asked for, as it came.
        view: View,
        /// Torchlift's additions.
        #[serde(default)]
        terms: Option<Box<AllocatedTerms>>,
    },
    /// Something became of one of its processes, or of it as a whole.
    Update(ProcState),
    /// Nothing more comes of this allocation: every process of it ended and was told of.
    Done(WorldId),
    /// The allocator lives.
    HeartBeat,
}

named!(
    RemoteProcessProcStateMessage = "hyperactor_mesh::alloc::remoteprocess::RemoteProcessProcStateMessage",
    [Allocated, Update, Done, HeartBeat]
);

/// What Torchlift's allocators add to `Allocated`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct AllocatedTerms {
    /// What the client called the allocation.
    pub alloc_key: AllocKey,
    /// Which life of the allocator this is: a restarted one has another.
    #[schemars(regex(pattern = rule::TEXT))]
    pub incarnation: String,
    /// The port that is held for rank 0, where one was wanted.
    #[serde(default)]
    #[schemars(range(min = 1, max = u16::MAX))]
    pub master_port: Option<u16>,
}

impl AllocatedTerms {
    /// What an allocator of this life says of an allocation with this key.
    pub fn new(alloc_key: AllocKey, incarnation: impl Into<String>) -> Self {
        Self { alloc_key, incarnation: incarnation.into(), master_port: None }
    }
}

/// How it is written. In JSON, empty terms are left out; binary formats, which know no names, always have them.
#[derive(Serialize)]
#[serde(rename = "RemoteProcessProcStateMessage")]
enum Text<'a> {
    Allocated {
        world_id: &'a WorldId,
        view: &'a View,
        #[serde(skip_serializing_if = "Option::is_none")]
        terms: &'a Option<Box<AllocatedTerms>>,
    },
    Update(&'a ProcState),
    Done(&'a WorldId),
    HeartBeat,
}

#[derive(Serialize)]
#[serde(rename = "RemoteProcessProcStateMessage")]
enum Binary<'a> {
    Allocated { world_id: &'a WorldId, view: &'a View, terms: &'a Option<Box<AllocatedTerms>> },
    Update(&'a ProcState),
    Done(&'a WorldId),
    HeartBeat,
}

impl Serialize for RemoteProcessProcStateMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        macro_rules! written_as {
            ($form:ident) => {
                match self {
                    Self::Allocated { world_id, view, terms } => $form::Allocated { world_id, view, terms },
                    Self::Update(state) => $form::Update(state),
                    Self::Done(world_id) => $form::Done(world_id),
                    Self::HeartBeat => $form::HeartBeat,
                }
                .serialize(serializer)
            };
        }
        if serializer.is_human_readable() { written_as!(Text) } else { written_as!(Binary) }
    }
}
