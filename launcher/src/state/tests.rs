//! The rules of a run, one by one, and over arbitrary orders of what can happen.

use proptest::prelude::*;

use super::*;
use crate::event::StartStep;

const GRACE: Duration = Duration::from_secs(30);
const INT: i32 = 2;
const TERM: i32 = 15;
const KILL: i32 = 9;

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

fn killed_by(signal: i32) -> End {
    End::Signaled { signal, core: false }
}

/// A run of one host whose ranks have all been started.
fn running(ranks: u32) -> State {
    let mut state = State::new(&[ranks as usize], GRACE);
    for rank in 0..ranks {
        assert_eq!(step(&mut state, Input::Started(Rank(rank)), at(1)), []);
    }
    state
}

#[test]
fn a_rank_that_returns_0_early_stops_nobody() {
    let mut state = running(2);
    assert_eq!(step(&mut state, Input::Ended(Rank(0), End::Exited(0)), at(10)), []);
    assert_eq!(state.deadline(), None);
    assert_eq!(step(&mut state, Input::Ended(Rank(1), End::Exited(0)), at(999_999)), []);
    assert_eq!(step(&mut state, Input::Over, at(999_999)), [Action::Finish(Outcome::Success)]);
}

#[test]
fn the_first_failure_ends_all_and_stays_the_verdict() {
    let mut state = running(3);
    let cause = StopCause::RankFailed(Rank(2));
    let stop = [Action::Stop { cause, signal: TERM }];
    assert_eq!(step(&mut state, Input::Ended(Rank(2), End::Exited(7)), at(10)), stop);
    assert_eq!(step(&mut state, Input::Ended(Rank(0), killed_by(TERM)), at(11)), []);
    assert_eq!(step(&mut state, Input::Ended(Rank(1), End::Exited(1)), at(12)), []);
    let verdict = Outcome::RankFailed { rank: Rank(2), end: End::Exited(7) };
    assert_eq!(step(&mut state, Input::Over, at(13)), [Action::Finish(verdict)]);
}

#[test]
fn a_rank_that_cannot_be_started_is_a_failure() {
    let mut state = State::new(&[1], GRACE);
    let end = End::NotStarted { step: StartStep::Program, errno: 2 };
    let stop = Action::Stop { cause: StopCause::RankFailed(Rank(0)), signal: TERM };
    assert_eq!(step(&mut state, Input::Ended(Rank(0), end), at(1)), [stop]);
    let verdict = Outcome::RankFailed { rank: Rank(0), end };
    assert_eq!(step(&mut state, Input::Over, at(1)), [Action::Finish(verdict)]);
}

#[test]
fn what_outlives_the_grace_is_killed_and_that_kill_is_not_the_cause() {
    let mut state = running(2);
    step(&mut state, Input::Ended(Rank(0), End::Exited(1)), at(10));
    assert_eq!(state.deadline(), Some(at(10).plus(GRACE)));
    assert_eq!(step(&mut state, Input::Tick, at(30_009)), []);
    assert_eq!(step(&mut state, Input::Tick, at(30_010)), [Action::Kill { ranks: vec![Rank(1)] }]);
    step(&mut state, Input::Ended(Rank(1), killed_by(KILL)), at(30_011));
    let verdict = Outcome::RankFailed { rank: Rank(0), end: End::Exited(1) };
    assert_eq!(step(&mut state, Input::Over, at(30_012)), [Action::Finish(verdict)]);
}

#[test]
fn a_signal_is_forwarded_a_second_kills_and_a_third_ends_at_once() {
    let mut state = running(1);
    let verdict = Outcome::Signaled { signal: INT, ranks_ran: true };
    let stop = [Action::Stop { cause: StopCause::Signal(INT), signal: INT }];
    assert_eq!(step(&mut state, Input::Signal(INT), at(10)), stop);
    assert_eq!(step(&mut state, Input::Signal(TERM), at(11)), [Action::Kill { ranks: vec![Rank(0)] }]);
    assert_eq!(step(&mut state, Input::Signal(TERM), at(12)), [Action::Finish(verdict)]);
    assert_eq!(step(&mut state, Input::Signal(TERM), at(13)), []);
}

