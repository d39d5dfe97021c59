//! What an allocator does next: a pure function of what it holds, what happened and when.
//!
//! Owns who holds what, what each client is told and in which order, and when the allocator itself ends. Must not read a clock, a
//! file or a process, nor know how a message travels: [`super::server`] feeds it and carries out what it says.
//!
//! The published allocator held one allocation, let any client replace any other's, and told nobody when something failed.
//! Here an allocation that does not fit is answered and disturbs nobody; every failure is a message; a client that is gone
//! loses its ranks and nothing else.
//!
//! When you change this:
//! - each `Asked` is answered by exactly one `Reply`;
//! - the record of an allocation is `Allocated` at most once and first, then updates, then `Done` exactly once and last;
//! - each rank that was `Created` is `Stopped` once, before `Done`;
//! - the property tests hold you to these, over every order of events.

mod held;
mod reply;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::{Holder, RemoteProcessAllocatorMessage as Asked, Terms};
use torchlift_schema::launch::LaunchSpec;
use torchlift_schema::state::{AllocKey, AllocatedTerms, NotStarted, ProcState, WorldId};
use torchlift_schema::{ChannelAddr, View};

use super::allocation::{Event, Order};
use crate::clock::Moment;
use crate::event::End;
use held::Held;

pub(crate) use reply::{Refusal, Reply};

/// Time between SIGTERM and SIGKILL for the ranks of a client that is gone.
pub(crate) const LOSS_GRACE: Duration = Duration::from_millis(500);
/// Time between SIGTERM and SIGKILL where the client states none.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// How long a client that is connected may take to fetch the end of a record before nobody waits for it any more.
pub(crate) const TELLING: Duration = Duration::from_secs(5);
/// How long an allocation that is over is kept for a client that has not fetched its record.
pub(crate) const RETENTION: Duration = Duration::from_secs(600);
/// Allocations that are over and kept, at most: the oldest goes first.
const MOST_OVER: usize = 64;

/// What an allocator was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Which life this is: another one after each start.
    pub(crate) incarnation: String,
    /// How many ranks it starts at once; none: one allocation of any size, as the published allocator did.
    pub(crate) slots: Option<usize>,
    /// Ranks that one allocation may have, whatever the capacity: more is a mistake, and costs nothing this way.
    pub(crate) most_ranks: usize,
    /// Whether it has a program of its own for allocations that name none.
    pub(crate) has_program: bool,
    /// Silence after which a client counts as gone.
    pub(crate) patience: Duration,
    /// How long it serves without an allocation; none: for ever.
    pub(crate) idle_timeout: Option<Duration>,
}

/// Who asks: the session that its messages are ordered in, and who stands behind it, as far as the connection proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) session: String,
    pub(crate) owner: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A message came; its repeats do not get here.
    Asked { by: Asker, message: Asked },
    /// What an allocation needs is there: its hosts file, its guard, the port that it wanted.
    Opened { key: AllocKey, master_port: Option<u16> },
    /// It is not.
    NotOpened { key: AllocKey, why: String },
    /// A rank runs.
    Started { key: AllocKey, rank: usize, pid: u32 },
    /// A rank could not be started.
    NotStarted { key: AllocKey, failed: NotStarted, why: String },
    /// A rank was not handed over yet, and will not be.
    Withdrawn { key: AllocKey, rank: usize },
    /// A rank ended; `stderr` is the end of what it wrote there.
    Ended { key: AllocKey, rank: usize, end: End, stderr: String },
    /// A rank, or what it left behind, wrote something.
    Output { key: AllocKey },
    /// All pipes of an allocation are closed.
    OutputClosed { key: AllocKey },
    /// Nothing that was started for it is alive.
    Empty { key: AllocKey },
    /// Its guard is gone.
    GuardLost { key: AllocKey },
    /// A session has a connection again.
    Connected { session: String },
    /// A session's last connection closed.
    Disconnected { session: String },
    /// A client cannot be told what becomes of its allocation.
    Undeliverable { key: AllocKey },
    /// A client has the whole record.
    Delivered { key: AllocKey },
    /// The allocator is to end.
    Terminate,
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// The answer to the message that was put in.
    Reply(Reply),
    /// Tell an address that was never given an allocation why, though nobody holds one.
    Refuse { bootstrap_addr: ChannelAddr, messages: Vec<Told> },
    /// Begin a record for an allocation that this owner holds from now on.
    Hold { key: AllocKey, owner: String, world: WorldId, request: Box<Request> },
    /// Get what it needs: hosts file, guard, port.
    Open { key: AllocKey },
    /// Start all its ranks.
    Start { key: AllocKey },
    /// Withdraw the ranks that were not handed over, send the signal to the others' process groups.
    Stop { key: AllocKey, signal: i32 },
    /// Send SIGTERM to all that its ranks left behind.
    StopLeftovers { key: AllocKey },
    /// Withdraw the ranks that were not handed over, SIGKILL for all of it.
    Kill { key: AllocKey },
    /// Let go of its guard and its port.
    Close { key: AllocKey },
    /// Append to its record.
    Record { key: AllocKey, message: Told },
    /// Its record is needed no more.
    Forget { key: AllocKey },
    /// The allocator is done.
    Exit,
}

