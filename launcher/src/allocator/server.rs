//! An allocator as a service: clients come over channels, allocations are held, their records are read.
//!
//! Owns the one loop in which everything happens: requests, guards, output, signals, deadlines. [`super::steward`] is the
//! allocator, `desk` tells its clients, `routes` speaks HTTP. Must not decide, and must not wait for a client in the loop.
//!
//! When you change this: whatever way the loop ends, the engines are dropped, and with them every rank.

mod deliver;
mod desk;
mod facts;
mod output;
mod reader;
mod routes;
mod sessions;
mod tally;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::sync::{mpsc, oneshot, watch};
use torchlift_schema::control::{ControlReply, Holder, RemoteProcessAllocatorMessage as Asked};
use torchlift_schema::state::AllocKey;

use super::engine::Host;
use super::record::Record;
use super::state::{Asker, Input, Refusal, Reply, Rules};
use super::steward::Steward;
use crate::channel::dial::Dialler;
use crate::clock::{self, Clock};
use crate::process::readiness::Readiness;
use crate::process::signal::Signals;

use desk::Desk;
pub(crate) use facts::{Facts, Gather};
pub(crate) use routes::{Connection, Service, router};
#[cfg(test)]
pub(crate) use sessions::Order;
pub(crate) use sessions::Sessions;
use tally::Tally;
pub(crate) use tally::Traffic;

/// Requests that wait for the loop, at most; a client that asks beyond that waits with its connection.
const QUEUE: usize = 256;
/// The tokens of what is watched.
const SIGNALS: u64 = 0;
const STEWARD: u64 = 1;
/// Pause before a guard whose socket was full is tried again.
const RETRY: Duration = Duration::from_millis(2);
/// While many ranks start, their guard has something to tell all the time, and waking up for each takes a core from what
/// starts: what comes within this time is taken together. The guard has enough to do for longer than that.
const GATHER: Duration = Duration::from_millis(2);
/// How long nothing has to be held before a guard is started for what comes next.
const CALM: Duration = Duration::from_millis(5);
/// Looks at what is ready in one turn: a rank that writes without end keeps no client waiting.
const ROUNDS: usize = 4;

/// What the loop is asked.
#[derive(Debug)]
pub(crate) enum Command {
    /// A message of a client.
    Ask { by: Asker, message: Asked, reply: oneshot::Sender<ControlReply> },
    /// Something that happened outside of the loop.
    Input(Input),
    /// The record of an allocation, if it is this owner's.
    Find { key: AllocKey, owner: String, found: oneshot::Sender<Option<Found>> },
    /// What lives here.
    Status { status: oneshot::Sender<Status> },
    /// The one connection that it was started for is closed.
    Leave,
}

/// An allocation, as somebody who reads it needs it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Tells of new output; closed when nothing more comes.
    pub(crate) output: watch::Receiver<u64>,
    pub(crate) ranks: usize,
}

/// What lives here.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) incarnation: String,
    pub(crate) holders: Vec<Holder>,
    tally: Tally,
}

/// How the loop is asked.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
}

impl Handle {
    /// Asks; a loop that has ended is draining for good.
    pub(crate) async fn ask(&self, by: Asker, message: Asked) -> ControlReply {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Ask { by, message, reply }).await;
        answer.await.unwrap_or_else(|_| Reply::Refused(Refusal::Draining).into())
    }

    /// Tells of something that happened.
    pub(crate) async fn tell(&self, input: Input) {
        let _ = self.commands.send(Command::Input(input)).await;
    }

    pub(crate) async fn find(&self, key: AllocKey, owner: String) -> Option<Found> {
        let (found, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Find { key, owner, found }).await;
        answer.await.ok().flatten()
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        let (status, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Status { status }).await;
        answer.await.ok()
    }

    pub(crate) async fn leave(&self) {
        let _ = self.commands.send(Command::Leave).await;
    }
}

/// An allocator that serves.
pub(crate) struct Server {
    steward: Steward,
    desk: Desk,
    clock: Clock,
    epoll: Readiness,
    signals: Signals,
    commands: mpsc::Receiver<Command>,
    /// Whether the last turn left something that the runtime will not tell of again.
    is_unfinished: bool,
}

