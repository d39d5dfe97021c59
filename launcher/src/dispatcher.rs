//! Carries a run out: one thread, one wait, for guards, output, signals and the next deadline.
//!
//! The run is a client of its hosts' allocators: `crate::client::state` says what to tell them, `crate::state` what to make of
//! what they tell; this acts, and tells the observer. Must not decide, print, or start a thread.
//!
//! When you change this:
//! - in one turn hosts come before signals, so that a failure that came first is the verdict;
//! - nothing may block but the wait itself and the observer;
//! - every way out of [`Prepared::run`] drops the hosts, which is what leaves nothing of the run alive;
//! - what can happen is an `Input` of `state` and what can be done is an `Action`: extend those first.

mod request;

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use torchlift_schema::launch::OsTextError;
use torchlift_schema::state::{NotStarted, ProcState, ProcStopReason};

use crate::allocator::port::{self, PortError};
use crate::client::AllocEvent;
use crate::client::state::{Client, Output};
use crate::clock::{self, Clock, Moment};
use crate::event::{End, Event, HostIndex, Observer, Outcome, Rank};
use crate::plan::LaunchPlan;
use crate::process::handle::Household;
use crate::process::limit;
use crate::process::signal::Signals;
use crate::reach::local::{BringUpError, Local};
use crate::state::{self, Action, Input, State};

/// Descriptors that one wait tells of, at most; the rest comes with the next.
const EVENTS: usize = 64;
/// Milliseconds until a guard that could not take a request is asked again.
const RETRY_MS: u64 = 5;
/// While many ranks start, reports and output come every 0.1 ms, and waking up for each takes a core from what starts:
/// what comes within this time is taken together.
const GATHER: Duration = Duration::from_millis(1);
/// The token of the signal pipe; those of hosts are their places.
const SIGNALS: u64 = u64::MAX;

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
        source: BringUpError,
    },
    /// A host could not do its part, and no rank had been started.
    #[error("{why}")]
    NotAllocated {
        /// Which host, and why.
        why: String,
    },
    /// Something in the plan cannot be given to a process.
    #[error("{what} cannot be given to a process")]
    Unusable {
        /// What.
        what: String,
        /// Why not.
        #[source]
        source: OsTextError,
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

/// A run that is about to start: its hosts' allocators are coming up, and no rank runs. Dropping it ends them.
#[derive(Debug)]
pub struct Prepared<'a> {
    plan: &'a LaunchPlan,
    clock: Clock,
    client: Client,
    // In the order in which they are to be dropped: nobody is listened to or cleaned up after before the guards are gone.
    hosts: Vec<Local>,
    household: Household,
    signals: Signals,
}

/// Begins to bring up what the plan needs, and does not wait for it: what the caller still has to do, as making the run's
/// files, goes on beside it. INT, TERM, HUP and QUIT of this process are kept from here on, and answered by [`Prepared::run`].
///
/// # Errors
/// When the run cannot begin: see [`DispatchError`].
pub fn prepare(plan: &LaunchPlan) -> Result<Prepared<'_>, DispatchError> {
    let ranks = plan.world_size();
    let open_files = limit::soft().map_err(system("read the limit of open files"))?;
    limit::make_room(plan.hosts.len(), ranks)
        .map_err(system("read or raise the limit of open files"))?
        .map_err(|limit::TooFewFiles { needed, hard }| DispatchError::TooFewFiles { ranks, needed, hard })?;
    if let Some(port) = plan.master_port {
        port::check_free(port)?;
    }
    let signals = Signals::listen().map_err(system("listen for signals"))?.ok_or(DispatchError::Busy)?;
    let household = Household::take_over();
    let clock = Clock::start();
    let mut first = 0;
    let bring_up = |host: &crate::plan::HostPlan| {
        let local = Local::bring_up(&plan.run_id, Rank(first), open_files, clock);
        first += host.ranks.len() as u32;
        local.map_err(|source| DispatchError::Guard { host: host.name.clone(), source })
    };
    let hosts = plan.hosts.iter().map(bring_up).collect::<Result<_, _>>()?;
    let client = Client::new(request::of(plan)?, u64::from(std::process::id()));
    Ok(Prepared { plan, clock, client, hosts, household, signals })
}