#[test]
fn a_signal_before_any_rank_ran_says_so() {
    let mut state = State::new(&[4], GRACE);
    let stop = [Action::Stop { cause: StopCause::Signal(TERM), signal: TERM }];
    assert_eq!(step(&mut state, Input::Signal(TERM), at(1)), stop);
    let verdict = Outcome::Signaled { signal: TERM, ranks_ran: false };
    assert_eq!(step(&mut state, Input::Over, at(2)), [Action::Finish(verdict)]);
}

#[test]
fn a_signal_that_overtakes_the_news_of_a_start_still_ended_a_rank() {
    let mut state = State::new(&[1], GRACE);
    step(&mut state, Input::Signal(INT), at(1));
    step(&mut state, Input::Started(Rank(0)), at(2));
    step(&mut state, Input::Ended(Rank(0), killed_by(INT)), at(3));
    let verdict = Outcome::Signaled { signal: INT, ranks_ran: true };
    assert_eq!(step(&mut state, Input::Over, at(4)), [Action::Finish(verdict)]);
}

#[test]
fn a_first_signal_during_a_stop_is_passed_on_without_cutting_the_grace() {
    let mut state = running(2);
    step(&mut state, Input::Ended(Rank(0), End::Exited(1)), at(10));
    assert_eq!(step(&mut state, Input::Signal(TERM), at(20)), [Action::Forward { signal: TERM }]);
    assert_eq!(state.deadline(), Some(at(10).plus(GRACE)));
}

#[test]
fn ranks_that_follow_a_signal_do_not_change_the_verdict() {
    let mut state = running(1);
    step(&mut state, Input::Signal(INT), at(10));
    step(&mut state, Input::Ended(Rank(0), End::Exited(130)), at(11));
    let verdict = Outcome::Signaled { signal: INT, ranks_ran: true };
    assert_eq!(step(&mut state, Input::Over, at(12)), [Action::Finish(verdict)]);
}

#[test]
fn a_lost_host_is_never_a_rank_exit() {
    let mut state = State::new(&[1, 1], GRACE);
    step(&mut state, Input::Started(Rank(0)), at(1));
    step(&mut state, Input::Started(Rank(1)), at(1));
    let stop = [Action::Stop { cause: StopCause::HostLost(HostIndex(1)), signal: TERM }];
    assert_eq!(step(&mut state, Input::HostLost(HostIndex(1)), at(10)), stop);
    step(&mut state, Input::Ended(Rank(1), End::Lost), at(10));
    step(&mut state, Input::Ended(Rank(0), End::Exited(1)), at(11));
    let verdict = Outcome::HostLost { host: HostIndex(1) };
    assert_eq!(step(&mut state, Input::Over, at(12)), [Action::Finish(verdict)]);
}

#[test]
fn a_host_that_is_lost_after_its_ranks_returned_0_costs_nothing() {
    let mut state = running(1);
    step(&mut state, Input::Ended(Rank(0), End::Exited(0)), at(10));
    assert_eq!(step(&mut state, Input::HostLost(HostIndex(0)), at(11)), []);
    assert_eq!(step(&mut state, Input::Over, at(12)), [Action::Finish(Outcome::Success)]);
}

#[test]
fn what_sigkill_does_not_end_is_given_up() {
    let mut state = running(1);
    step(&mut state, Input::Signal(INT), at(0));
    step(&mut state, Input::Signal(INT), at(1));
    let verdict = Outcome::Signaled { signal: INT, ranks_ran: true };
    let last = [Action::GiveUp { ranks: vec![Rank(0)] }, Action::Finish(verdict)];
    assert_eq!(step(&mut state, Input::Tick, at(1).plus(KILL_PATIENCE)), last);
}

const HOSTS: [usize; 3] = [2, 1, 3];

