//! The life of one allocation on its host: a pure function of what it was, what happened and when.
//!
//! Owns the phases, the deadlines and the escalation from a signal to SIGKILL. Must not know who asked for it or who is told:
//! that is [`super::state`]'s.
//!
//! ```text
//! Opening ─ guard up, port held ─> Running ─ all ranks ended ─> Leaving ──┐
//!     │                               │ a stop                            │ nothing left
//!     │                               v                                   v
//!     │                            Stopping ─ grace over, a kill ─> Killing ─> Done
//!     └ a stop, no guard ────────────────────────────────────────────────────> ┘
//! ```
//!
//! When you change this: every phase but `Running` has a deadline, or a host could be held for ever; after `Done` no order may
//! come; the property tests of [`super::state`] hold you to both.

use std::time::Duration;

use crate::clock::Moment;

/// The first signal to ranks that have to end, where no other is stated, and to what ranks leave behind: SIGTERM.
pub(crate) const STOP: i32 = nix::libc::SIGTERM;
/// Time without output after which what still holds a rank's pipe, after all ranks returned 0, is not waited for.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// The longest that it is waited for when it goes on writing.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL for what ranks leave behind when all returned 0.
pub(crate) const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Time in which a guard's word that nothing is left may still be on its way after that of the last rank's end.
pub(crate) const SETTLE: Duration = Duration::from_millis(20);
/// Time in which every host's allocator must be up.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(30);
/// Time after SIGKILL in which everything must be gone; what is not then hangs inside the kernel.
pub(crate) const KILL_PATIENCE: Duration = Duration::from_secs(30);

/// What happened to an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its guard is up and what it wanted is held.
    Opened,
    /// A rank runs.
    Started(usize),
    /// A rank ended, or could not be started.
    Ended(usize),
    /// A rank was not started because the allocation was being stopped already.
    Withdrawn(usize),
    /// A rank, or what it left behind, wrote something.
    Output,
    /// Every pipe of every rank is closed.
    OutputClosed,
    /// Nothing that was started for it is alive any more.
    Empty,
    /// Its guard is gone, and with it all that ran.
    GuardLost,
    /// It has to end.
    Stop {
        /// The signal that ranks get.
        signal: i32,
        /// How long they have.
        grace: Duration,
    },
    /// It has to end now.
    Kill,
    /// Time passed.
    Tick,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start every rank, in order.
    Start,
    /// Withdraw the ranks that were not started yet, send the signal to the others' process groups.
    Stop {
        /// The signal.
        signal: i32,
    },
    /// Send SIGTERM to everything that the ranks left behind.
    StopLeftovers,
    /// Send SIGKILL to everything until nothing is left.
    Kill,
    /// SIGKILL did not end these: the kernel holds them.
    GiveUp {
        /// Local ranks.
        ranks: Vec<usize>,
    },
    /// It is over: let go of its guard.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening { deadline: Moment },
    Running,
    Leaving { last_output: Moment },
    Stopping { deadline: Moment, are_leftovers_told: bool },
    Killing { deadline: Moment },
    Done,
}

/// How far a rank is, for whoever starts it or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankState {
    /// It was not started.
    Waiting,
    /// It runs.
    Alive,
    /// It ended, or never will be started.
    Ended,
}

/// One allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    phase: Phase,
    ranks: Vec<RankState>,
    /// Whether something that was started may be alive.
    is_occupied: bool,
    /// Since when no rank runs.
    over_since: Option<Moment>,
    is_output_closed: bool,
    is_killed: bool,
}

impl Allocation {
    /// An allocation of this many ranks that is being opened from `now` on.
    pub(crate) fn new(ranks: usize, now: Moment) -> Self {
        Self {
            phase: Phase::Opening { deadline: now.plus(START_PATIENCE) },
            ranks: vec![RankState::Waiting; ranks],
            is_occupied: false,
            over_since: None,
            is_output_closed: false,
            is_killed: false,
        }
    }

