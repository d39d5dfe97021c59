//! `RemoteProcessAllocatorMessage`: from a client to an allocator.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::addr::ChannelAddr;
use crate::extent::View;
use crate::launch::LaunchSpec;
use crate::named::named;
use crate::rule;
use crate::state::AllocKey;

/// What a client asks of an allocator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RemoteProcessAllocatorMessage {
    /// Start a process for each rank of the view, and tell `bootstrap_addr` what becomes of them.
    Allocate {
        /// The part of the whole that this allocator is to start.
        view: View,
        /// Where its messages go.
        bootstrap_addr: ChannelAddr,
        /// The names of all hosts of the allocation, in order: the same list for each of them.
        hosts: Vec<String>,
        /// On whose behalf.
        client_context: Option<ClientContext>,
        /// Torchlift's additions.
        #[serde(default)]
        terms: Option<Box<Terms>>,
    },
    /// Stop what is allocated, and go on serving.
    Stop,
    /// Nothing: that it arrives shows that the allocator lives.
    HeartBeat,
    /// Torchlift's addition: `Stop` with another signal than SIGTERM first, or another time than the launch says until SIGKILL. One
    /// that follows another passes its signal on, and makes that time shorter or leaves it.
    StopWith {
        /// The signal's number.
        #[serde(default)]
        #[schemars(range(min = 1, max = rule::MAX_SIGNAL))]
        signal: Option<i32>,
        /// Time until SIGKILL, in ms; 0 is SIGKILL at once.
        #[serde(default)]
        #[schemars(range(max = rule::MAX_SIZE))]
        grace_ms: Option<u64>,
    },
}

named!(
    RemoteProcessAllocatorMessage = "hyperactor_mesh::alloc::remoteprocess::RemoteProcessAllocatorMessage",
    [Allocate, Stop, HeartBeat, StopWith]
);

/// On whose behalf something is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientContext {
    /// The trace that it belongs to; becomes the constraint `CLIENT_TRACE_ID` of the allocation.
    #[schemars(regex(pattern = rule::NO_NUL))]
    pub trace_id: String,
}

named!(ClientContext = "hyperactor_mesh::alloc::ClientContext");

/// What Torchlift's clients add to `Allocate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Terms {
    /// What the client calls the allocation, on every host of it. A repeated `Allocate` with a key that is held starts nothing.
    pub alloc_key: AllocKey,
    /// Who holds it, in words for people: `ada@workstation`. What an allocator knows for certain, it takes from the connection.
    #[schemars(regex(pattern = rule::TEXT))]
    pub owner: String,
    /// Whether it replaces what this owner holds already, instead of being refused beside it.
    #[serde(default)]
    pub force: bool,
    /// How long the allocation outlives the connection, in ms; none: it ends with it.
    #[serde(default)]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub lease_ms: Option<u64>,
    /// What to start; none: the allocator's own program.
    #[serde(default)]
    pub launch: Option<LaunchSpec>,
}

impl Terms {
    /// The least that a client says.
    pub fn new(alloc_key: AllocKey, owner: impl Into<String>) -> Self {
        Self { alloc_key, owner: owner.into(), force: false, lease_ms: None, launch: None }
    }
}

/// How it is written. In JSON, empty terms are left out; binary formats, which know no names, always have them.
#[derive(Serialize)]
#[serde(rename = "RemoteProcessAllocatorMessage")]
enum Text<'a> {
    Allocate {
        view: &'a View,
        bootstrap_addr: &'a ChannelAddr,
        hosts: &'a [String],
        client_context: &'a Option<ClientContext>,
        #[serde(skip_serializing_if = "Option::is_none")]
        terms: &'a Option<Box<Terms>>,
    },
    Stop,
    HeartBeat,
    StopWith {
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: &'a Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        grace_ms: &'a Option<u64>,
    },
}

#[derive(Serialize)]
#[serde(rename = "RemoteProcessAllocatorMessage")]
enum Binary<'a> {
    Allocate {
        view: &'a View,
        bootstrap_addr: &'a ChannelAddr,
        hosts: &'a [String],
        client_context: &'a Option<ClientContext>,
        terms: &'a Option<Box<Terms>>,
    },
    Stop,
    HeartBeat,
    StopWith {
        signal: &'a Option<i32>,
        grace_ms: &'a Option<u64>,
    },
}

impl Serialize for RemoteProcessAllocatorMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        macro_rules! written_as {
            ($form:ident) => {
                match self {
                    Self::Allocate { view, bootstrap_addr, hosts, client_context, terms } => {
                        $form::Allocate { view, bootstrap_addr, hosts, client_context, terms }
                    }
                    Self::Stop => $form::Stop,
                    Self::HeartBeat => $form::HeartBeat,
                    Self::StopWith { signal, grace_ms } => $form::StopWith { signal, grace_ms },
                }
                .serialize(serializer)
            };
        }
        if serializer.is_human_readable() { written_as!(Text) } else { written_as!(Binary) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::Named as _;
    use crate::state::RemoteProcessProcStateMessage;

    // Computed with the published crate from the published names.
    #[test]
    fn the_messages_have_the_published_names_hashes_and_ports() {
        assert_eq!(RemoteProcessAllocatorMessage::typehash(), 603_188_097_904_289_528);
        assert_eq!(RemoteProcessAllocatorMessage::port(), 9_826_560_134_759_065_336);
        assert_eq!(RemoteProcessProcStateMessage::typehash(), 14_571_446_740_148_817_509);
        assert_eq!(RemoteProcessProcStateMessage::port(), RemoteProcessProcStateMessage::typehash());
    }

    #[test]
    #[expect(unsafe_code, reason = "the function under test is unsafe")]
    fn a_message_tells_its_arm_also_through_an_untyped_pointer() {
        let message = RemoteProcessAllocatorMessage::HeartBeat;
        assert_eq!(message.arm(), Some("HeartBeat"));
        assert_eq!(RemoteProcessAllocatorMessage::Stop.arm(), Some("Stop"));
        // SAFETY: it points to `message`, which lives.
        let arm = unsafe { RemoteProcessAllocatorMessage::arm_unchecked((&raw const message).cast()) };
        assert_eq!(arm, Some("HeartBeat"));
    }
}
