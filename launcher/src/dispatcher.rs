//! Carries a run out: one thread, one wait, for guards, output, signals and the next deadline.
//!
//! Owns the descriptors of the run and the order in which things are told to the observer. `crate::state` decides; this acts.
//! Must not decide, print, or start a thread.
//!
//! When you change this:
//! - in one turn guards come before output and output before signals, so that a failure that came first is the verdict;
//! - nothing may block but the wait itself and the observer;
//! - every way out of [`Prepared::run`] drops the allocators, which is what leaves nothing of the run alive;
//! - what can happen is an `Input` of `state` and what can be done is an `Action`: extend those first.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::allocator::Allocator;
use crate::allocator::pipes::Pipes;
use crate::allocator::port::{self, PortError, Reservation};
use crate::clock::{self, Clock, Moment};
use crate::event::{End, Event, HostIndex, Observer, Outcome, Rank};
use crate::plan::{HostPlan, LaunchPlan, RankPlan};
use crate::process::handle::{GuardError, Household};
use crate::process::limit;
use crate::process::message::{Report, Request, end_of};
use crate::process::signal::Signals;
use crate::process::spawn::Command;
use crate::reach;
use crate::state::{self, Action, Input, State};

/// Attempts are counted from here. A new attempt is a new set of ranks with a new port.
const FIRST_ATTEMPT: u32 = 0;
/// Descriptors that one wait tells of, at most; the rest comes with the next.
const EVENTS: usize = 64;
/// Milliseconds until a guard that could not take a request is asked again.
const RETRY_MS: u64 = 5;
/// While many ranks start, reports and output come every 0.1 ms, and waking up for each takes a core from what starts:
/// what comes within this time is taken together.
const GATHER: Duration = Duration::from_millis(1);
/// The token of the signal pipe; guards and output pipes count upwards from the other two.
const SIGNALS: u64 = u64::MAX;
const GUARDS: u64 = 1 << 32;

/// Why a run did not come about, or could not go on. Nothing of it is alive then.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// A host's guard could not be started.
    #[error("cannot start the guard of host `{host}`")]
    Guard {
        /// The host's name.
        host: String,
        /// Why.
        #[source]
        source: GuardError,
    },
    /// A host's guard ended before it could be told anything.
    #[error("the guard of host `{host}` ended before it was ready")]
    GuardEnded {
        /// The host's name.
        host: String,
    },
    /// Rank 0 would have no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The run needs more open files than this process may have.
    #[error("{} {needed} open files, the hard limit is {hard} (`ulimit -Hn`)", ranks_need(*ranks))]
    TooFewFiles {
        /// Ranks in the run.
        ranks: u32,
        /// Open files that they need.
        needed: u64,
        /// Open files that this process may have.
        hard: u64,
    },
    /// Another run is going on in this process; signals can only be answered by one.
    #[error("another run is going on in this process")]
    Busy,
    /// The system refused something that a run cannot do without.
    #[error("cannot {step}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why not.
        #[source]
        source: Errno,
    },
}

fn ranks_need(ranks: u32) -> String {
    if ranks == 1 { "1 rank needs".to_owned() } else { format!("{ranks} ranks need") }
}

fn system(step: &'static str) -> impl FnOnce(Errno) -> DispatchError {
    move |source| DispatchError::System { step, source }
}

/// A run that is about to start: its hosts' guards are coming up, and no rank runs. Dropping it ends them.
#[derive(Debug)]
pub struct Prepared<'a> {
    plan: &'a LaunchPlan,
    // In the order in which they are to be dropped: nobody is listened to or cleaned up after before the guards are gone.
    allocators: Vec<Allocator>,
    household: Household,
    signals: Signals,
    /// Held until the run is over.
    _reservation: Option<Reservation>,
    port: u16,
    open_files: u64,
}

