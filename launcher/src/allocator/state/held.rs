//! One allocation with the client that holds it.

use std::collections::BTreeSet;
use std::time::Duration;

use torchlift_schema::ChannelAddr;
use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::Terms;
use torchlift_schema::state::{ActorId, ActorRef, AllocKey, NotStarted, ProcId, ProcState, ProcStopReason, WorldId};

use super::{Action, Asker, GRACE, Holder, LOSS_GRACE, RETENTION, Reply, Request, Rules, TELLING, action_of};
use crate::allocator::allocation::{Allocation, Event, Order, STOP};
use crate::clock::Moment;
use crate::event::End;

/// Who speaks for a process of ours: the allocator itself, under this name.
const AGENT: &str = "allocator";

/// An allocation that is held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) key: AllocKey,
    pub(super) world: WorldId,
    pub(super) asker: Asker,
    /// As the client calls its owner.
    owner: Option<String>,
    pub(super) request: Request,
    lease: Option<Duration>,
    pub(super) number: u64,
    pub(super) allocation: Allocation,
    /// What has to be over, and told, before this one is opened.
    pub(super) waits_for: BTreeSet<AllocKey>,
    pub(super) is_open_asked: bool,
    pub(super) is_connected: bool,
    last_heard: Moment,
    is_client_lost: bool,
    has_failed: bool,
    is_stopped: bool,
    /// Local ranks that were told of as created and not as stopped.
    created: BTreeSet<usize>,
    done_at: Option<Moment>,
    pub(super) is_delivered: bool,
    /// Whether it has not fetched the end of the record in time.
    is_late: bool,
}

impl Held {
    #[expect(clippy::too_many_arguments, reason = "each is a part of what is held, and there is one caller")]
    pub(super) fn new(
        key: AllocKey,
        world: WorldId,
        asker: Asker,
        request: Request,
        terms: Option<&Terms>,
        number: u64,
        waits_for: BTreeSet<AllocKey>,
        now: Moment,
    ) -> Self {
        let allocation = Allocation::new(request.view.num_ranks(), now);
        Self {
            key,
            world,
            asker,
            owner: terms.map(|terms| terms.owner.clone()),
            request,
            lease: terms.and_then(|terms| terms.lease_ms).map(Duration::from_millis),
            number,
            allocation,
            waits_for,
            is_open_asked: false,
            is_connected: true,
            last_heard: now,
            is_client_lost: false,
            has_failed: false,
            is_stopped: false,
            created: BTreeSet::new(),
            done_at: None,
            is_delivered: false,
            is_late: false,
        }
    }

    pub(super) fn holder(&self) -> Holder {
        let owner = match &self.owner {
            Some(name) if *name != self.asker.owner => format!("{name} ({})", self.asker.owner),
            _ => self.asker.owner.clone(),
        };
        Holder::new(self.key.clone(), owner, self.request.view.num_ranks())
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::Allocating { key: self.key.clone(), world: self.world.clone() }
    }

    /// Whether it is over and its client knows, or cannot be told now: nothing that waits for it has to wait longer.
    pub(super) fn is_told(&self) -> bool {
        let is_told = self.is_delivered || self.is_client_lost || self.is_late;
        // One that is dialled is told, or given up, by whoever delivers to it.
        self.done_at.is_some() && (is_told || !self.is_dialled() && !self.is_connected)
    }

    /// Until when a client that is connected is waited for.
    fn telling_until(&self) -> Option<Moment> {
        let done_at = self.done_at?;
        (!self.is_dialled() && !self.is_told()).then(|| done_at.plus(TELLING))
    }

    fn is_dialled(&self) -> bool {
        self.request.bootstrap_addr != ChannelAddr::Caller
    }

    /// When its record may go; none while it lives.
    pub(super) fn forget_at(&self) -> Option<Moment> {
        let done_at = self.done_at?;
        Some(if self.is_client_lost { done_at } else { done_at.plus(RETENTION) })
    }

    pub(super) fn deadline(&self, rules: &Rules) -> Option<Moment> {
        let lost_at = (!self.allocation.is_done()).then(|| self.lost_at(rules)).flatten();
        [self.allocation.deadline(), lost_at, self.telling_until(), self.forget_at()].into_iter().flatten().min()
    }

    /// When its client counts as gone, if nothing more is heard of it; none for one that is dialled, and is gone when it cannot
    /// be told anything.
    fn lost_at(&self, rules: &Rules) -> Option<Moment> {
        if self.is_client_lost || self.is_dialled() {
            return None;
        }
        let patience = if self.is_connected { rules.patience } else { Duration::ZERO };
        Some(self.last_heard.plus(patience.max(self.lease.unwrap_or_default())))
    }

    pub(super) fn heard(&mut self, now: Moment) {
        self.last_heard = now;
    }

    pub(super) fn disconnected(&mut self, now: Moment) {
        // Only now begins what the lease gives it.
        self.last_heard = now;
        self.is_connected = false;
    }

    pub(super) fn open(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.is_open_asked = true;
        // What it waited for cost it none of its own time.
        self.allocation = Allocation::new(self.request.view.num_ranks(), now);
        actions.push(Action::Open { key: self.key.clone() });
    }

