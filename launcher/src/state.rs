//! What a run does next: a pure function of what it was, what happened and when.
//!
//! Owns the verdict, and when everything is told to end. How a host's ranks end, and what they leave behind, is the matter of
//! each host's allocator ([`crate::allocator::allocation`]). Must not read a clock, a file or a process: [`crate::dispatcher`]
//! feeds it and carries out what it says.
//!
//! ```text
//! Running ─ first failure, signal, lost host ─> Stopping ─ grace over, second signal ─> Killing ─┐
//!    │                                              │                                             │ every host is over,
//!    └──────────────────────────────────────────────┴─────────────────────────────────────────────┴─> Done
//! ```
//!
//! When you change this:
//! - the cause that began the stop is the verdict; nothing that we did ourselves may replace it;
//! - a stop has a deadline, or a run could hang; while ranks run, their allocators have theirs;
//! - after `Done` no action may come; the property tests below hold you to these;
//! - a new action needs its arm in `dispatcher`, a new input its sender there.

use std::time::Duration;

use crate::allocator::allocation::{KILL_PATIENCE, RankState, STOP};
use crate::clock::Moment;
use crate::event::{End, HostIndex, Outcome, Rank, StopCause};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A host is lost, or cannot do its part.
    HostLost(HostIndex),
    /// Nothing more comes of any host.
    Over,
    /// A rank runs.
    Started(Rank),
    /// A rank ended, or could not be started.
    Ended(Rank, End),
    /// A signal came to the launcher.
    Signal(i32),
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell every host to end its ranks, with this signal first.
    Stop {
        /// Why.
        cause: StopCause,
        /// The signal.
        signal: i32,
    },
    /// Send this signal to the ranks, nothing more.
    Forward {
        /// The signal.
        signal: i32,
    },
    /// Tell every host to end everything with SIGKILL.
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
    Running,
    Stopping { deadline: Moment },
    Killing { deadline: Moment },
    Done,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    phase: Phase,
    grace: Duration,
    /// By rank: its host and how far it is.
    ranks: Vec<(HostIndex, RankState)>,
    have_ranks_run: bool,
    signals: u32,
    /// The verdict, from the moment that something decided it.
    verdict: Option<Outcome>,
}

impl State {
    /// A run of hosts with this many ranks each, in rank order.
    pub(crate) fn new(ranks_by_host: &[usize], grace: Duration) -> Self {
        let ranks = ranks_by_host
            .iter()
            .enumerate()
            .flat_map(|(host, count)| std::iter::repeat_n((HostIndex(host), RankState::Waiting), *count))
            .collect();
        Self { phase: Phase::Running, grace, ranks, have_ranks_run: false, signals: 0, verdict: None }
    }

    /// When [`step`] wants an [`Input::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Running | Phase::Done => None,
            Phase::Stopping { deadline } | Phase::Killing { deadline } => Some(deadline),
        }
    }

    /// Whether the run is over.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether any rank has run.
    pub(crate) fn have_ranks_run(&self) -> bool {
        self.have_ranks_run
    }

    fn alive(&self) -> Vec<Rank> {
        let ranks = self.ranks.iter().enumerate();
        ranks.filter(|(_, (_, rank))| *rank == RankState::Alive).map(|(index, _)| Rank(index as u32)).collect()
    }
}

/// Takes one thing that happened, and says what to do about it, in order.
pub(crate) fn step(state: &mut State, input: Input, now: Moment) -> Vec<Action> {
    let mut actions = Vec::new();
    if !state.is_done() {
        note(state, input, now, &mut actions);
        advance(state, now, &mut actions);
    }
    actions
}

fn note(state: &mut State, input: Input, now: Moment, actions: &mut Vec<Action>) {
    match input {
        Input::HostLost(host) => {
            // A host whose ranks all ended has nothing to lose.
            let is_over = state.ranks.iter().all(|(on, rank)| *on != host || *rank == RankState::Ended);
            if !is_over {
                stop(state, StopCause::HostLost(host), Outcome::HostLost { host }, STOP, now, actions);
            }
        }
        Input::Over => finish(state, actions),
        Input::Started(rank) => {
            if let Some((_, rank)) = state.ranks.get_mut(rank.0 as usize)
                && *rank == RankState::Waiting
            {
                *rank = RankState::Alive;
                state.have_ranks_run = true;
            }
        }
        Input::Ended(rank, end) => {
            let is_news = match state.ranks.get_mut(rank.0 as usize) {
                Some((_, of)) => std::mem::replace(of, RankState::Ended) != RankState::Ended,
                None => false,
            };
            if is_news && !end.is_success() {
                stop(state, StopCause::RankFailed(rank), Outcome::RankFailed { rank, end }, STOP, now, actions);
            }
        }
        Input::Signal(signal) => answer(state, signal, now, actions),
        Input::Tick => {}
    }
}

/// Begins to stop, unless something else began it before: then that stays the verdict.
fn stop(state: &mut State, cause: StopCause, verdict: Outcome, signal: i32, now: Moment, actions: &mut Vec<Action>) {
    if state.verdict.is_none() && state.phase == Phase::Running {
        state.verdict = Some(verdict);
        state.phase = Phase::Stopping { deadline: now.plus(state.grace) };
        actions.push(Action::Stop { cause, signal });
    }
}

fn answer(state: &mut State, signal: i32, now: Moment, actions: &mut Vec<Action>) {
    state.signals += 1;
    match state.signals {
        1 if matches!(state.phase, Phase::Stopping { .. }) => actions.push(Action::Forward { signal }),
        1 => {
            let verdict = Outcome::Signaled { signal, ranks_ran: state.have_ranks_run };
            stop(state, StopCause::Signal(signal), verdict, signal, now, actions);
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
    match state.phase {
        Phase::Stopping { deadline } if now >= deadline => kill(state, now, actions),
        Phase::Killing { deadline } if now >= deadline => {
            actions.push(Action::GiveUp { ranks: state.alive() });
            finish(state, actions);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