/// Begins to bring up what the plan needs, and does not wait for it: what the caller still has to do, as making the run's
/// files, goes on beside it. INT, TERM, HUP and QUIT of this process are kept from here on, and answered by [`Prepared::run`].
///
/// # Errors
/// When the run cannot begin: see [`DispatchError`].
pub fn prepare(plan: &LaunchPlan) -> Result<Prepared<'_>, DispatchError> {
    let ranks = plan.world_size();
    let open_files = limit::make_room(plan.hosts.len(), ranks)
        .map_err(system("read or raise the limit of open files"))?
        .map_err(|limit::TooFewFiles { needed, hard }| DispatchError::TooFewFiles { ranks, needed, hard })?;
    let reservation = match plan.master_port {
        Some(port) => port::check_free(port).map(|()| None)?,
        None => Some(Reservation::new()?),
    };
    let port = reservation.as_ref().map(Reservation::port).or(plan.master_port).unwrap_or_default();
    let signals = Signals::listen().map_err(system("listen for signals"))?.ok_or(DispatchError::Busy)?;
    let household = Household::take_over();
    let bring_up = |host: &HostPlan| {
        reach::local::bring_up(&plan.run_id).map_err(|source| DispatchError::Guard { host: host.name.clone(), source })
    };
    let allocators = plan.hosts.iter().map(bring_up).collect::<Result<_, _>>()?;
    Ok(Prepared { plan, allocators, household, signals, _reservation: reservation, port, open_files })
}

impl Prepared<'_> {
    /// Runs the plan to its end. Everything that happens is told to `observer`, in order, from this thread.
    ///
    /// Nothing of the run is alive when this returns; after [`Outcome::Signaled`] the caller does its own clean-up and then
    /// dies by [`crate::process::signal::die_by`].
    ///
    /// # Errors
    /// When the system fails the run: see [`DispatchError`].
    pub fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, DispatchError> {
        let allocators = std::mem::take(&mut self.allocators);
        let mut run = Run::begin(self.plan, observer, allocators, self.port, self.open_files, &self.household)?;
        run.watch_signals(&self.signals)?;
        run.go_on(&self.signals)
    }
}

/// A run in its course.
struct Run<'a> {
    plan: &'a LaunchPlan,
    observer: &'a mut dyn Observer,
    household: &'a Household,
    clock: Clock,
    state: State,
    epoll: Epoll,
    /// By host.
    allocators: Vec<Allocator>,
    /// By host.
    is_ready: Vec<bool>,
    /// By host.
    is_lost: Vec<bool>,
    /// By rank: its host and its plan.
    ranks: Vec<(HostIndex, &'a RankPlan)>,
    /// By rank.
    has_ended: Vec<bool>,
    pipes: Pipes,
    is_output_closed: bool,
    port: u16,
    open_files: u64,
    inputs: VecDeque<Input>,
    outcome: Option<Outcome>,
}

