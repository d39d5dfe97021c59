//! A client of many allocators: a pure function of what it was, what happened and when.
//!
//! Owns which host has which part of the whole, what is told of each process, and when it is over. Must not read a clock or a
//! socket: [`super::task`] feeds it and carries out what it says. [`super::link`] is one host's connection.
//!
//! The published client could end before its second host had answered, wait for ever for one that was lost after it was done,
//! and put a process of a strided view into the wrong place. Here each host is over exactly once, and the whole when all are.
//!
//! When you change this:
//! - each process that was `Created` is `Stopped` once, whatever its host says or does not say;
//! - of each process it is told `Created`, `Running`, `Stopped` in that order, each at most once;
//! - the property tests and `simulation` hold you to these.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::{ClientContext, RemoteProcessAllocatorMessage as Asked, Terms};
use torchlift_schema::launch::{LaunchSpec, OsText};
use torchlift_schema::state::{AllocKey, NotStarted, ProcId, ProcState, ProcStopReason, WorldId};
use torchlift_schema::{ChannelAddr, Extent, View};

use super::link::{Action, Input, Link, News, Patience, Sent};
use crate::clock::Moment;
use crate::plan::MASTER_PORT;

/// Messages that a host may tell for each of its ranks: more than any that starts a rank again and again tells in a day.
const MOST_TOLD: usize = 10_000;

/// What is wanted of all hosts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocSpec {
    /// What the allocation is called, on every host.
    pub key: AllocKey,
    /// Who wants it, in words for people: `ada@workstation`.
    pub owner: String,
    /// The shape of all ranks.
    pub extent: Extent,
    /// Each host's part, as [`super::split`] made it.
    pub hosts: Vec<HostSpec>,
    /// Whether it replaces what this owner holds there.
    pub is_forced: bool,
    /// How long the allocations outlive a connection; none: they end with it.
    pub lease: Option<Duration>,
    /// On whose behalf.
    pub context: Option<ClientContext>,
    /// How long is waited for what.
    pub patience: Patience,
}

/// One host's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name, for people and for the list of hosts that each allocator gets.
    pub name: String,
    /// Its ranks.
    pub view: View,
    /// What to start; none: the allocator's own program.
    ///
    /// Where the first host's wants a port, the others are asked only once that is held, and get it as `MASTER_PORT`.
    pub launch: Option<LaunchSpec>,
    /// Which life of its allocator holds it already, for a client that takes up what one before it asked for: a restarted
    /// allocator is lost then, and starts nothing. None asks for it anew.
    pub incarnation: Option<String>,
}

/// What became of an allocation, in the order of each host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocEvent {
    /// A host holds its part.
    Allocated {
        /// Its place in the specification.
        host: usize,
        /// Which life of its allocator that is, where it says so.
        incarnation: Option<String>,
        /// The port that it holds for rank 0, where one was wanted of it.
        master_port: Option<u16>,
    },
    /// What a host told of one of its processes, or of its part as a whole.
    State {
        /// Its place in the specification.
        host: usize,
        /// The process's rank in the whole; none where it is about the host's part.
        rank: Option<usize>,
        /// What was told, with the point projected into the whole.
        state: ProcState,
    },
    /// A host was lost: each of its processes follows as stopped by `HostWatchdog`.
    HostLost {
        /// Its place in the specification.
        host: usize,
        /// How that was found out, for people.
        why: String,
    },
}

impl AllocEvent {
    /// What the published client would have told; none for what only ours tells.
    pub fn state(&self) -> Option<&ProcState> {
        match self {
            Self::State { state, .. } => Some(state),
            _ => None,
        }
    }
}

/// What a step leads to.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// What to do, by host.
    pub(crate) actions: Vec<(usize, Action)>,
    /// What to tell.
    pub(crate) events: Vec<AllocEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcPhase {
    Created,
    Running,
}

