//! The processes of one allocation: its guard, its port, its ranks' pipes.
//!
//! Carries out what [`super::state`] says and tells it what happened; what ranks write goes to an [`Outlet`]. Must not decide,
//! and must not wait: [`Engine::turn`] takes what is there.

mod start;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use torchlift_schema::Finding;
use torchlift_schema::state::{AllocKey, NotStarted};

use super::allocation::STOP;
use super::pipes::Pipes;
use super::port::{PortError, Reservation};
use super::state::{Input, Request};
use super::{Allocator, hosts_file};
use crate::claim::Claims;
use crate::clock::Moment;
use crate::event::{End, Observer, Rank, StartStep};
use crate::plan::MASTER_PORT;
use crate::process::handle::{Guard, GuardError};
use crate::process::limit::{self, TooFewFiles};
use crate::process::message::{Report, Request as GuardRequest, end_of};
use start::{Start, claim_cards};

/// The token of the guard; those of pipes count from 0.
const GUARD: u64 = u64::MAX;
/// Events taken in one turn.
const EVENTS: usize = 64;
/// Why an allocation has no processes. Each is told to its client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The list of hosts.
    #[error("the hosts file `{}` cannot be written", file.display())]
    HostsFile {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program that this allocator does not start.
    #[error("`{}` is not below any `--root` of this allocator", program.display())]
    Root {
        /// The program.
        program: PathBuf,
    },
    /// A program or a folder that is not there.
    #[error("`{}` cannot be used", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Open files.
    #[error("{needed} open files are needed, the hard limit is {hard} (`ulimit -Hn`)")]
    TooFewFiles {
        /// What is needed.
        needed: u64,
        /// What may be had.
        hard: u64,
    },
    /// Rank 0's port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Cards that others have, or that cannot be claimed: all of them.
    #[error("{}", shown(findings))]
    Cards {
        /// One for each of them.
        findings: Vec<Finding>,
    },
    /// The guard.
    #[error("its guard cannot be started")]
    Guard(#[from] GuardError),
    /// Where output goes.
    #[error("the folder `{}` for its output cannot be made", folder.display())]
    Spool {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The system.
    #[error("cannot {step}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why not.
        #[source]
        source: Errno,
    },
}

/// What every allocation of this allocator has alike.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The allocator's own program with its arguments, for allocations that name none.
    pub(crate) program: Option<Vec<OsString>>,
    /// Folders that programs have to be below, resolved; empty is any.
    pub(crate) roots: Vec<PathBuf>,
    /// Where the allocator itself was started.
    pub(crate) cwd: PathBuf,
    /// What ranks inherit: the allocator's own environment, less what is not theirs.
    pub(crate) env: BTreeMap<OsString, OsString>,
    /// The file that gets the list of hosts.
    pub(crate) hosts_file: Option<PathBuf>,
    /// Where cards are claimed.
    pub(crate) claims: PathBuf,
    /// How many files a rank may have open.
    pub(crate) open_files: u64,
}

/// Where the output of an allocation's ranks goes, by local rank.
pub(crate) trait Outlet: Observer {
    /// The last lines that a rank wrote to its stderr, for the reason of its end; nothing where they can be read elsewhere.
    fn tail(&mut self, rank: usize) -> String;
}

/// The processes of one allocation.
#[derive(Debug)]
pub(crate) struct Engine {
    key: AllocKey,
    allocator: Allocator,
    epoll: Epoll,
    pipes: Pipes,
    start: Start,
    reservation: Option<Reservation>,
    /// A report that has to wait until what came before it was acted on.
    held_back: Option<Report>,
    is_ready: bool,
    is_lost: bool,
    is_output_closed: bool,
    /// Given back when the guard is gone, and every rank with it.
    _claims: Claims,
}