impl<'a> Run<'a> {
    fn begin(
        plan: &'a LaunchPlan,
        observer: &'a mut dyn Observer,
        allocators: Vec<Allocator>,
        port: u16,
        open_files: u64,
        household: &'a Household,
    ) -> Result<Self, DispatchError> {
        let clock = Clock::start();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("make an epoll"))?;
        for (index, allocator) in allocators.iter().enumerate() {
            if let Some(socket) = allocator.socket() {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, GUARDS + index as u64);
                epoll.add(socket, event).map_err(system("watch a guard"))?;
            }
        }
        let ranks: Vec<_> = plan
            .hosts
            .iter()
            .enumerate()
            .flat_map(|(index, host)| host.ranks.iter().map(move |rank| (HostIndex(index), rank)))
            .collect();
        let by_host: Vec<usize> = plan.hosts.iter().map(|host| host.ranks.len()).collect();
        Ok(Self {
            plan,
            observer,
            household,
            state: State::new(&by_host, plan.grace, clock.now()),
            clock,
            epoll,
            is_ready: vec![false; allocators.len()],
            is_lost: vec![false; allocators.len()],
            allocators,
            has_ended: vec![false; ranks.len()],
            pipes: Pipes::of(ranks.len()),
            ranks,
            is_output_closed: false,
            port,
            open_files,
            inputs: VecDeque::new(),
            outcome: None,
        })
    }

    fn watch_signals(&self, signals: &Signals) -> Result<(), DispatchError> {
        self.epoll.add(signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS)).map_err(system("watch for signals"))
    }

    fn go_on(&mut self, signals: &Signals) -> Result<Outcome, DispatchError> {
        loop {
            self.feed(Input::Tick)?;
            self.pump()?;
            if let Some(outcome) = self.outcome {
                self.wind_up(outcome);
                return Ok(outcome);
            }
            if self.allocators.iter().any(Allocator::is_busy) {
                clock::pause(GATHER);
            }
            let tokens = self.wait()?;
            for host in tokens.iter().filter(|token| (GUARDS..SIGNALS).contains(token)) {
                self.take_reports((host - GUARDS) as usize)?;
            }
            for pipe in tokens.iter().filter(|token| **token < GUARDS) {
                self.take_output(*pipe as usize)?;
            }
            if tokens.contains(&SIGNALS) {
                while let Some(signal) = signals.next() {
                    self.feed(Input::Signal(signal))?;
                }
            }
            // After the output: what came in this turn may be what the observer waited for.
            let now = self.clock.now();
            if self.observer.deadline().is_some_and(|deadline| deadline <= now) {
                self.observer.tick(now);
            }
        }
    }

    /// Waits for the next thing to happen; gives what it concerns.
    fn wait(&self) -> Result<Vec<u64>, DispatchError> {
        let now = self.clock.now();
        let deadlines = self.state.deadline().into_iter().chain(self.observer.deadline());
        let until = deadlines.min().map(|deadline| deadline.since(now));
        let retry = self.allocators.iter().any(Allocator::is_behind).then_some(Duration::from_millis(RETRY_MS));
        // Rounded up: a wait that ends before the deadline would only be repeated.
        let timeout = until.into_iter().chain(retry).min().map(|time| time.as_micros().div_ceil(1000));
        let timeout = timeout.map_or(-1, |millis| i32::try_from(millis).unwrap_or(i32::MAX));
        let timeout = nix::sys::epoll::EpollTimeout::try_from(timeout).unwrap_or(nix::sys::epoll::EpollTimeout::NONE);
        let mut events = [EpollEvent::empty(); EVENTS];
        match self.epoll.wait(&mut events, timeout) {
            Ok(count) => Ok(events[..count].iter().map(EpollEvent::data).collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(source) => Err(DispatchError::System { step: "wait for events", source }),
        }
    }

    /// Gives the state what happened, and does what it says, until nothing more follows.
    fn feed(&mut self, input: Input) -> Result<(), DispatchError> {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let now = self.clock.now();
            for action in state::step(&mut self.state, input, now) {
                self.act(action, now);
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action, now: Moment) {
        match action {
            Action::Start => {
                self.observer.observe(now, &Event::MasterPort { port: self.port });
                for (index, (host, _)) in self.ranks.iter().enumerate() {
                    self.allocators[host.0].start(Rank(index as u32));
                }
            }
            Action::Stop { cause, signal } => {
                self.observer.observe(now, &Event::Stopping { cause, signal, grace: self.plan.grace });
                for rank in self.allocators.iter_mut().flat_map(Allocator::withdraw) {
                    self.pipes.forget(rank);
                    self.has_ended[rank.0 as usize] = true;
                    self.inputs.push_back(Input::Withdrawn(rank));
                }
                self.request(Request::SignalRanks { signal });
            }
            Action::Forward { signal } => self.request(Request::SignalRanks { signal }),
            Action::StopLeftovers => self.request(Request::SignalAll { signal: state::STOP_SIGNAL }),
            Action::Kill { ranks } => {
                self.observer.observe(now, &Event::Killing { ranks: &ranks });
                self.request(Request::Kill);
            }
            Action::GiveUp { ranks } => self.observer.observe(now, &Event::Unkillable { ranks: &ranks }),
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    /// Asks every guard that lives.
    fn request(&mut self, request: Request) {
        for (allocator, _) in self.allocators.iter_mut().zip(&self.is_lost).filter(|(_, is_lost)| !**is_lost) {
            allocator.request(request);
        }
    }

    /// Hands over to the guards what they take now, and watches the pipes of the ranks that start with it.
    fn pump(&mut self) -> Result<(), DispatchError> {
        for host in 0..self.allocators.len() {
            if self.is_lost[host] {
                continue;
            }
            let (plan, ranks, port, open_files) = (self.plan, &self.ranks, self.port, self.open_files);
            let command = |rank: Rank| {
                let (host, rank) = ranks[rank.0 as usize];
                command(plan, host, rank, port, open_files)
            };
            match self.allocators[host].pump(&command) {
                Ok(pumped) => {
                    for pipes in pumped.pipes {
                        self.pipes.add(pipes);
                    }
                    for (rank, step, errno) in pumped.failed {
                        self.pipes.forget(rank);
                        self.end(rank, End::NotStarted { step, errno: errno as i32 })?;
                    }
                }
                Err(_) => {
                    // What it told before it died comes first: the cause may be in it.
                    self.take_reports(host)?;
                    self.lose(host)?;
                }
            }
        }
        self.look_for_the_end_of_output()
    }

    fn take_reports(&mut self, host: usize) -> Result<(), DispatchError> {
        while !self.is_lost[host] && self.outcome.is_none() {
            match self.allocators[host].receive() {
                Ok(None) => return Ok(()),
                Ok(Some(report)) => self.take_report(HostIndex(host), report)?,
                Err(_) => self.lose(host)?,
            }
        }
        Ok(())
    }

    fn take_report(&mut self, host: HostIndex, report: Report) -> Result<(), DispatchError> {
        match report {
            Report::Ready => {
                self.is_ready[host.0] = true;
                self.observer.observe(self.clock.now(), &Event::Allocated { host });
                self.feed(Input::HostReady(host))
            }
            Report::Started { rank, pid } => {
                let rank = Rank(rank);
                self.observer.observe(self.clock.now(), &Event::Started { rank, pid });
                self.pipes.watch(rank, &self.epoll).map_err(system("watch a rank's output"))?;
                self.feed(Input::Started(rank))
            }
            Report::NotStarted { rank, step, errno } => {
                self.pipes.forget(Rank(rank));
                self.end(Rank(rank), End::NotStarted { step, errno })
            }
            Report::Ended { rank, status } => self.end(Rank(rank), end_of(status)),
            Report::Empty => self.feed(Input::HostEmpty(host)),
        }
    }

    fn end(&mut self, rank: Rank, end: End) -> Result<(), DispatchError> {
        if std::mem::replace(&mut self.has_ended[rank.0 as usize], true) {
            return Ok(());
        }
        self.observer.observe(self.clock.now(), &Event::Ended { rank, end });
        self.feed(Input::Ended(rank, end))
    }

    /// A guard is gone: its ranks are dead or dying, and what they left behind comes to this process.
    fn lose(&mut self, host: usize) -> Result<(), DispatchError> {
        if std::mem::replace(&mut self.is_lost[host], true) {
            return Ok(());
        }
        self.allocators[host].put_down();
        let living = self.allocators.iter().zip(&self.is_lost).filter(|(_, is_lost)| !**is_lost);
        let guards: Vec<i32> = living.map(|(allocator, _)| allocator.guard_pid()).collect();
        self.household.kill_strays(&guards);
        if !self.is_ready[host] {
            return Err(DispatchError::GuardEnded { host: self.plan.hosts[host].name.clone() });
        }
        for index in 0..self.ranks.len() {
            if self.ranks[index].0.0 != host {
                continue;
            }
            let rank = Rank(index as u32);
            self.pipes.forget(rank);
            if !std::mem::replace(&mut self.has_ended[index], true) {
                let event = Event::Ended { rank, end: End::Lost };
                self.observer.observe(self.clock.now(), &event);
            }
        }
        self.feed(Input::HostLost(HostIndex(host)))
    }

    fn take_output(&mut self, pipe: usize) -> Result<(), DispatchError> {
        let now = self.clock.now();
        if self.pipes.read(pipe, now, self.observer) {
            self.feed(Input::Output)?;
        }
        self.look_for_the_end_of_output()
    }

    fn look_for_the_end_of_output(&mut self) -> Result<(), DispatchError> {
        if self.pipes.are_closed() && !std::mem::replace(&mut self.is_output_closed, true) {
            self.feed(Input::OutputClosed)?;
        }
        Ok(())
    }

    /// The run is decided: no guard is needed any more, and what the pipes still hold is all that will come.
    fn wind_up(&mut self, outcome: Outcome) {
        // All are told before the first is waited for.
        self.allocators.iter_mut().for_each(Allocator::close);
        self.allocators.clear();
        self.pipes.drain(self.clock.now(), self.observer);
        self.observer.observe(self.clock.now(), &Event::Finished { outcome });
    }
}

/// What a rank is started with.
fn command<'a>(plan: &'a LaunchPlan, host: HostIndex, rank: &'a RankPlan, port: u16, open_files: u64) -> Command<'a> {
    let host = &plan.hosts[host.0];
    let planned =
        host.env.iter().chain(&rank.env).map(|(name, entry)| (name.as_os_str(), entry.value.as_os_str().into()));
    let late =
        plan.late_variables(rank.rank, port, FIRST_ATTEMPT).map(|(name, value)| (OsStr::new(name), value.into()));
    Command { program: &host.program, args: &host.args, env: planned.chain(late).collect(), cwd: &host.cwd, open_files }
}