impl Server {
    /// An allocator by these rules, which dials clients with an address of their own as this one and keeps output below a folder.
    /// Has to be made within a runtime, and there may be one in a process.
    ///
    /// # Errors
    /// When the system has no epoll or no signals for it.
    pub(crate) fn new(rules: Rules, host: Host, dialler: Dialler, spool: PathBuf) -> io::Result<Self> {
        let signals = Signals::listen().map_err(io::Error::from)?;
        let signals = signals.ok_or_else(|| io::Error::other("another run is going on in this process"))?;
        let clock = Clock::start();
        let incarnation = rules.incarnation.clone();
        let steward = Steward::new(rules, host, clock).map_err(io::Error::from)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS)).map_err(io::Error::from)?;
        epoll.add(&steward, EpollEvent::new(EpollFlags::EPOLLIN, STEWARD)).map_err(io::Error::from)?;
        let (sender, commands) = mpsc::channel(QUEUE);
        let desk = Desk::new(incarnation, spool, dialler, Handle { commands: sender });
        Ok(Self { steward, desk, clock, epoll: Readiness::of(epoll)?, signals, commands, is_unfinished: false })
    }

    /// How it is asked.
    pub(crate) fn handle(&self) -> Handle {
        self.desk.handle().clone()
    }

    /// Serves until it is drained, idle for too long, or left. Nothing that it started is alive when this returns.
    ///
    /// # Errors
    /// When the system fails the loop itself.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        while !self.steward.is_over() {
            let now = self.clock.now();
            let deadline = self.steward.deadline().map(|deadline| deadline.since(now));
            if deadline == Some(Duration::ZERO) {
                // Not left to the wait below: output without end would always come first.
                self.feed(Input::Tick);
                continue;
            }
            let retry = self.steward.is_behind().then_some(RETRY);
            let is_calm = self.steward.is_spare_wanted();
            let pause = deadline.into_iter().chain(retry).min();
            tokio::select! {
                biased;
                ready = self.epoll.ready() => {
                    ready?;
                    if self.steward.is_busy() {
                        clock::pause(GATHER);
                    }
                    self.turn()?;
                }
                Some(command) = self.commands.recv() => self.take(command),
                () = tokio::task::yield_now(), if self.is_unfinished => self.turn()?,
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    if retry.is_some() {
                        self.turn()?;
                    }
                }
                () = tokio::time::sleep(CALM), if is_calm => {
                    // Whoever cannot have one now hears of it when it is needed.
                    let _ = self.steward.start_spare(self.desk.incarnation());
                }
            }
        }
        // What is asked now is answered: nothing is taken any more.
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.take(command);
        }
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 2];
        self.is_unfinished = true;
        for _ in 0..ROUNDS {
            match self.epoll.epoll().wait(&mut events, EpollTimeout::ZERO) {
                // The runtime tells once: what it has told of has to be found empty before it is asked again.
                Ok(0) => {
                    self.is_unfinished = false;
                    break;
                }
                Ok(_) => self.steward.turn(&mut self.desk)?,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            while self.signals.next().is_some() {
                self.feed(Input::Terminate);
            }
        }
        // A guard whose socket was full tells nothing when it has room again.
        if self.steward.is_behind() {
            self.steward.turn(&mut self.desk)?;
        }
        Ok(())
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Ask { by, message, reply } => {
                if let Some(answer) = self.feed(Input::Asked { by, message }) {
                    self.desk.answered(&answer);
                    // Nobody may wait for the answer any more.
                    let _ = reply.send(answer.into());
                }
            }
            Command::Input(input) => drop(self.feed(input)),
            Command::Find { key, owner, found } => drop(found.send(self.desk.find(&key, &owner))),
            Command::Status { status } => drop(status.send(self.desk.status(self.steward.holders()))),
            Command::Leave => drop(self.feed(Input::Terminate)),
        }
    }

    fn feed(&mut self, input: Input) -> Option<Reply> {
        self.steward.feed(input, &mut self.desk)
    }
}