fn any_input() -> impl Strategy<Value = Input> {
    let host = (0..HOSTS.len() + 1).prop_map(HostIndex);
    let rank = (0..8_u32).prop_map(Rank);
    let end = prop_oneof![
        4 => Just(End::Exited(0)),
        1 => any::<u8>().prop_map(End::Exited),
        1 => (1..65).prop_map(killed_by),
        1 => Just(End::NotStarted { step: StartStep::Program, errno: 2 }),
        1 => Just(End::Lost),
    ];
    prop_oneof![
        1 => host.prop_map(Input::HostLost),
        1 => Just(Input::Over),
        6 => rank.clone().prop_map(Input::Started),
        6 => (rank, end).prop_map(|(rank, end)| Input::Ended(rank, end)),
        1 => prop_oneof![Just(1), Just(INT), Just(3), Just(TERM)].prop_map(Input::Signal),
        2 => Just(Input::Tick),
    ]
}

/// What a run did over a list of inputs, with the state's own deadlines kept, until nothing more was put in.
fn history(inputs: &[(Input, u64)]) -> (State, Moment, Vec<Action>) {
    let mut now = at(0);
    let mut state = State::new(&HOSTS, GRACE);
    let mut actions = Vec::new();
    for (input, wait) in inputs {
        let next = now.plus(Duration::from_millis(*wait));
        while let Some(deadline) = state.deadline().filter(|deadline| *deadline <= next) {
            let before = (state.clone(), actions.len());
            now = now.max(deadline);
            actions.extend(step(&mut state, Input::Tick, now));
            assert!(before.0 != state || before.1 != actions.len(), "a deadline passed and nothing came of it");
        }
        now = next;
        actions.extend(step(&mut state, *input, now));
    }
    (state, now, actions)
}

fn count(actions: &[Action], is_one: impl Fn(&Action) -> bool) -> usize {
    actions.iter().filter(|action| is_one(action)).count()
}

proptest! {
    #[test]
    fn whatever_happens_a_run_is_stopped_and_killed_at_most_once_and_nothing_follows_the_end(
        inputs in prop::collection::vec((any_input(), 0..20_000_u64), 0..120)
    ) {
        let (state, _, actions) = history(&inputs);
        let stops = count(&actions, |action| matches!(action, Action::Stop { .. }));
        let kills = count(&actions, |action| matches!(action, Action::Kill { .. }));
        prop_assert!(stops <= 1 && kills <= 1, "{:?}", actions);
        let finish = actions.iter().position(|action| matches!(action, Action::Finish(_)));
        prop_assert_eq!(finish.is_some(), state.is_done());
        if let Some(finish) = finish {
            prop_assert_eq!(finish, actions.len() - 1);
        }
    }

    #[test]
    fn whatever_happened_a_stop_ends_by_its_deadlines_alone(
        inputs in prop::collection::vec((any_input(), 0..2_000_u64), 0..60)
    ) {
        let (mut state, mut now, _) = history(&inputs);
        step(&mut state, Input::Signal(TERM), now);
        for _ in 0..8 {
            let Some(deadline) = state.deadline() else { break };
            now = now.max(deadline);
            step(&mut state, Input::Tick, now);
        }
        prop_assert!(state.is_done());
    }

    #[test]
    fn the_verdict_is_the_cause_of_the_stop(
        inputs in prop::collection::vec((any_input(), 0..2_000_u64), 0..120)
    ) {
        let (_, _, actions) = history(&inputs);
        let cause = actions.iter().find_map(|action| match action {
            Action::Stop { cause, .. } => Some(*cause),
            _ => None,
        });
        if let (Some(cause), Some(Action::Finish(outcome))) = (cause, actions.last()) {
            let told = match *outcome {
                Outcome::RankFailed { rank, end } => {
                    prop_assert!(!end.is_success());
                    Some(StopCause::RankFailed(rank))
                }
                Outcome::Signaled { signal, .. } => Some(StopCause::Signal(signal)),
                Outcome::HostLost { host } => Some(StopCause::HostLost(host)),
                Outcome::Success => None,
            };
            prop_assert_eq!(told, Some(cause));
        }
    }
}
