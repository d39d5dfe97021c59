//! What an allocator tells of its ranks, and how processes are called in it.
//!
//! Owns `RemoteProcessProcStateMessage` and what is in it, with the published names, variants and their order. Ours is what
//! `terms` holds. Must not decide what follows from a state.
//!
//! When you change this, or [`crate::control`] or [`crate::launch`]: the published variants and fields stay as they are, ours
//! come behind them, are optional, and are left out of JSON when empty; a peer that does not know them must be able to pass over
//! them. Add fixtures below `fixtures/messages`, write the schemas anew (`cargo xtask schema`), and look at `docs/protocol.md`.

mod id;
mod message;
mod write;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addr::ChannelAddr;
use crate::extent::Point;
use crate::named::named;
use crate::rule;

pub use id::{ActorId, ActorRef, AllocKey, IdError, ProcId, WorldId};
pub use message::{AllocatedTerms, RemoteProcessProcStateMessage};

/// What became of one process. Each goes from `Created` over `Running` to `Stopped`, and never back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ProcState {
    /// It was started.
    Created {
        /// Which process.
        proc_id: ProcId,
        /// Its place in the view, or, once the client has projected it, in the whole.
        point: Point,
        /// Its process id on its host; 0 where the system gave none.
        #[schemars(range(max = u32::MAX))]
        pid: u32,
    },
    /// It executes its program.
    Running {
        /// Which process.
        proc_id: ProcId,
        /// Who speaks for it.
        mesh_agent: ActorRef,
        /// Where it is reached.
        addr: ChannelAddr,
    },
    /// It ended.
    Stopped {
        /// Which process.
        proc_id: ProcId,
        /// How.
        reason: ProcStopReason,
    },
    /// The allocation as a whole cannot go on; what runs of it goes on until it is stopped.
    Failed {
        /// Which allocation.
        world_id: WorldId,
        /// Why: for people.
        description: String,
        /// Torchlift's addition: the rank that could not be started, where that is why.
        #[serde(default)]
        not_started: Option<NotStarted>,
    },
}

/// A rank that could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotStarted {
    /// Its place in the view, or, once the client has projected it, in the whole.
    #[schemars(range(max = rule::MAX_SIZE))]
    pub rank: usize,
    /// What failed.
    pub step: StartStep,
    /// The `errno` that says why.
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub errno: i32,
}

/// What failed when a process could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartStep {
    /// The system had no room for another process, or its command could not be handed over.
    Fork,
    /// Its working folder could not be entered.
    Folder,
    /// Its program could not be executed.
    Program,
}

named!(ProcState = "hyperactor_mesh::alloc::ProcState", [Created, Running, Stopped, Failed]);

impl ProcState {
    /// A failure of the whole, for a reason that people are told.
    pub fn failed(world_id: WorldId, description: impl Into<String>) -> Self {
        Self::Failed { world_id, description: description.into(), not_started: None }
    }

    /// The process that it is about; none for a failure of the whole.
    pub fn proc_id(&self) -> Option<&ProcId> {
        match self {
            Self::Created { proc_id, .. } | Self::Running { proc_id, .. } | Self::Stopped { proc_id, .. } => {
                Some(proc_id)
            }
            Self::Failed { .. } => None,
        }
    }
}

/// In the published words.
impl fmt::Display for ProcState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created { proc_id, point, pid } => write!(f, "{proc_id}: created at ({point}) with PID {pid}"),
            Self::Running { proc_id, addr, .. } => write!(f, "{proc_id}: running at {addr}"),
            Self::Stopped { proc_id, reason } => write!(f, "{proc_id}: stopped: {reason}"),
            Self::Failed { world_id, description, .. } => write!(f, "{world_id}: failed: {description}"),
        }
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProcStopReason {
    /// It returned 0.
    Stopped,
    /// It returned another code, with the last lines of its stderr.
    Exited(#[schemars(range(min = i32::MIN, max = i32::MAX))] i32, String),
    /// A signal ended it, with or without a core file.
    Killed(#[schemars(range(min = i32::MIN, max = i32::MAX))] i32, bool),
    /// It did not end in time when it was told to, and was made to.
    Watchdog,
    /// Its host was lost, and it with it.
    HostWatchdog,
    /// Nobody knows.
    Unknown,
}

named!(
    ProcStopReason = "hyperactor_mesh::alloc::ProcStopReason",
    [Stopped, Exited, Killed, Watchdog, HostWatchdog, Unknown]
);

/// In the published words.
impl fmt::Display for ProcStopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Exited(code, stderr) if stderr.is_empty() => write!(f, "exited with code {code}"),
            Self::Exited(code, stderr) => write!(f, "exited with code {code}: {stderr}"),
            Self::Killed(signal, core) => write!(f, "killed with signal {signal} (core dumped={core})"),
            Self::Watchdog => f.write_str("proc watchdog failure"),
            Self::HostWatchdog => f.write_str("host watchdog failure"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use crate::named::Named as _;

    #[test]
    fn states_and_reasons_are_told_in_the_published_words() {
        let proc_id = || ProcId::Ranked(WorldId::from("test"), 1);
        let point = Extent::of([("host", 1), ("gpu", 2)]).unwrap().point_of_rank(1).unwrap();
        let mesh_agent = ActorRef::new(ActorId::new(proc_id(), "mesh", 0));
        let addr = ChannelAddr::Caller;
        let states = [
            (
                ProcState::Created { proc_id: proc_id(), point, pid: 7 },
                "test[1]: created at (host=0/1,gpu=1/2) with PID 7",
                "Created",
            ),
            (ProcState::Running { proc_id: proc_id(), mesh_agent, addr }, "test[1]: running at caller:", "Running"),
            (
                ProcState::Stopped { proc_id: proc_id(), reason: ProcStopReason::Exited(3, "a\nb".to_owned()) },
                "test[1]: stopped: exited with code 3: a\nb",
                "Stopped",
            ),
            (ProcState::failed(WorldId::from("w"), "no room"), "w: failed: no room", "Failed"),
        ];
        for (state, words, arm) in states {
            assert_eq!((state.to_string().as_str(), state.arm()), (words, Some(arm)));
            assert_eq!(state.proc_id().is_some(), arm != "Failed");
        }
        let reasons = [
            (ProcStopReason::Stopped, "stopped"),
            (ProcStopReason::Exited(1, String::new()), "exited with code 1"),
            (ProcStopReason::Killed(15, false), "killed with signal 15 (core dumped=false)"),
            (ProcStopReason::Watchdog, "proc watchdog failure"),
            (ProcStopReason::HostWatchdog, "host watchdog failure"),
            (ProcStopReason::Unknown, "unknown"),
        ];
        for (reason, words) in reasons {
            assert_eq!(reason.to_string(), words);
        }
    }
}
