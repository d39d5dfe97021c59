//! The host-side part of a run: it holds allocations for clients, starts their ranks through guards and reports on them.
//!
//! Purpose, by file: `state` decides, `engine` acts for one allocation, `steward` is both together, for a client in this process
//! (`crate::reach::local`) and for those that come over a channel (`server`). Here is what an engine hands to its guard: the
//! queue of what it is still to be told, and each rank's pipes.

pub(crate) mod allocation;
pub(crate) mod engine;
mod holder;
pub(crate) mod hosts_file;
pub(crate) mod pipes;
pub mod port;
#[cfg(feature = "net")]
pub(crate) mod record;
#[cfg(feature = "net")]
pub(crate) mod server;
pub(crate) mod state;
pub(crate) mod steward;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::event::{Rank, StartStep};
use crate::process::channel::LETTER_MAX;
use crate::process::handle::Guard;
use crate::process::message::{Report, Request};
use crate::process::spawn::{self, Command};

pub use holder::Holder;

/// Ranks that a guard was told to start and has not answered for, at most: bounds the descriptors on their way to it.
const WINDOW: usize = 32;

/// Ranks that are being started at once, from which on it is worth while to hear of them together.
const BUSY: usize = 4;

/// One host's allocator.
#[derive(Debug)]
pub(crate) struct Allocator {
    guard: Guard,
    queue: VecDeque<Request>,
    unanswered: usize,
}

/// The read ends of a rank's pipes. They block, like the ends that the rank has: whoever reads asks first.
#[derive(Debug)]
pub(crate) struct RankPipes {
    pub(crate) rank: Rank,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// What became of the queue.
#[derive(Debug, Default)]
pub(crate) struct Pumped {
    /// The pipes of the ranks that are being started now.
    pub(crate) pipes: Vec<RankPipes>,
    /// Ranks whose command could not even be handed over.
    pub(crate) failed: Vec<(Rank, StartStep, Errno)>,
}

impl Allocator {
    /// Over a guard that was started before and has been told nothing.
    pub(crate) fn over(guard: Guard) -> Self {
        Self { guard, queue: VecDeque::new(), unanswered: 0 }
    }

    /// The guard's process id.
    pub(crate) fn guard_pid(&self) -> i32 {
        self.guard.pid()
    }

    /// What to watch for reports; none once it is closed.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.guard.socket()
    }

    /// Asks for a rank; [`Self::pump`] carries it out.
    pub(crate) fn start(&mut self, rank: Rank) {
        self.queue.push_back(Request::Spawn { rank: rank.0 });
    }

    /// Asks for anything else.
    pub(crate) fn request(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    /// Takes back the ranks that were not handed over yet.
    pub(crate) fn withdraw(&mut self) -> Vec<Rank> {
        let mut withdrawn = Vec::new();
        self.queue.retain(|request| match request {
            Request::Spawn { rank } => {
                withdrawn.push(Rank(*rank));
                false
            }
            _ => true,
        });
        withdrawn
    }

    /// Whether the guard has yet to be told something that it could take now.
    pub(crate) fn is_behind(&self) -> bool {
        match self.queue.front() {
            Some(Request::Spawn { .. }) => self.unanswered < WINDOW,
            front => front.is_some(),
        }
    }

    /// Whether many ranks are being started at this moment, so that the guard has something to tell all the time.
    pub(crate) fn is_busy(&self) -> bool {
        self.unanswered >= BUSY
    }

    /// Hands over as much of the queue as the guard takes now. An error means that the guard is gone.
    pub(crate) fn pump<'a>(&mut self, command: &dyn Fn(Rank) -> Command<'a>) -> nix::Result<Pumped> {
        let mut pumped = Pumped::default();
        while self.is_behind() {
            let Some(request) = self.queue.front().copied() else { break };
            let sent = match request {
                Request::Spawn { rank } => {
                    let rank = Rank(rank);
                    match self.hand_over(request, rank, command) {
                        Ok(pipes) => {
                            pumped.pipes.push(pipes);
                            self.unanswered += 1;
                            Ok(())
                        }
                        // The guard, or this process, cannot be blamed on the rank.
                        Err(errno @ (Errno::EAGAIN | Errno::ETOOMANYREFS | Errno::EPIPE | Errno::ECONNRESET)) => {
                            Err(errno)
                        }
                        Err(errno) => {
                            pumped.failed.push((rank, StartStep::Fork, errno));
                            Ok(())
                        }
                    }
                }
                other => self.guard.send(other, &[], &[]),
            };
            match sent {
                Ok(()) => drop(self.queue.pop_front()),
                Err(Errno::EAGAIN | Errno::ETOOMANYREFS) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(pumped)
    }

    fn hand_over<'a>(
        &self,
        request: Request,
        rank: Rank,
        command: &dyn Fn(Rank) -> Command<'a>,
    ) -> nix::Result<RankPipes> {
        let refused = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let bytes = command(rank).to_bytes().map_err(refused)?;
        let (stdout, stdout_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (stderr, stderr_write) = pipe2(OFlag::O_CLOEXEC)?;
        let pipes = [stdout_write.as_fd(), stderr_write.as_fd()];
        if bytes.len() <= LETTER_MAX {
            self.guard.send(request, &bytes, &pipes)?;
        } else {
            let memfd = spawn::to_memfd(&bytes).map_err(refused)?;
            self.guard.send(request, &[], &[memfd.as_fd(), pipes[0], pipes[1]])?;
        }
        Ok(RankPipes { rank, stdout, stderr })
    }

    /// The next report: `Ok(None)` when there is none now, an error when the guard is gone.
    pub(crate) fn receive(&mut self) -> nix::Result<Option<Report>> {
        let report = self.guard.receive()?;
        if let Some(Report::Started { .. } | Report::NotStarted { .. }) = report {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        Ok(report)
    }

    /// Makes sure that a guard that is gone is dead.
    pub(crate) fn put_down(&mut self) {
        self.queue.clear();
        self.guard.put_down();
    }

    /// Closes the connection: the guard kills what is left and ends. Dropping waits for that.
    pub(crate) fn close(&mut self) {
        self.guard.close();
    }
}