#[derive(Debug)]
struct Host {
    spec: HostSpec,
    link: Link,
    /// When its link wants a tick, as `Client::deadlines` has it.
    deadline: Option<Moment>,
    /// Whether it waits for the first host's port.
    is_waiting: bool,
    has_created: bool,
    /// Messages that it told.
    told: usize,
    /// Processes that were told of as created and not as stopped.
    procs: HashMap<ProcId, (usize, ProcPhase)>,
    is_over: bool,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    spec: AllocSpec,
    hosts: Vec<Host>,
    over: usize,
    /// The port that the first host holds for rank 0, where one was wanted.
    port: Option<u16>,
    is_stopping: bool,
    deadlines: BTreeSet<(Moment, usize)>,
    // Kept from step to step, so that a step costs no memory.
    actions: Vec<Action>,
    news: Vec<News>,
}

impl Client {
    /// A client that asked nobody yet. `seed` scatters the pauses of its connections.
    pub(crate) fn new(mut spec: AllocSpec, seed: u64) -> Self {
        let hosts: Vec<Host> = std::mem::take(&mut spec.hosts)
            .into_iter()
            .enumerate()
            .map(|(index, host)| Host {
                link: Link::new(spec.patience, spec.lease.is_some(), host.incarnation.clone(), seed ^ index as u64),
                spec: host,
                deadline: None,
                is_waiting: false,
                has_created: false,
                told: 0,
                procs: HashMap::new(),
                is_over: false,
            })
            .collect();
        Self {
            spec,
            hosts,
            over: 0,
            port: None,
            is_stopping: false,
            deadlines: BTreeSet::new(),
            actions: Vec::new(),
            news: Vec::new(),
        }
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.over == self.hosts.len()
    }

    /// When [`Self::tick`] is wanted, at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Asks every host for its part; only the first, where that is to hold a port first.
    pub(crate) fn begin(&mut self, now: Moment, output: &mut Output) {
        let is_port_wanted =
            self.hosts.first().and_then(|host| host.spec.launch.as_ref()).is_some_and(|launch| launch.is_port_wanted);
        for index in 0..self.hosts.len() {
            if is_port_wanted && index > 0 {
                self.hosts[index].is_waiting = true;
            } else {
                self.allocate(index, now, output);
            }
        }
    }

    /// Takes what happened on a host's connection.
    pub(crate) fn step(&mut self, host: usize, connection: u64, input: Input, now: Moment, output: &mut Output) {
        let Some(at) = self.hosts.get_mut(host) else { return };
        at.link.step(connection, input, now, &mut self.actions, &mut self.news);
        self.settle(host, now, output);
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Moment, output: &mut Output) {
        while let Some((at, host)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            // A link that did not move its deadline would be asked for ever.
            self.deadlines.remove(&(at, host));
            self.hosts[host].deadline = None;
            self.step(host, 0, Input::Tick, now, output);
            debug_assert_ne!(self.hosts[host].deadline, Some(at), "a link wants what it was just given");
        }
    }

    /// Asks for the end of everything. What it leads to comes as events, to the end.
    pub(crate) fn stop(&mut self, now: Moment, output: &mut Output) {
        self.stop_by(Sent::Stop, now, output);
    }

    /// The same with this signal, and this time until SIGKILL; none is what each host was told when it was asked for its part.
    pub(crate) fn stop_with(&mut self, signal: Option<i32>, grace: Option<Duration>, now: Moment, output: &mut Output) {
        let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        self.stop_by(Sent::StopWith { signal, grace_ms }, now, output);
    }

    fn stop_by(&mut self, sent: Sent, now: Moment, output: &mut Output) {
        self.is_stopping = true;
        for host in 0..self.hosts.len() {
            if std::mem::take(&mut self.hosts[host].is_waiting) {
                self.finish(host, output);
            } else {
                self.hosts[host].link.stop(sent, now, &mut self.actions, &mut self.news);
                self.settle(host, now, output);
            }
        }
    }

