//! What a run does next: a pure function of what it was, what happened and when.
//!
//! Owns the phases, the deadlines, the escalation and the verdict. Must not read a clock, a file or a process:
//! [`crate::dispatcher`] feeds it and carries out what it says.
//!
//! ```text
//! Starting ─ all hosts ready ─> Running ─ all ranks returned 0 ─> Leaving ──┐
//!     │                            │ first failure, signal, lost host       │ nothing left
//!     │                            v                                        v
//!     │                         Stopping ─ grace over, second signal ─> Killing ─> Done
//!     └ signal, lost host ────────────────────────────────────────────────────────> ┘
//! ```
//!
//! When you change this:
//! - the cause that began the stop is the verdict; nothing that we did ourselves may replace it;
//! - every phase but `Running` has a deadline, or a run could hang;
//! - after `Done` no action may come; the property tests below hold you to these;
//! - a new action needs its arm in `dispatcher`, a new event its sender there.

use std::time::Duration;

use crate::clock::Moment;
use crate::event::{End, HostIndex, Outcome, Rank, StopCause};

/// The first signal to ranks when a failure ends the run, and to what ranks leave behind: SIGTERM.
pub(crate) const STOP_SIGNAL: i32 = nix::libc::SIGTERM;
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

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A host's allocator is up.
    HostReady(HostIndex),
    /// A host's allocator or guard is gone, and with it all that ran there.
    HostLost(HostIndex),
    /// Nothing that was started on this host is alive any more.
    HostEmpty(HostIndex),
    /// A rank runs.
    Started(Rank),
    /// A rank ended, or could not be started.
    Ended(Rank, End),
    /// A rank was not started because the run was being stopped already.
    Withdrawn(Rank),
    /// A rank, or what it left behind, wrote something.
    Output,
    /// Every pipe of every rank is closed.
    OutputClosed,
    /// A signal came to the launcher.
    Signal(i32),
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start every rank, in order.
    Start,
    /// Tell the ranks to end: withdraw those not started yet, send the signal to the others' process groups.
    Stop {
        /// Why.
        cause: StopCause,
        /// The signal.
        signal: i32,
    },
    /// Send this signal to the ranks' process groups, nothing more.
    Forward {
        /// The signal.
        signal: i32,
    },
    /// Send [`STOP_SIGNAL`] to everything that the ranks left behind.
    StopLeftovers,
    /// Send SIGKILL to everything until nothing is left.
    Kill {
        /// Ranks that still run.
        ranks: Vec<Rank>,
    },
    /// SIGKILL did not end these: report it.
    GiveUp {
        /// Ranks that are still there.
        ranks: Vec<Rank>,
    },
    /// The run is over.
    Finish(Outcome),
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting { deadline: Moment },
    Running,
    Leaving { last_output: Moment },
    Stopping { deadline: Moment, are_leftovers_told: bool },
    Killing { deadline: Moment },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankState {
    Waiting,
    Alive,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostState {
    is_ready: bool,
    is_lost: bool,
    /// Whether something that was started there may be alive.
    is_occupied: bool,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    phase: Phase,
    grace: Duration,
    hosts: Vec<HostState>,
    /// By rank: its host and how far it is.
    ranks: Vec<(HostIndex, RankState)>,
    have_ranks_run: bool,
    /// Since when no rank runs.
    over_since: Option<Moment>,
    is_output_closed: bool,
    signals: u32,
    /// The verdict, from the moment that something decided it.
    verdict: Option<Outcome>,
}

impl State {
    /// A run of hosts with this many ranks each, in rank order, whose allocators are being brought up from `now` on.
    pub(crate) fn new(ranks_by_host: &[usize], grace: Duration, now: Moment) -> Self {
        let host = HostState { is_ready: false, is_lost: false, is_occupied: false };
        let ranks = ranks_by_host
            .iter()
            .enumerate()
            .flat_map(|(host, count)| std::iter::repeat_n((HostIndex(host), RankState::Waiting), *count))
            .collect();
        Self {
            phase: Phase::Starting { deadline: now.plus(START_PATIENCE) },
            grace,
            hosts: vec![host; ranks_by_host.len()],
            ranks,
            have_ranks_run: false,
            over_since: None,
            is_output_closed: false,
            signals: 0,
            verdict: None,
        }
    }

    /// When [`step`] wants a [`Input::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Running | Phase::Done => None,
            Phase::Leaving { last_output } => self.leave_at(last_output),
            Phase::Stopping { deadline, are_leftovers_told: false } => {
                Some(self.settled_at().map_or(deadline, |settled| settled.min(deadline)))
            }
            Phase::Starting { deadline } | Phase::Stopping { deadline, .. } | Phase::Killing { deadline } => {
                Some(deadline)
            }
        }
    }

    /// Whether the run is over.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn are_ranks_over(&self) -> bool {
        self.ranks.iter().all(|(_, state)| *state == RankState::Ended)
    }

    fn is_empty(&self) -> bool {
        self.hosts.iter().all(|host| host.is_lost || !host.is_occupied)
    }

    /// When it is certain that what is left was left behind by ranks.
    fn settled_at(&self) -> Option<Moment> {
        self.over_since.map(|since| since.plus(SETTLE))
    }

    /// When what holds the pipes after all ranks returned 0 is not waited for any longer.
    fn leave_at(&self, last_output: Moment) -> Option<Moment> {
        let since = self.over_since?;
        let quiet = last_output.plus(QUIET).min(since.plus(LINGER));
        if self.is_output_closed { self.settled_at() } else { Some(quiet) }
    }

    fn alive(&self) -> Vec<Rank> {
        let alive = |(index, (_, state)): (usize, &(HostIndex, RankState))| {
            (*state == RankState::Alive).then_some(Rank(index as u32))
        };
        self.ranks.iter().enumerate().filter_map(alive).collect()
    }
}