/// What an allocation was asked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) view: View,
    pub(crate) bootstrap_addr: ChannelAddr,
    pub(crate) hosts: Vec<String>,
    pub(crate) trace_id: Option<String>,
    pub(crate) launch: Option<LaunchSpec>,
}

/// An allocator.
#[derive(Clone, Debug)]
pub(crate) struct State {
    rules: Rules,
    held: BTreeMap<AllocKey, Held>,
    /// The order in which they came: for worlds, and for which goes first.
    count: u64,
    /// Since when it holds nothing that lives.
    idle_since: Option<Moment>,
    is_draining: bool,
    is_over: bool,
}

impl State {
    /// An allocator that holds nothing.
    pub(crate) fn new(rules: Rules, now: Moment) -> Self {
        Self { rules, held: BTreeMap::new(), count: 0, idle_since: Some(now), is_draining: false, is_over: false }
    }

    /// When [`Self::step`] wants an [`Input::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let idle = self.rules.idle_timeout.and_then(|timeout| Some(self.idle_since?.plus(timeout)));
        let held = self.held.values().filter_map(|held| held.deadline(&self.rules));
        if self.is_over { None } else { held.chain(idle).min() }
    }

    /// What lives here, for people and machines.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.held.values().filter(|held| !held.allocation.is_done()).map(Held::holder).collect()
    }

    /// Takes one thing that happened, and says what to do about it, in order.
    pub(crate) fn step(&mut self, input: Input, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_over {
            if let Input::Asked { .. } = input {
                actions.push(Action::Reply(Reply::Refused(Refusal::Draining)));
            }
            return actions;
        }
        self.note(input, now, &mut actions);
        self.advance(now, &mut actions);
        actions
    }

    fn note(&mut self, input: Input, now: Moment, actions: &mut Vec<Action>) {
        match input {
            Input::Asked { by, message } => self.answer(by, message, now, actions),
            Input::Opened { key, master_port } => {
                if let Some(held) =
                    self.held.get_mut(&key).filter(|held| held.is_open_asked && held.allocation.is_opening())
                {
                    let mut terms = AllocatedTerms::new(key.clone(), self.rules.incarnation.clone());
                    terms.master_port = master_port;
                    let (world_id, view) = (held.world.clone(), held.request.view.clone());
                    let message = Told::Allocated { world_id, view, terms: Some(Box::new(terms)) };
                    actions.push(Action::Record { key: key.clone(), message });
                    held.apply(Event::Opened, now, actions);
                }
            }
            Input::NotOpened { key, why } => {
                if let Some(held) = self.held.get_mut(&key).filter(|held| held.allocation.is_opening()) {
                    held.fail(why, None, actions);
                    held.apply(Event::Kill, now, actions);
                }
            }
            Input::Started { key, rank, pid } => self.with(&key, |held| held.started(rank, pid, now, actions)),
            Input::NotStarted { key, failed, why } => self.with(&key, |held| {
                held.fail(why, Some(failed), actions);
                held.apply(Event::Ended(failed.rank), now, actions);
            }),
            Input::Withdrawn { key, rank } => {
                self.with(&key, |held| held.apply(Event::Withdrawn(rank), now, actions));
            }
            Input::Ended { key, rank, end, stderr } => {
                self.with(&key, |held| held.ended(rank, end, stderr, now, actions))
            }
            Input::Output { key } => self.with(&key, |held| held.apply(Event::Output, now, actions)),
            Input::OutputClosed { key } => self.with(&key, |held| held.apply(Event::OutputClosed, now, actions)),
            Input::Empty { key } => self.with(&key, |held| held.apply(Event::Empty, now, actions)),
            Input::GuardLost { key } => self.with(&key, |held| held.guard_lost(now, actions)),
            Input::Connected { session } => {
                for held in self.of_session(&session) {
                    held.heard(now);
                    held.is_connected = true;
                }
            }
            Input::Disconnected { session } => {
                for held in self.of_session(&session) {
                    held.disconnected(now);
                }
            }
            Input::Undeliverable { key } => self.with(&key, |held| held.lose_client(now, actions)),
            Input::Delivered { key } => self.with(&key, |held| held.is_delivered = held.allocation.is_done()),
            Input::Terminate => self.drain(now, actions),
            Input::Tick => {}
        }
    }

    fn with(&mut self, key: &AllocKey, act: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held.get_mut(key) {
            act(held);
        }
    }

    fn of_session<'a>(&'a mut self, session: &'a str) -> impl Iterator<Item = &'a mut Held> {
        self.held.values_mut().filter(move |held| held.asker.session == session)
    }

    fn answer(&mut self, by: Asker, message: Asked, now: Moment, actions: &mut Vec<Action>) {
        for held in self.of_session(&by.session) {
            held.heard(now);
        }
        let reply = match message {
            Asked::HeartBeat => Reply::Alive { incarnation: self.rules.incarnation.clone() },
            Asked::Stop => self.stop(&by, |held| held.stop(now, actions)),
            Asked::StopWith { signal, grace_ms } => {
                let grace = grace_ms.map(Duration::from_millis);
                self.stop(&by, |held| held.stop_with(signal, grace, now, actions))
            }
            Asked::Allocate { view, bootstrap_addr, hosts, client_context, terms } => {
                let trace_id = client_context.map(|context| context.trace_id);
                let launch = terms.as_ref().and_then(|terms| terms.launch.clone());
                let request = Request { view, bootstrap_addr, hosts, trace_id, launch };
                self.allocate(by, request, terms.as_deref(), now, actions)
            }
        };
        actions.push(Action::Reply(reply));
    }

    fn stop(&mut self, by: &Asker, mut act: impl FnMut(&mut Held)) -> Reply {
        let mut keys = Vec::new();
        for held in self.of_session(&by.session).filter(|held| !held.allocation.is_done()) {
            keys.push(held.key.clone());
            act(held);
        }
        Reply::Stopping { keys }
    }

    fn allocate(
        &mut self,
        by: Asker,
        request: Request,
        terms: Option<&Terms>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Reply {
        let key = terms.map(|terms| terms.alloc_key.clone());
        if let Some(held) = key.as_ref().and_then(|key| self.held.get(key)) {
            let is_same = held.asker.owner == by.owner && held.request == request;
            return if is_same { held.reply() } else { Reply::Refused(Refusal::KeyTaken { key: held.key.clone() }) };
        }
        let world = WorldId(format!("{}-{}", self.rules.incarnation, self.count + 1));
        let before = match self.look(&by, &request, terms) {
            Ok(before) => before,
            Err(reply) => {
                // Whoever waits at an address of its own does not read replies.
                if request.bootstrap_addr != ChannelAddr::Caller {
                    let failed = ProcState::failed(world.clone(), reply.to_string());
                    let messages = vec![Told::Update(failed), Told::Done(world)];
                    actions.push(Action::Refuse { bootstrap_addr: request.bootstrap_addr, messages });
                }
                return reply;
            }
        };
        self.count += 1;
        let key =
            key.unwrap_or_else(|| AllocKey::new(world.0.clone()).expect("an incarnation and a number make a key"));
        for replaced in &before {
            self.with(replaced, |held| held.stop(now, actions));
        }
        let (owner, of) = (by.owner.clone(), world.clone());
        actions.push(Action::Hold { key: key.clone(), owner, world: of, request: Box::new(request.clone()) });
        let held = Held::new(key.clone(), world, by, request, terms, self.count, before, now);
        let reply = held.reply();
        self.held.insert(key, held);
        self.idle_since = None;
        reply
    }

    /// Whether an allocation can be had; if so, what has to go first.
    fn look(&self, by: &Asker, request: &Request, terms: Option<&Terms>) -> Result<BTreeSet<AllocKey>, Reply> {
        let ranks = request.view.num_ranks();
        let most = self.rules.slots.unwrap_or(usize::MAX).min(self.rules.most_ranks);
        let refused = |refusal| Err(Reply::Refused(refusal));
        if self.is_draining {
            return refused(Refusal::Draining);
        }
        if ranks == 0 {
            return refused(Refusal::NoRanks { extent: request.view.extent() });
        }
        if ranks > most {
            return refused(Refusal::TooManyRanks { ranks, most });
        }
        if request.launch.is_none() && !self.rules.has_program {
            return refused(Refusal::NoProgram);
        }
        let living: Vec<&Held> = self.held.values().filter(|held| !held.allocation.is_done()).collect();
        let taken: usize = living.iter().map(|held| held.request.view.num_ranks()).sum();
        let does_fit = match self.rules.slots {
            Some(slots) => taken + ranks <= slots,
            None => living.is_empty(),
        };
        if does_fit {
            return Ok(BTreeSet::new());
        }
        let own: BTreeSet<AllocKey> =
            living.iter().filter(|held| held.asker.owner == by.owner).map(|held| held.key.clone()).collect();
        let others: usize =
            living.iter().filter(|held| held.asker.owner != by.owner).map(|held| held.request.view.num_ranks()).sum();
        let would_fit = match self.rules.slots {
            Some(slots) => others + ranks <= slots,
            None => own.len() == living.len(),
        };
        if terms.is_some_and(|terms| terms.force) && would_fit {
            return Ok(own);
        }
        Err(Reply::Busy { holders: living.into_iter().map(Held::holder).collect() })
    }

    fn drain(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let is_again = std::mem::replace(&mut self.is_draining, true);
        for held in self.held.values_mut() {
            if is_again {
                held.apply(Event::Kill, now, actions);
            } else {
                held.stop(now, actions);
            }
        }
    }

    fn advance(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for held in self.held.values_mut() {
            held.advance(&self.rules, now, actions);
        }
        self.open_next(now, actions);
        self.forget(now, actions);
        let is_idle = self.held.values().all(|held| held.allocation.is_done());
        if !is_idle {
            self.idle_since = None;
        } else if self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        let is_too_idle = match (self.idle_since, self.rules.idle_timeout) {
            (Some(since), Some(timeout)) => now >= since.plus(timeout),
            _ => false,
        };
        let is_drained = self.is_draining && is_idle && self.held.values().all(Held::is_told);
        if is_drained || is_too_idle {
            self.is_over = true;
            actions.push(Action::Exit);
        }
    }

    /// Opens what waits for nobody any more.
    fn open_next(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.held.values().all(|held| held.is_open_asked) {
            return;
        }
        let in_the_way: BTreeSet<AllocKey> =
            self.held.values().filter(|held| !held.is_told()).map(|held| held.key.clone()).collect();
        for held in self.held.values_mut() {
            held.waits_for.retain(|key| in_the_way.contains(key));
            if held.waits_for.is_empty() && !held.is_open_asked && held.allocation.is_opening() {
                held.open(now, actions);
            }
        }
    }

    /// Lets go of records that are not needed any more.
    fn forget(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let mut over: Vec<(u64, AllocKey)> = self
            .held
            .values()
            .filter(|held| held.allocation.is_done())
            .map(|held| (held.number, held.key.clone()))
            .collect();
        over.sort();
        let surplus = over.len().saturating_sub(MOST_OVER);
        let is_old = |held: &Held| held.forget_at().is_some_and(|at| now >= at);
        let gone: Vec<AllocKey> = over
            .into_iter()
            .enumerate()
            .filter(|(index, (_, key))| *index < surplus || self.held.get(key).is_some_and(is_old))
            .map(|(_, (_, key))| key)
            .collect();
        for key in gone {
            self.held.remove(&key);
            actions.push(Action::Forget { key });
        }
    }
}

/// What an order of an allocation is to whoever carries it out.
fn action_of(key: &AllocKey, order: Order) -> Option<Action> {
    let key = key.clone();
    match order {
        Order::Start => Some(Action::Start { key }),
        Order::Stop { signal } => Some(Action::Stop { key, signal }),
        Order::StopLeftovers => Some(Action::StopLeftovers { key }),
        Order::Kill => Some(Action::Kill { key }),
        Order::Close => Some(Action::Close { key }),
        Order::GiveUp { .. } => None,
    }
}

#[cfg(test)]
mod tests;