    /// Puts an event into its life and carries out what follows.
    pub(super) fn apply(&mut self, event: Event, now: Moment, actions: &mut Vec<Action>) {
        for order in self.allocation.step(event, now) {
            match order {
                Order::GiveUp { ref ranks } => {
                    let count = ranks.len();
                    self.fail(format!("SIGKILL did not end {count} ranks: the kernel holds them"), None, actions);
                    for rank in ranks.clone() {
                        self.tell_stopped(rank, ProcStopReason::Unknown, actions);
                    }
                }
                Order::Close => self.close(now, actions),
                order => actions.extend(action_of(&self.key, order)),
            }
        }
    }

    fn close(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for rank in std::mem::take(&mut self.created) {
            self.tell(ProcState::Stopped { proc_id: self.proc_id(rank), reason: ProcStopReason::Unknown }, actions);
        }
        actions.extend(action_of(&self.key, Order::Close));
        actions.push(Action::Record { key: self.key.clone(), message: Told::Done(self.world.clone()) });
        self.done_at = Some(now);
    }

    pub(super) fn stop(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.is_stopped {
            self.stop_with(None, None, now, actions);
        }
    }

    /// The same in so many words, which a client may say again and again.
    pub(super) fn stop_with(
        &mut self,
        signal: Option<i32>,
        grace: Option<Duration>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        self.is_stopped = true;
        let stated = self.request.launch.as_ref().map_or(GRACE, |launch| Duration::from_millis(launch.grace_ms));
        let grace = grace.unwrap_or(stated);
        let event = if grace.is_zero() { Event::Kill } else { Event::Stop { signal: signal.unwrap_or(STOP), grace } };
        self.apply(event, now, actions);
    }

    /// Its client is gone: nobody is told any more, and its ranks end soon.
    pub(super) fn lose_client(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.is_client_lost, true) {
            self.apply(Event::Stop { signal: STOP, grace: LOSS_GRACE }, now, actions);
        }
    }

    /// What time asks for now.
    pub(super) fn advance(&mut self, rules: &Rules, now: Moment, actions: &mut Vec<Action>) {
        if self.lost_at(rules).is_some_and(|at| now >= at) && !self.allocation.is_done() {
            self.lose_client(now, actions);
        }
        self.is_late |= self.telling_until().is_some_and(|until| now >= until);
        let was_opening = self.allocation.is_opening() && self.is_open_asked;
        if self.allocation.deadline().is_some_and(|at| now >= at) {
            // What waits for others waits as long as they take.
            if self.allocation.is_opening() && !self.is_open_asked {
                self.allocation = Allocation::new(self.request.view.num_ranks(), now);
                return;
            }
            if was_opening {
                self.fail("its guard did not come up in time".to_owned(), None, actions);
            }
            self.apply(Event::Tick, now, actions);
        }
    }

    pub(super) fn started(&mut self, rank: usize, pid: u32, now: Moment, actions: &mut Vec<Action>) {
        let Ok(point) = self.request.view.extent().point_of_rank(rank) else { return };
        if self.allocation.is_done() || !self.created.insert(rank) {
            return;
        }
        let proc_id = self.proc_id(rank);
        self.tell(ProcState::Created { proc_id: proc_id.clone(), point, pid }, actions);
        let mesh_agent = ActorRef::new(ActorId::new(proc_id.clone(), AGENT, 0));
        self.tell(ProcState::Running { proc_id, mesh_agent, addr: ChannelAddr::Caller }, actions);
        self.apply(Event::Started(rank), now, actions);
    }

    pub(super) fn ended(&mut self, rank: usize, end: End, stderr: String, now: Moment, actions: &mut Vec<Action>) {
        let reason = match end {
            End::Exited(0) => ProcStopReason::Stopped,
            End::Exited(code) => ProcStopReason::Exited(i32::from(code), stderr),
            End::Signaled { signal: nix::libc::SIGKILL, .. } if self.allocation.is_killed() => ProcStopReason::Watchdog,
            End::Signaled { signal, core } => ProcStopReason::Killed(signal, core),
            End::NotStarted { .. } | End::Lost => ProcStopReason::Unknown,
        };
        self.tell_stopped(rank, reason, actions);
        self.apply(Event::Ended(rank), now, actions);
    }

    pub(super) fn guard_lost(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.allocation.is_done() {
            self.fail("its guard is gone, and its ranks with it".to_owned(), None, actions);
            self.apply(Event::GuardLost, now, actions);
        }
    }

    /// Told once: what fails after the first failure follows from it, or is in the ranks' own ends.
    pub(super) fn fail(&mut self, description: String, not_started: Option<NotStarted>, actions: &mut Vec<Action>) {
        if self.done_at.is_none() && !std::mem::replace(&mut self.has_failed, true) {
            self.tell(ProcState::Failed { world_id: self.world.clone(), description, not_started }, actions);
        }
    }

    fn tell_stopped(&mut self, rank: usize, reason: ProcStopReason, actions: &mut Vec<Action>) {
        if self.created.remove(&rank) {
            self.tell(ProcState::Stopped { proc_id: self.proc_id(rank), reason }, actions);
        }
    }

    fn tell(&self, state: ProcState, actions: &mut Vec<Action>) {
        actions.push(Action::Record { key: self.key.clone(), message: Told::Update(state) });
    }

    fn proc_id(&self, rank: usize) -> ProcId {
        ProcId::Ranked(self.world.clone(), rank)
    }
}