    /// Who is not over, for a person who looks for the reason.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let hosts = self.hosts.iter().enumerate().filter(|(_, host)| !host.is_over);
        format!("{:#?}", hosts.collect::<Vec<_>>())
    }

    /// The message that an action says to send.
    pub(crate) fn message(&self, host: usize, sent: Sent) -> Asked {
        match sent {
            Sent::HeartBeat => Asked::HeartBeat,
            Sent::Stop => Asked::Stop,
            Sent::StopWith { signal, grace_ms } => Asked::StopWith { signal, grace_ms },
            Sent::Allocate => self.request(host, self.hosts.iter().map(|host| host.spec.name.clone()).collect()),
        }
    }

    /// What a host is asked for, as one of these.
    pub(crate) fn request(&self, host: usize, hosts: Vec<String>) -> Asked {
        let spec = &self.hosts[host].spec;
        let mut terms = Terms::new(self.spec.key.clone(), self.spec.owner.clone());
        terms.force = self.spec.is_forced;
        terms.lease_ms = self.spec.lease.map(|lease| lease.as_millis() as u64);
        terms.launch = spec.launch.clone();
        if let (Some(launch), Some(port), true) = (&mut terms.launch, self.port, host > 0) {
            let text = |text: &str| OsText::new(text).ok();
            if let (Some(name), Some(value)) = (text(MASTER_PORT), text(&port.to_string())) {
                launch.env.insert(name, value);
            }
        }
        Asked::Allocate {
            view: spec.view.clone(),
            bootstrap_addr: ChannelAddr::Caller,
            hosts,
            client_context: self.spec.context.clone(),
            terms: Some(Box::new(terms)),
        }
    }

    fn allocate(&mut self, host: usize, now: Moment, output: &mut Output) {
        self.hosts[host].is_waiting = false;
        self.hosts[host].link.allocate(now, &mut self.actions);
        self.settle(host, now, output);
    }

    /// Passes on what a link said to do, and acts on what it heard.
    fn settle(&mut self, host: usize, now: Moment, output: &mut Output) {
        self.pass_on(host, output);
        while !self.news.is_empty() {
            let mut news = std::mem::take(&mut self.news);
            for heard in news.drain(..) {
                self.hear(host, heard, now, output);
                // Before another host's actions come behind them.
                self.pass_on(host, output);
            }
            // What was heard may have led to more of it.
            if self.news.is_empty() {
                self.news = news;
            }
        }
        let (before, after) = (self.hosts[host].deadline, self.hosts[host].link.deadline());
        if before != after {
            if let Some(at) = before {
                self.deadlines.remove(&(at, host));
            }
            if let Some(at) = after {
                self.deadlines.insert((at, host));
            }
            self.hosts[host].deadline = after;
        }
    }

    fn pass_on(&mut self, host: usize, output: &mut Output) {
        output.actions.extend(self.actions.drain(..).map(|action| (host, action)));
    }

    fn hear(&mut self, host: usize, heard: News, now: Moment, output: &mut Output) {
        match heard {
            News::Told(message) => self.told(host, message, now, output),
            News::Withdrawn => self.finish(host, output),
            News::Refused { why } => {
                self.fail(host, &format!("host `{}`: {why}", self.hosts[host].spec.name), output);
                self.finish(host, output);
                self.withdraw_waiting(output);
            }
            News::Gone { why } => self.lose(host, why, output),
        }
    }

    fn told(&mut self, host: usize, message: Told, now: Moment, output: &mut Output) {
        let at = &mut self.hosts[host];
        at.told += 1;
        // Whoever holds the allocation may be slow to ask for events: no host may fill the memory with them.
        if at.told > MOST_TOLD.saturating_mul(at.spec.view.num_ranks()) {
            let why = format!("its allocator told more than {MOST_TOLD} messages a rank");
            return at.link.give_up(why, &mut self.actions, &mut self.news);
        }
        match message {
            Told::HeartBeat => {}
            Told::Allocated { terms, .. } => {
                let incarnation = terms.as_ref().map(|terms| terms.incarnation.clone());
                let master_port = terms.and_then(|terms| terms.master_port);
                output.events.push(AllocEvent::Allocated { host, incarnation, master_port });
                if host == 0 && self.hosts.iter().any(|host| host.is_waiting) {
                    self.go_on(master_port, now, output);
                }
            }
            Told::Update(state) => self.update(host, state, output),
            Told::Done(_) => {
                self.finish(host, output);
                self.withdraw_waiting(output);
            }
        }
    }

    /// The first host holds its part: now the others are asked.
    fn go_on(&mut self, port: Option<u16>, now: Moment, output: &mut Output) {
        if port.is_none() {
            let why = format!("host `{}` holds no port for rank 0, though one was asked for", self.hosts[0].spec.name);
            self.fail(0, &why, output);
            self.withdraw_waiting(output);
            return;
        }
        self.port = port;
        for other in 1..self.hosts.len() {
            if self.hosts[other].is_waiting {
                self.allocate(other, now, output);
            }
        }
    }

    fn update(&mut self, host: usize, state: ProcState, output: &mut Output) {
        let at = &mut self.hosts[host];
        let (rank, state) = match state {
            ProcState::Created { proc_id, point, pid } => {
                let rank = at.spec.view.get(point.rank());
                let projected = rank.and_then(|rank| Some((rank, self.spec.extent.point_of_rank(rank).ok()?)));
                let Some((rank, point)) = projected else {
                    let why = format!("host `{}` told of {proc_id}, which is not in its part", at.spec.name);
                    return self.fail(host, &why, output);
                };
                if at.procs.contains_key(&proc_id) {
                    return;
                }
                at.has_created = true;
                at.procs.insert(proc_id.clone(), (rank, ProcPhase::Created));
                (Some(rank), ProcState::Created { proc_id, point, pid })
            }
            ProcState::Running { proc_id, mesh_agent, addr } => match at.procs.get_mut(&proc_id) {
                Some((rank, phase @ ProcPhase::Created)) => {
                    *phase = ProcPhase::Running;
                    (Some(*rank), ProcState::Running { proc_id, mesh_agent, addr })
                }
                _ => return,
            },
            ProcState::Stopped { proc_id, reason } => match at.procs.remove(&proc_id) {
                Some((rank, _)) => (Some(rank), ProcState::Stopped { proc_id, reason }),
                None => return,
            },
            ProcState::Failed { world_id, description, not_started } => {
                let description = format!("host `{}` failed: {description}", at.spec.name);
                // Of a rank that is none of its part nothing more is believed than that something failed.
                let not_started =
                    not_started.and_then(|failed| Some(NotStarted { rank: at.spec.view.get(failed.rank)?, ..failed }));
                (None, ProcState::Failed { world_id, description, not_started })
            }
        };
        output.events.push(AllocEvent::State { host, rank, state });
    }

    fn lose(&mut self, host: usize, why: String, output: &mut Output) {
        let at = &self.hosts[host];
        if !at.has_created && !self.is_stopping {
            let name = &at.spec.name;
            let description =
                format!("no process has ever been allocated on `{name}` before the channel is closed: {why}");
            self.fail(host, &description, output);
        }
        output.events.push(AllocEvent::HostLost { host, why });
        self.stop_all_of(host, &ProcStopReason::HostWatchdog, output);
        self.finish(host, output);
        self.withdraw_waiting(output);
    }

    /// Tells of every process of a host as stopped, by rank.
    fn stop_all_of(&mut self, host: usize, reason: &ProcStopReason, output: &mut Output) {
        let mut left: Vec<(usize, ProcId)> =
            self.hosts[host].procs.drain().map(|(proc_id, (rank, _))| (rank, proc_id)).collect();
        left.sort_by_key(|(rank, _)| *rank);
        for (rank, proc_id) in left {
            let state = ProcState::Stopped { proc_id, reason: reason.clone() };
            output.events.push(AllocEvent::State { host, rank: Some(rank), state });
        }
    }

    fn fail(&self, host: usize, description: &str, output: &mut Output) {
        let world_id = WorldId(self.spec.key.as_str().to_owned());
        let state = ProcState::failed(world_id, description);
        output.events.push(AllocEvent::State { host, rank: None, state });
    }

    /// The first host is over, or will tell of no port: nobody is asked any more.
    fn withdraw_waiting(&mut self, output: &mut Output) {
        for host in 1..self.hosts.len() {
            if self.hosts[host].is_waiting {
                self.hosts[host].is_waiting = false;
                self.finish(host, output);
            }
        }
    }

    fn finish(&mut self, host: usize, output: &mut Output) {
        // An allocator tells of each; whatever it forgot is over too.
        self.stop_all_of(host, &ProcStopReason::Unknown, output);
        if !std::mem::replace(&mut self.hosts[host].is_over, true) {
            self.over += 1;
        }
    }
}

#[cfg(test)]
mod tests;