/// Takes one thing that happened into the state, and says what to do about it, in order.
pub(crate) fn step(state: &mut State, input: Input, now: Moment) -> Vec<Action> {
    let mut actions = Vec::new();
    if !state.is_done() {
        note(state, input, now, &mut actions);
        advance(state, now, &mut actions);
    }
    actions
}

/// What the input itself changes.
fn note(state: &mut State, input: Input, now: Moment, actions: &mut Vec<Action>) {
    match input {
        Input::HostReady(host) => {
            if let Some(host) = state.hosts.get_mut(host.0) {
                host.is_ready = true;
            }
        }
        Input::HostLost(host) => lose(state, host, now, actions),
        Input::HostEmpty(host) => {
            if let Some(host) = state.hosts.get_mut(host.0) {
                host.is_occupied = false;
            }
        }
        Input::Started(rank) => {
            if let Some((host, rank)) = state.ranks.get_mut(rank.0 as usize)
                && *rank == RankState::Waiting
            {
                *rank = RankState::Alive;
                state.hosts[host.0].is_occupied = true;
                state.have_ranks_run = true;
            }
        }
        Input::Ended(rank, end) => {
            if settle(state, rank) && !end.is_success() {
                stop(state, StopCause::RankFailed(rank), Outcome::RankFailed { rank, end }, STOP_SIGNAL, now, actions);
            }
        }
        Input::Withdrawn(rank) => {
            settle(state, rank);
        }
        Input::Output => {
            if let Phase::Leaving { last_output } = &mut state.phase {
                *last_output = now;
            }
        }
        Input::OutputClosed => state.is_output_closed = true,
        Input::Signal(signal) => answer(state, signal, now, actions),
        Input::Tick => {}
    }
}

/// Marks a rank as over; says whether that is news.
fn settle(state: &mut State, rank: Rank) -> bool {
    match state.ranks.get_mut(rank.0 as usize) {
        Some((_, state)) if *state != RankState::Ended => {
            *state = RankState::Ended;
            true
        }
        _ => false,
    }
}

fn lose(state: &mut State, host: HostIndex, now: Moment, actions: &mut Vec<Action>) {
    let Some(lost) = state.hosts.get_mut(host.0) else { return };
    if std::mem::replace(&mut lost.is_lost, true) {
        return;
    }
    // A host whose ranks all ended has nothing to lose.
    let is_over = !matches!(state.phase, Phase::Starting { .. })
        && state.ranks.iter().all(|(on, rank)| *on != host || *rank == RankState::Ended);
    for (_, rank) in state.ranks.iter_mut().filter(|(on, _)| *on == host) {
        *rank = RankState::Ended;
    }
    if !is_over {
        stop(state, StopCause::HostLost(host), Outcome::HostLost { host }, STOP_SIGNAL, now, actions);
    }
}

