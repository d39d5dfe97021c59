//! How an allocation leaves: what its ranks left behind, and what outlives a stop.

use super::*;

const INT: i32 = 2;
const GRACE: Duration = Duration::from_secs(30);

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

/// An allocation whose ranks have all been started.
fn running(ranks: usize) -> Allocation {
    let mut allocation = Allocation::new(ranks, at(0));
    assert_eq!(allocation.step(Event::Opened, at(0)), [Order::Start]);
    for rank in 0..ranks {
        assert_eq!(allocation.step(Event::Started(rank), at(1)), []);
    }
    allocation
}

#[test]
fn a_guard_that_does_not_come_up_ends_it() {
    let mut allocation = Allocation::new(1, at(0));
    let deadline = allocation.deadline().unwrap();
    assert_eq!(deadline, at(0).plus(START_PATIENCE));
    assert_eq!(allocation.step(Event::Tick, deadline), [Order::Close]);
}

#[test]
fn what_holds_a_pipe_after_all_ranks_ended_is_waited_for_until_it_is_quiet() {
    let mut allocation = running(1);
    allocation.step(Event::Ended(0), at(1000));
    assert_eq!(allocation.deadline(), Some(at(1000).plus(QUIET)));
    assert_eq!(allocation.step(Event::Output, at(1100)), []);
    assert_eq!(allocation.step(Event::Tick, at(1299)), []);
    assert_eq!(allocation.step(Event::Tick, at(1300)), [Order::StopLeftovers]);
    assert_eq!(allocation.step(Event::Tick, at(1799)), []);
    assert_eq!(allocation.step(Event::Tick, at(1800)), [Order::Kill]);
    assert_eq!(allocation.step(Event::Empty, at(1801)), [Order::Close]);
}

#[test]
fn what_goes_on_writing_is_not_waited_for_for_ever() {
    let mut allocation = running(1);
    allocation.step(Event::Ended(0), at(1000));
    for millis in (1000..3000).step_by(50) {
        assert_eq!(allocation.step(Event::Output, at(millis)), []);
    }
    assert_eq!(allocation.step(Event::Output, at(3000)), [Order::StopLeftovers]);
}

#[test]
fn what_holds_no_pipe_is_ended_when_the_guard_has_settled() {
    let mut allocation = running(1);
    allocation.step(Event::OutputClosed, at(990));
    assert_eq!(allocation.step(Event::Ended(0), at(1000)), []);
    assert_eq!(allocation.deadline(), Some(at(1000).plus(SETTLE)));
    assert_eq!(allocation.step(Event::Tick, at(1020)), [Order::StopLeftovers]);
}

#[test]
fn leftovers_of_a_stop_are_told_once_and_have_the_rest_of_the_grace() {
    let mut allocation = running(1);
    let stop = Event::Stop { signal: INT, grace: GRACE };
    assert_eq!(allocation.step(stop, at(0)), [Order::Stop { signal: INT }]);
    assert_eq!(allocation.step(Event::Ended(0), at(100)), []);
    assert_eq!(allocation.step(Event::Tick, at(120)), [Order::StopLeftovers]);
    assert_eq!(allocation.step(Event::Tick, at(29_999)), []);
    assert_eq!(allocation.step(Event::Tick, at(30_000)), [Order::Kill]);
}

#[test]
fn what_sigkill_does_not_end_is_given_up() {
    let mut allocation = running(2);
    assert_eq!(allocation.step(Event::Kill, at(1)), [Order::Kill]);
    allocation.step(Event::Ended(0), at(2));
    let last = [Order::GiveUp { ranks: vec![1] }, Order::Close];
    assert_eq!(allocation.step(Event::Tick, at(1).plus(KILL_PATIENCE)), last);
}