    /// When [`Self::step`] wants an [`Event::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Running | Phase::Done => None,
            Phase::Leaving { last_output } => self.leave_at(last_output),
            Phase::Stopping { deadline, are_leftovers_told: false } => {
                Some(self.settled_at().map_or(deadline, |settled| settled.min(deadline)))
            }
            Phase::Opening { deadline } | Phase::Stopping { deadline, .. } | Phase::Killing { deadline } => {
                Some(deadline)
            }
        }
    }

    /// Whether it is over.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether it is still being opened.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::Opening { .. })
    }

    /// Whether its ranks got SIGKILL from us.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Local ranks that run.
    pub(crate) fn alive(&self) -> Vec<usize> {
        let ranks = self.ranks.iter().enumerate();
        ranks.filter(|(_, state)| **state == RankState::Alive).map(|(rank, _)| rank).collect()
    }

    /// Takes one thing that happened, and says what to do about it, in order.
    pub(crate) fn step(&mut self, event: Event, now: Moment) -> Vec<Order> {
        let mut orders = Vec::new();
        if !self.is_done() {
            self.note(event, now, &mut orders);
            self.advance(now, &mut orders);
        }
        orders
    }

    fn note(&mut self, event: Event, now: Moment, orders: &mut Vec<Order>) {
        match event {
            Event::Opened => {
                if self.is_opening() {
                    self.phase = Phase::Running;
                    orders.push(Order::Start);
                }
            }
            Event::Started(rank) => {
                if let Some(rank) = self.ranks.get_mut(rank).filter(|rank| **rank == RankState::Waiting) {
                    *rank = RankState::Alive;
                    self.is_occupied = true;
                }
            }
            Event::Ended(rank) | Event::Withdrawn(rank) => {
                if let Some(rank) = self.ranks.get_mut(rank) {
                    *rank = RankState::Ended;
                }
            }
            Event::Output => {
                if let Phase::Leaving { last_output } = &mut self.phase {
                    *last_output = now;
                }
            }
            Event::OutputClosed => self.is_output_closed = true,
            Event::Empty => self.is_occupied = false,
            Event::GuardLost => {
                self.ranks.fill(RankState::Ended);
                self.is_occupied = false;
                self.close(orders);
            }
            Event::Stop { signal, grace } => self.stop(signal, now.plus(grace), orders),
            Event::Kill => self.kill(now, orders),
            Event::Tick => {}
        }
    }

    fn stop(&mut self, signal: i32, until: Moment, orders: &mut Vec<Order>) {
        match self.phase {
            Phase::Opening { .. } => self.close(orders),
            Phase::Running | Phase::Leaving { .. } => {
                self.phase = Phase::Stopping { deadline: until, are_leftovers_told: false };
                orders.push(Order::Stop { signal });
            }
            // A second stop passes its signal on, and may only shorten the grace.
            Phase::Stopping { deadline, are_leftovers_told } => {
                self.phase = Phase::Stopping { deadline: deadline.min(until), are_leftovers_told };
                orders.push(Order::Stop { signal });
            }
            Phase::Killing { .. } | Phase::Done => {}
        }
    }

    fn kill(&mut self, now: Moment, orders: &mut Vec<Order>) {
        match self.phase {
            Phase::Opening { .. } => self.close(orders),
            Phase::Killing { .. } | Phase::Done => {}
            Phase::Running | Phase::Leaving { .. } | Phase::Stopping { .. } => {
                self.phase = Phase::Killing { deadline: now.plus(KILL_PATIENCE) };
                self.is_killed = true;
                orders.push(Order::Kill);
            }
        }
    }

    fn close(&mut self, orders: &mut Vec<Order>) {
        if !self.is_done() {
            self.phase = Phase::Done;
            orders.push(Order::Close);
        }
    }

    fn are_ranks_over(&self) -> bool {
        self.ranks.iter().all(|rank| *rank == RankState::Ended)
    }

    /// When it is certain that what is left was left behind by ranks.
    fn settled_at(&self) -> Option<Moment> {
        self.over_since.map(|since| since.plus(SETTLE))
    }

    /// When what holds the pipes after all ranks ended is not waited for any longer.
    fn leave_at(&self, last_output: Moment) -> Option<Moment> {
        let since = self.over_since?;
        let quiet = last_output.plus(QUIET).min(since.plus(LINGER));
        if self.is_output_closed { self.settled_at() } else { Some(quiet) }
    }

    /// What the phase asks for now.
    fn advance(&mut self, now: Moment, orders: &mut Vec<Order>) {
        if self.are_ranks_over() && self.over_since.is_none() {
            self.over_since = Some(now);
        }
        let is_over = self.are_ranks_over() && !self.is_occupied;
        match self.phase {
            Phase::Opening { deadline } if now >= deadline => self.close(orders),
            Phase::Opening { .. } | Phase::Done => {}
            Phase::Running => {
                if self.are_ranks_over() {
                    self.phase = Phase::Leaving { last_output: now };
                    self.advance(now, orders);
                }
            }
            Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killing { .. } if is_over => self.close(orders),
            Phase::Leaving { last_output } => {
                if self.leave_at(last_output).is_some_and(|leave| now >= leave) {
                    self.phase = Phase::Stopping { deadline: now.plus(LEFTOVER_GRACE), are_leftovers_told: true };
                    orders.push(Order::StopLeftovers);
                }
            }
            Phase::Stopping { deadline, .. } if now >= deadline => self.kill(now, orders),
            Phase::Stopping { deadline, are_leftovers_told: false } => {
                if self.settled_at().is_some_and(|settled| now >= settled) {
                    self.phase = Phase::Stopping { deadline, are_leftovers_told: true };
                    orders.push(Order::StopLeftovers);
                }
            }
            Phase::Stopping { .. } => {}
            Phase::Killing { deadline } => {
                if now >= deadline {
                    orders.push(Order::GiveUp { ranks: self.alive() });
                    self.close(orders);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