impl Prepared<'_> {
    /// Runs the plan to its end. Everything that happens is told to `observer`, in order, from this thread.
    ///
    /// Nothing of the run is alive when this returns; after [`Outcome::Signaled`] the caller does its own clean-up and then
    /// dies by [`crate::process::signal::die_by`].
    ///
    /// # Errors
    /// When the system fails the run: see [`DispatchError`].
    pub fn run(self, observer: &mut dyn Observer) -> Result<Outcome, DispatchError> {
        let Self { plan, clock, client, hosts, household, signals } = self;
        Run::new(plan, clock, client, hosts, observer, &household)?.go_on(&signals)
    }
}

/// A run in its course.
struct Run<'a> {
    plan: &'a LaunchPlan,
    observer: &'a mut dyn Observer,
    household: &'a Household,
    clock: Clock,
    state: State,
    client: Client,
    /// What the client says to do and has heard.
    output: Output,
    /// In the plan's order.
    hosts: Vec<Local>,
    epoll: Epoll,
    outcome: Option<Outcome>,
    /// Why no rank was started, where a host could not do its part.
    refusal: Option<String>,
}

impl<'a> Run<'a> {
    fn new(
        plan: &'a LaunchPlan,
        clock: Clock,
        client: Client,
        hosts: Vec<Local>,
        observer: &'a mut dyn Observer,
        household: &'a Household,
    ) -> Result<Self, DispatchError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("make an epoll"))?;
        for (index, host) in hosts.iter().enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
            epoll.add(host.as_fd(), event).map_err(system("watch a host"))?;
        }
        let by_host: Vec<usize> = plan.hosts.iter().map(|host| host.ranks.len()).collect();
        Ok(Self {
            plan,
            observer,
            household,
            clock,
            state: State::new(&by_host, plan.grace),
            client,
            output: Output::default(),
            hosts,
            epoll,
            outcome: None,
            refusal: None,
        })
    }

    fn go_on(mut self, signals: &Signals) -> Result<Outcome, DispatchError> {
        self.epoll.add(signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS)).map_err(system("watch for signals"))?;
        // Whoever was told to end before it began starts nothing.
        self.take_signals(signals);
        self.settle();
        if self.outcome.is_none() {
            self.client.begin(self.clock.now(), &mut self.output);
        }
        loop {
            self.settle();
            if let Some(outcome) = self.outcome {
                return self.wind_up(outcome);
            }
            if self.hosts.iter().any(Local::is_busy) {
                clock::pause(GATHER);
            }
            let tokens = self.wait()?;
            for host in tokens.iter().filter(|token| **token != SIGNALS) {
                self.turn(*host as usize)?;
            }
            for host in 0..self.hosts.len() {
                if self.hosts[host].is_behind() {
                    self.turn(host)?;
                }
            }
            if tokens.contains(&SIGNALS) {
                self.take_signals(signals);
            }
            let now = self.clock.now();
            // The run's own before its hosts': what it says to kill is told as killed.
            self.feed(Input::Tick);
            for host in &mut self.hosts {
                host.tick(now, self.observer);
            }
            self.client.tick(now, &mut self.output);
            // After the output: what came in this turn may be what the observer waited for.
            if self.observer.deadline().is_some_and(|deadline| deadline <= now) {
                self.observer.tick(now);
            }
        }
    }

    fn take_signals(&mut self, signals: &Signals) {
        while let Some(signal) = signals.next() {
            self.feed(Input::Signal(signal));
        }
    }

    /// Waits for the next thing to happen; gives what it concerns.
    fn wait(&self) -> Result<Vec<u64>, DispatchError> {
        let now = self.clock.now();
        let hosts = self.hosts.iter().filter_map(Local::deadline);
        let own = [self.state.deadline(), self.client.deadline(), self.observer.deadline()];
        let until = own.into_iter().flatten().chain(hosts).min().map(|deadline| deadline.since(now));
        let retry = self.hosts.iter().any(Local::is_behind).then_some(Duration::from_millis(RETRY_MS));
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

    fn turn(&mut self, host: usize) -> Result<(), DispatchError> {
        self.hosts[host].turn(self.observer).map_err(system("look at a host"))?;
        if self.hosts[host].take_lost_guard() {
            let guards: Vec<i32> = self.hosts.iter().flat_map(Local::guards).collect();
            self.household.kill_strays(&guards);
        }
        self.settle();
        Ok(())
    }

    /// Carries out what the client says and tells it what came of it, until nothing more follows.
    fn settle(&mut self) {
        loop {
            for (host, action) in std::mem::take(&mut self.output.actions) {
                let client = &self.client;
                self.hosts[host].act(action, |sent| client.message(host, sent), self.observer);
            }
            for host in 0..self.hosts.len() {
                while let Some((connection, input)) = self.hosts[host].next() {
                    self.client.step(host, connection, input, self.clock.now(), &mut self.output);
                }
            }
            for event in std::mem::take(&mut self.output.events) {
                self.hear(event);
            }
            if self.output.actions.is_empty() {
                break;
            }
        }
        if self.client.is_over() {
            self.feed(Input::Over);
        }
    }

    /// What the client heard is told to the observer, and decided on.
    fn hear(&mut self, event: AllocEvent) {
        let now = self.clock.now();
        match event {
            AllocEvent::Allocated { host, master_port, .. } => {
                self.observer.observe(now, &Event::Allocated { host: HostIndex(host) });
                if let (0, Some(port)) = (host, master_port.or(self.plan.master_port)) {
                    self.observer.observe(now, &Event::MasterPort { port });
                }
            }
            AllocEvent::State { rank: Some(rank), state: ProcState::Created { pid, .. }, .. } => {
                let rank = Rank(rank as u32);
                self.observer.observe(now, &Event::Started { rank, pid });
                self.feed(Input::Started(rank));
            }
            AllocEvent::State { rank: Some(rank), state: ProcState::Stopped { reason, .. }, .. } => {
                self.end(Rank(rank as u32), end_of(&reason), now);
            }
            AllocEvent::State { state: ProcState::Failed { not_started: Some(failed), .. }, .. } => {
                let NotStarted { rank, step, errno } = failed;
                self.end(Rank(rank as u32), End::NotStarted { step, errno }, now);
            }
            AllocEvent::State { host, state: ProcState::Failed { description, .. }, .. } => {
                self.lose(HostIndex(host), description, now);
            }
            AllocEvent::HostLost { host, why } => self.lose(HostIndex(host), why, now),
            AllocEvent::State { .. } => {}
        }
    }

    fn end(&mut self, rank: Rank, end: End, now: Moment) {
        self.observer.observe(now, &Event::Ended { rank, end });
        self.feed(Input::Ended(rank, end));
    }

    fn lose(&mut self, host: HostIndex, why: String, now: Moment) {
        self.observer.observe(now, &Event::HostFailed { host, why: &why });
        if !self.state.have_ranks_run() {
            self.refusal.get_or_insert(why);
        }
        self.feed(Input::HostLost(host));
    }

    fn feed(&mut self, input: Input) {
        let now = self.clock.now();
        for action in state::step(&mut self.state, input, now) {
            self.act(action, now);
        }
    }

    fn act(&mut self, action: Action, now: Moment) {
        match action {
            Action::Stop { cause, signal } => {
                self.observer.observe(now, &Event::Stopping { cause, signal, grace: self.plan.grace });
                self.client.stop_with(Some(signal), None, now, &mut self.output);
            }
            Action::Forward { signal } => self.client.stop_with(Some(signal), None, now, &mut self.output),
            Action::Kill { ranks } => {
                self.observer.observe(now, &Event::Killing { ranks: &ranks });
                self.client.stop_with(None, Some(Duration::ZERO), now, &mut self.output);
            }
            Action::GiveUp { ranks } => self.observer.observe(now, &Event::Unkillable { ranks: &ranks }),
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    /// The run is decided: no guard is needed any more, and what the pipes still hold is all that will come.
    fn wind_up(mut self, outcome: Outcome) -> Result<Outcome, DispatchError> {
        for host in &mut self.hosts {
            host.shut(self.observer);
        }
        self.hosts.clear();
        if let (Outcome::HostLost { .. }, false, Some(why)) = (outcome, self.state.have_ranks_run(), self.refusal) {
            return Err(DispatchError::NotAllocated { why });
        }
        self.observer.observe(self.clock.now(), &Event::Finished { outcome });
        Ok(outcome)
    }
}

/// How a rank ended, by what its allocator told.
fn end_of(reason: &ProcStopReason) -> End {
    match reason {
        ProcStopReason::Stopped => End::Exited(0),
        ProcStopReason::Exited(code, _) => End::Exited(*code as u8),
        ProcStopReason::Killed(signal, core) => End::Signaled { signal: *signal, core: *core },
        ProcStopReason::Watchdog => End::Signaled { signal: nix::libc::SIGKILL, core: false },
        ProcStopReason::HostWatchdog | ProcStopReason::Unknown => End::Lost,
    }
}