/// Begins to stop, unless something else began it before: then that stays the verdict.
fn stop(state: &mut State, cause: StopCause, verdict: Outcome, signal: i32, now: Moment, actions: &mut Vec<Action>) {
    if state.verdict.is_some() {
        return;
    }
    state.verdict = Some(verdict);
    match state.phase {
        Phase::Starting { .. } => finish(state, actions),
        Phase::Running | Phase::Leaving { .. } => {
            state.phase = Phase::Stopping { deadline: now.plus(state.grace), are_leftovers_told: false };
            actions.push(Action::Stop { cause, signal });
        }
        Phase::Stopping { .. } | Phase::Killing { .. } | Phase::Done => {}
    }
}

fn answer(state: &mut State, signal: i32, now: Moment, actions: &mut Vec<Action>) {
    state.signals += 1;
    match state.signals {
        1 => {
            let is_stopping = state.verdict.is_some();
            let verdict = Outcome::Signaled { signal, ranks_ran: state.have_ranks_run };
            stop(state, StopCause::Signal(signal), verdict, signal, now, actions);
            if is_stopping && matches!(state.phase, Phase::Stopping { .. }) {
                actions.push(Action::Forward { signal });
            }
        }
        2 => kill(state, now, actions),
        // The guards see their sockets close when the run is over, and kill: nothing is waited for any more.
        _ => finish(state, actions),
    }
}

fn kill(state: &mut State, now: Moment, actions: &mut Vec<Action>) {
    if !matches!(state.phase, Phase::Killing { .. } | Phase::Done) {
        state.phase = Phase::Killing { deadline: now.plus(KILL_PATIENCE) };
        actions.push(Action::Kill { ranks: state.alive() });
    }
}

fn finish(state: &mut State, actions: &mut Vec<Action>) {
    if !state.is_done() {
        state.phase = Phase::Done;
        let verdict = match state.verdict {
            None => Outcome::Success,
            // The signal may have overtaken the news of a rank that ran already.
            Some(Outcome::Signaled { signal, .. }) => Outcome::Signaled { signal, ranks_ran: state.have_ranks_run },
            Some(verdict) => verdict,
        };
        actions.push(Action::Finish(verdict));
    }
}

/// What the phase asks for now.
fn advance(state: &mut State, now: Moment, actions: &mut Vec<Action>) {
    if state.are_ranks_over() && state.over_since.is_none() {
        state.over_since = Some(now);
    }
    match state.phase {
        Phase::Starting { deadline } => {
            if let Some(silent) = state.hosts.iter().position(|host| !host.is_ready) {
                if now >= deadline {
                    lose(state, HostIndex(silent), now, actions);
                }
            } else {
                state.phase = Phase::Running;
                actions.push(Action::Start);
                advance(state, now, actions);
            }
        }
        Phase::Running => {
            if state.are_ranks_over() {
                state.phase = Phase::Leaving { last_output: now };
                advance(state, now, actions);
            }
        }
        Phase::Leaving { last_output } => {
            if state.is_empty() {
                finish(state, actions);
            } else if state.leave_at(last_output).is_some_and(|leave| now >= leave) {
                state.verdict = Some(Outcome::Success);
                state.phase = Phase::Stopping { deadline: now.plus(LEFTOVER_GRACE), are_leftovers_told: true };
                actions.push(Action::StopLeftovers);
            }
        }
        Phase::Stopping { deadline, are_leftovers_told } => {
            if state.are_ranks_over() && state.is_empty() {
                finish(state, actions);
            } else if now >= deadline {
                kill(state, now, actions);
            } else if !are_leftovers_told && state.settled_at().is_some_and(|settled| now >= settled) {
                state.phase = Phase::Stopping { deadline, are_leftovers_told: true };
                actions.push(Action::StopLeftovers);
            }
        }
        Phase::Killing { deadline } => {
            if state.are_ranks_over() && state.is_empty() {
                finish(state, actions);
            } else if now >= deadline {
                actions.push(Action::GiveUp { ranks: state.alive() });
                finish(state, actions);
            }
        }
        Phase::Done => {}
    }
}

#[cfg(test)]
mod tests;