impl Engine {
    /// Gets what an allocation needs, with a guard that was started before or a new one; [`Input::Opened`] comes when that is up.
    ///
    /// # Errors
    /// When one of it cannot be had; nothing is left of it then.
    pub(crate) fn open(
        key: AllocKey,
        world: &str,
        request: &Request,
        host: &Host,
        spare: Option<Guard>,
    ) -> Result<Self, OpenError> {
        let ranks = request.view.num_ranks();
        let mut start = Start::of(world, request, host)?;
        if let Some(file) = &host.hosts_file {
            hosts_file::write(file, &request.hosts)
                .map_err(|source| OpenError::HostsFile { file: file.clone(), source })?;
        }
        limit::make_room(1, ranks as u32)
            .map_err(system("read or raise the limit of open files"))?
            .map_err(|TooFewFiles { needed, hard }| OpenError::TooFewFiles { needed, hard })?;
        let claims = claim_cards(world, request, &host.claims)?;
        let is_port_wanted = request.launch.as_ref().is_some_and(|launch| launch.is_port_wanted);
        let reservation = is_port_wanted.then(Reservation::new).transpose()?;
        if let Some(reservation) = &reservation {
            start.env.insert(MASTER_PORT.into(), reservation.port().to_string().into());
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("make an epoll"))?;
        let allocator = Allocator::over(spare.map_or_else(|| Guard::start(world), Ok)?);
        if let Some(socket) = allocator.socket() {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, GUARD)).map_err(system("watch a guard"))?;
        }
        let pipes = Pipes::of(ranks);
        let (is_ready, is_lost, is_output_closed) = (false, false, false);
        Ok(Self {
            key,
            allocator,
            epoll,
            pipes,
            start,
            reservation,
            held_back: None,
            is_ready,
            is_lost,
            is_output_closed,
            _claims: claims,
        })
    }

    /// Whether its guard is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The guard's process id.
    pub(crate) fn guard_pid(&self) -> i32 {
        self.allocator.guard_pid()
    }

    /// Starts every rank.
    pub(crate) fn start(&mut self) -> Vec<Input> {
        for rank in 0..self.start.rank_env.len() {
            self.allocator.start(Rank(rank as u32));
        }
        self.pump()
    }

    /// Withdraws the ranks that were not handed over, and sends the signal to the others' process groups.
    pub(crate) fn stop(&mut self, signal: i32) -> Vec<Input> {
        let mut inputs = self.withdraw();
        self.allocator.request(GuardRequest::SignalRanks { signal });
        inputs.extend(self.pump());
        inputs
    }

    /// Sends SIGTERM to everything that is left.
    pub(crate) fn stop_leftovers(&mut self) -> Vec<Input> {
        self.allocator.request(GuardRequest::SignalAll { signal: STOP });
        self.pump()
    }

    /// SIGKILL for everything, and nothing more is started.
    pub(crate) fn kill(&mut self) -> Vec<Input> {
        let mut inputs = self.withdraw();
        self.allocator.request(GuardRequest::Kill);
        inputs.extend(self.pump());
        inputs
    }

    /// Closes the connection to its guard, which kills what is left.
    pub(crate) fn hang_up(&mut self) {
        self.allocator.close();
    }

    /// What the pipes still hold is all that comes; the guard kills what is left.
    pub(crate) fn close(mut self, now: Moment, outlet: &mut dyn Outlet) {
        self.hang_up();
        self.pipes.drain(now, outlet);
    }

    fn withdraw(&mut self) -> Vec<Input> {
        let withdrawn = self.allocator.withdraw();
        withdrawn
            .into_iter()
            .map(|rank| {
                self.pipes.forget(rank);
                Input::Withdrawn { key: self.key.clone(), rank: rank.0 as usize }
            })
            .collect()
    }

    /// Whether the guard has yet to be told something, so that a turn is worth while though nothing was heard.
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_lost && self.allocator.is_behind()
    }

    /// Whether a turn is worth while at once, though nothing more was heard.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.held_back.is_some()
    }

    /// Whether many ranks are being started at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_lost && self.allocator.is_busy()
    }

    /// Takes what is there now.
    ///
    /// What is told of a rank comes before what it wrote: where both would come in one turn, the rest waits for the next, which
    /// [`Self::is_unfinished`] asks for.
    pub(crate) fn turn(&mut self, now: Moment, outlet: &mut dyn Outlet) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let tokens: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
        // What a guard tells comes before what its ranks wrote, and a rank's end after all of it.
        if tokens.contains(&GUARD) || self.held_back.is_some() {
            self.take_reports(now, outlet, &mut inputs);
        }
        let mut has_output = false;
        for token in tokens.into_iter().filter(|token| *token != GUARD) {
            has_output |= self.pipes.read(token as usize, now, outlet);
        }
        if has_output {
            inputs.push(Input::Output { key: self.key.clone() });
        }
        inputs.extend(self.pump());
        inputs
    }

    fn take_reports(&mut self, now: Moment, outlet: &mut dyn Outlet, inputs: &mut Vec<Input>) {
        while !self.is_lost {
            let key = self.key.clone();
            let report = self.held_back.take().map_or_else(|| self.allocator.receive(), |report| Ok(Some(report)));
            match report {
                Ok(None) => return,
                Ok(Some(Report::Ready)) => {
                    self.is_ready = true;
                    let master_port = self.reservation.as_ref().map(Reservation::port);
                    inputs.push(Input::Opened { key, master_port });
                }
                Ok(Some(Report::Started { rank, pid })) => {
                    inputs.push(Input::Started { key, rank: rank as usize, pid });
                    if self.pipes.watch(Rank(rank), &self.epoll).is_err() {
                        self.lose(inputs);
                    }
                }
                Ok(Some(Report::NotStarted { rank, step, errno })) => {
                    inputs.push(self.not_started(Rank(rank), step, Errno::from_raw(errno)));
                }
                Ok(Some(Report::Ended { rank, .. })) if has_just_started(rank as usize, inputs) => {
                    self.held_back = report.ok().flatten();
                    return;
                }
                Ok(Some(Report::Ended { rank, status })) => {
                    self.pipes.catch_up(Rank(rank), now, outlet);
                    let (end, rank) = (end_of(status), rank as usize);
                    let stderr = if end == End::Exited(0) { String::new() } else { outlet.tail(rank) };
                    inputs.push(Input::Ended { key, rank, end, stderr });
                }
                Ok(Some(Report::Empty)) => inputs.push(Input::Empty { key }),
                Err(_) => self.lose(inputs),
            }
        }
    }

    fn not_started(&mut self, rank: Rank, step: StartStep, errno: Errno) -> Input {
        self.pipes.forget(rank);
        let (program, cwd) = (self.start.program.display(), self.start.cwd.display());
        let what = match step {
            StartStep::Fork => "another process cannot be started".to_owned(),
            StartStep::Folder => format!("the folder `{cwd}` cannot be entered"),
            StartStep::Program => format!("`{program}` cannot be executed"),
        };
        let why = format!("local rank {}: {what}: {}", rank.0, errno.desc());
        let failed = NotStarted { rank: rank.0 as usize, step, errno: errno as i32 };
        Input::NotStarted { key: self.key.clone(), failed, why }
    }

    /// Hands over what the guard takes now.
    fn pump(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        if self.is_ready && !self.is_lost {
            let start = &self.start;
            match self.allocator.pump(&|rank| start.command(rank)) {
                Ok(pumped) => {
                    for pipes in pumped.pipes {
                        self.pipes.add(pipes);
                    }
                    for (rank, step, errno) in pumped.failed {
                        inputs.push(self.not_started(rank, step, errno));
                    }
                }
                Err(_) => self.lose(&mut inputs),
            }
        }
        if self.pipes.are_closed() && !std::mem::replace(&mut self.is_output_closed, true) {
            inputs.push(Input::OutputClosed { key: self.key.clone() });
        }
        inputs
    }

    fn lose(&mut self, inputs: &mut Vec<Input>) {
        if !std::mem::replace(&mut self.is_lost, true) {
            self.allocator.put_down();
            inputs.push(Input::GuardLost { key: self.key.clone() });
        }
    }
}

impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

fn has_just_started(rank: usize, inputs: &[Input]) -> bool {
    inputs.iter().any(|input| matches!(input, Input::Started { rank: started, .. } if *started == rank))
}

fn shown(findings: &[Finding]) -> String {
    let one = |finding: &Finding| match &finding.remedy {
        Some(remedy) => format!("{}: {remedy}", finding.message),
        None => finding.message.clone(),
    };
    findings.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn system(step: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |source| OpenError::System { step, source }
}
