//! What happened: the seam between those who work and those who report.
//!
//! Whoever works emits events; only `report` and `output` turn them into bytes for people and files.

use std::time::Duration;

use crate::clock::Moment;

pub use torchlift_schema::state::StartStep;

/// A rank's place in the whole run, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// A host's place in the plan, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostIndex(pub usize);

/// One of a rank's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned a code.
    Exited(u8),
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// Whether it left a core file.
        core: bool,
    },
    /// It could not be started.
    NotStarted {
        /// What failed.
        step: StartStep,
        /// The `errno` that says why.
        errno: i32,
    },
    /// The guard that was its parent is gone, and it with it.
    Lost,
}

impl End {
    /// Whether it ended well.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// Why the ranks are being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// This rank failed first.
    RankFailed(Rank),
    /// This signal came to the launcher.
    Signal(i32),
    /// This host's allocator or guard is gone.
    HostLost(HostIndex),
}

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The allocator of a host is up and holds the run's ranks there.
    Allocated {
        /// The host.
        host: HostIndex,
    },
    /// The port that rank 0's host holds for the run.
    MasterPort {
        /// TCP port.
        port: u16,
    },
    /// A rank runs.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process id on its host.
        pid: u32,
    },
    /// Bytes that a rank wrote, in their order within a stream.
    Output {
        /// The rank.
        rank: Rank,
        /// Where it wrote.
        stream: Stream,
        /// What it wrote, as it was read: cut anywhere.
        bytes: &'a [u8],
    },
    /// Nothing more comes from this stream of this rank.
    OutputClosed {
        /// The rank.
        rank: Rank,
        /// The stream.
        stream: Stream,
    },
    /// A rank ended. Its output may still come for a moment.
    Ended {
        /// The rank.
        rank: Rank,
        /// How.
        end: End,
    },
    /// A host cannot do its part, or is lost: its ranks follow as ended, where they ran.
    HostFailed {
        /// The host.
        host: HostIndex,
        /// How that was found out, for people.
        why: &'a str,
    },
    /// The remaining ranks are being told to end.
    Stopping {
        /// Why.
        cause: StopCause,
        /// The signal that they get.
        signal: i32,
        /// How long they have until SIGKILL.
        grace: Duration,
    },
    /// The grace is over, or a second signal came: what is left gets SIGKILL.
    Killing {
        /// Ranks that still ran.
        ranks: &'a [Rank],
    },
    /// SIGKILL did not end these in time: the system holds them, often in a dead file system or a driver.
    /// The run ends without them.
    Unkillable {
        /// Ranks that are still there.
        ranks: &'a [Rank],
    },
    /// All is over.
    Finished {
        /// The verdict.
        outcome: Outcome,
    },
}

/// How a run ended as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every rank returned 0.
    Success,
    /// This rank failed first, in this way.
    RankFailed {
        /// The rank.
        rank: Rank,
        /// How it ended.
        end: End,
    },
    /// A signal to the launcher ended it; the launcher dies by it after its clean-up.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// Whether any rank had been started.
        ranks_ran: bool,
    },
    /// A host was lost.
    HostLost {
        /// The host.
        host: HostIndex,
    },
}

/// Whoever wants to know what happens. Called from the dispatcher's thread, in order.
pub trait Observer {
    /// Something happened at `now`.
    fn observe(&mut self, now: Moment, event: &Event<'_>);

    /// When it wants [`Self::tick`] at the latest, though nothing happens; none for never.
    ///
    /// A line that a rank has begun and not ended is shown after a pause this way.
    fn deadline(&self) -> Option<Moment> {
        None
    }

    /// Called soon after its deadline. May be called earlier and more often.
    fn tick(&mut self, now: Moment) {
        let _ = now;
    }
}
