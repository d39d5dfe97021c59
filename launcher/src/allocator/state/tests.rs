//! The allocator's decisions: each published rule by name, and what holds over every order of events.

use proptest::prelude::*;
use torchlift_schema::control::ClientContext;
use torchlift_schema::extent::{Extent, Slice, View};
use torchlift_schema::launch::OsText;
use torchlift_schema::state::{NotStarted, ProcId, ProcStopReason, StartStep};

use super::*;
use crate::allocator::allocation::STOP;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(15);

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

fn rules() -> Rules {
    Rules {
        incarnation: "i".to_owned(),
        slots: None,
        most_ranks: 4096,
        has_program: true,
        patience: PATIENCE,
        idle_timeout: None,
    }
}

fn state(slots: Option<usize>) -> State {
    State::new(Rules { slots, ..rules() }, at(0))
}

fn asker(name: &str) -> Asker {
    Asker { session: format!("session-{name}"), owner: name.to_owned() }
}

fn key(text: &str) -> AllocKey {
    AllocKey::new(text).unwrap()
}

fn view(ranks: usize) -> View {
    View::from(&Extent::of([("gpu", ranks)]).unwrap())
}

/// What `who` asks for: so many ranks under this key.
fn allocate(of: &str, ranks: usize, change: impl FnOnce(&mut Terms)) -> Asked {
    let mut terms = Terms::new(key(of), "somebody");
    change(&mut terms);
    let bootstrap_addr = ChannelAddr::Caller;
    Asked::Allocate {
        view: view(ranks),
        bootstrap_addr,
        hosts: Vec::new(),
        client_context: None,
        terms: Some(Box::new(terms)),
    }
}

fn ask(state: &mut State, who: &str, message: Asked, now: Moment) -> Vec<Action> {
    state.step(Input::Asked { by: asker(who), message }, now)
}

fn reply(actions: &[Action]) -> &Reply {
    let mut replies = actions.iter().filter_map(|action| match action {
        Action::Reply(reply) => Some(reply),
        _ => None,
    });
    let reply = replies.next().expect("every message is answered");
    assert!(replies.next().is_none(), "and once");
    reply
}

fn told(actions: &[Action]) -> Vec<String> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Record { message, .. } => Some(match message {
            Told::Allocated { world_id, .. } => format!("allocated {world_id}"),
            Told::Update(state) => state.to_string(),
            Told::Done(world) => format!("done {world}"),
            Told::HeartBeat => "heartbeat".to_owned(),
        }),
        _ => None,
    });
    told.collect()
}

/// An allocation whose ranks all run.
fn running(state: &mut State, who: &str, of: &str, ranks: usize) {
    let opened = ask(state, who, allocate(of, ranks, |_| {}), at(0));
    assert!(opened.iter().any(|action| matches!(action, Action::Open { .. })), "{opened:?}");
    let started = state.step(Input::Opened { key: key(of), master_port: None }, at(0));
    assert!(started.contains(&Action::Start { key: key(of) }));
    for rank in 0..ranks {
        state.step(Input::Started { key: key(of), rank, pid: 100 + rank as u32 }, at(0));
    }
}

/// All its ranks end in this way; what is told of it.
fn end(state: &mut State, of: &str, ranks: usize, end: End, now: Moment) -> Vec<String> {
    let mut all = Vec::new();
    for rank in 0..ranks {
        let input = Input::Ended { key: key(of), rank, end, stderr: String::new() };
        all.extend(told(&state.step(input, now)));
    }
    all.extend(told(&state.step(Input::Empty { key: key(of) }, now)));
    all
}

fn not_started(rank: usize) -> NotStarted {
    NotStarted { rank, step: StartStep::Program, errno: 2 }
}

#[test]
fn an_allocation_is_told_from_allocated_to_done() {
    let mut state = state(None);
    let mut all = told(&ask(&mut state, "ada", allocate("k", 2, |_| {}), at(0)));
    all.extend(told(&state.step(Input::Opened { key: key("k"), master_port: Some(29500) }, at(1))));
    for rank in 0..2 {
        all.extend(told(&state.step(Input::Started { key: key("k"), rank, pid: 7 }, at(2))));
    }
    all.extend(end(&mut state, "k", 2, End::Exited(0), at(3)));
    assert_eq!(
        all,
        [
            "allocated i-1",
            "i-1[0]: created at (gpu=0/2) with PID 7",
            "i-1[0]: running at caller:",
            "i-1[1]: created at (gpu=1/2) with PID 7",
            "i-1[1]: running at caller:",
            "i-1[0]: stopped: stopped",
            "i-1[1]: stopped: stopped",
            "done i-1",
        ]
    );
    assert_eq!(state.holders(), []);
}

#[test]
fn what_was_held_comes_with_allocated() {
    let mut state = state(None);
    ask(&mut state, "ada", allocate("k", 1, |_| {}), at(0));
    let actions = state.step(Input::Opened { key: key("k"), master_port: Some(29500) }, at(1));
    let [Action::Record { message: Told::Allocated { view: held, terms: Some(terms), .. }, .. }, ..] =
        actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    assert_eq!((held, terms.master_port, terms.incarnation.as_str()), (&view(1), Some(29500), "i"));
    assert_eq!(terms.alloc_key, key("k"));
}

#[test]
fn a_stop_signals_waits_and_kills() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 2);
    let actions = ask(&mut state, "ada", Asked::Stop, at(10));
    assert_eq!(reply(&actions), &Reply::Stopping { keys: vec![key("k")] });
    assert!(actions.contains(&Action::Stop { key: key("k"), signal: STOP }));
    assert_eq!(state.deadline(), Some(at(10).plus(PATIENCE).min(at(10).plus(GRACE))));
    ask(&mut state, "ada", Asked::HeartBeat, at(29_000));
    assert_eq!(state.step(Input::Tick, at(10).plus(GRACE)), [Action::Kill { key: key("k") }]);
    let ended = end(&mut state, "k", 2, End::Signaled { signal: 9, core: false }, at(30_020));
    // The published reason of a process that had to be made to end.
    assert_eq!(ended, ["i-1[0]: stopped: proc watchdog failure", "i-1[1]: stopped: proc watchdog failure", "done i-1"]);
}

#[test]
fn a_stop_may_have_a_signal_of_its_own_pass_another_on_and_kill_at_once() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 1);
    let with = |signal, grace_ms| Asked::StopWith { signal, grace_ms };
    let held = || Action::Reply(Reply::Stopping { keys: vec![key("k")] });
    let signal = |signal| Action::Stop { key: key("k"), signal };
    assert_eq!(ask(&mut state, "ada", with(Some(2), None), at(10)), [signal(2), held()]);
    assert_eq!(ask(&mut state, "ada", with(Some(15), Some(60_000)), at(20)), [signal(15), held()]);
    ask(&mut state, "ada", Asked::HeartBeat, at(29_000));
    assert_eq!(state.step(Input::Tick, at(30_009)), [], "a later stop does not make it longer");
    assert_eq!(ask(&mut state, "ada", with(None, Some(0)), at(30_009)), [Action::Kill { key: key("k") }, held()]);
}

#[test]
fn the_grace_is_the_clients_where_it_states_one() {
    let mut state = state(None);
    let text = |text: &str| OsText::new(text).unwrap();
    let launch = LaunchSpec::new("run", text("/bin/true"), text("/"), 5_000);
    ask(&mut state, "ada", allocate("k", 1, |terms| terms.launch = Some(launch)), at(0));
    state.step(Input::Opened { key: key("k"), master_port: None }, at(0));
    state.step(Input::Started { key: key("k"), rank: 0, pid: 1 }, at(0));
    ask(&mut state, "ada", Asked::Stop, at(0));
    assert_eq!(state.step(Input::Tick, at(4_999)), []);
    assert_eq!(state.step(Input::Tick, at(5_000)), [Action::Kill { key: key("k") }]);
}

#[test]
fn a_stop_with_nothing_held_and_a_heartbeat_are_answered_and_do_nothing() {
    let mut state = state(None);
    assert_eq!(ask(&mut state, "ada", Asked::Stop, at(0)), [Action::Reply(Reply::Stopping { keys: Vec::new() })]);
    let alive = Reply::Alive { incarnation: "i".to_owned() };
    assert_eq!(ask(&mut state, "ada", Asked::HeartBeat, at(0)), [Action::Reply(alive)]);
}

#[test]
fn a_stop_of_one_client_leaves_the_others_alone() {
    let mut state = state(Some(4));
    running(&mut state, "ada", "a", 2);
    running(&mut state, "bob", "b", 2);
    let actions = ask(&mut state, "bob", Asked::Stop, at(1));
    assert_eq!(reply(&actions), &Reply::Stopping { keys: vec![key("b")] });
    assert!(!actions.iter().any(|action| matches!(action, Action::Stop { key, .. } if key.as_str() == "a")));
}

#[test]
fn an_allocation_that_does_not_fit_is_answered_with_the_holder_and_disturbs_nobody() {
    let mut state = state(None);
    running(&mut state, "ada", "a", 2);
    let actions = ask(&mut state, "bob", allocate("b", 1, |terms| terms.force = true), at(1));
    let Reply::Busy { holders } = reply(&actions) else { panic!("{actions:?}") };
    assert_eq!(holders.iter().map(ToString::to_string).collect::<Vec<_>>(), ["`a` of somebody (ada) (2 ranks)"]);
    assert_eq!(actions.len(), 1, "nothing else: {actions:?}");
}

#[test]
fn several_allocations_are_held_while_there_are_slots() {
    let mut state = state(Some(4));
    running(&mut state, "ada", "a", 2);
    running(&mut state, "bob", "b", 2);
    let actions = ask(&mut state, "eve", allocate("c", 1, |_| {}), at(1));
    assert!(matches!(reply(&actions), Reply::Busy { holders } if holders.len() == 2));
    end(&mut state, "a", 2, End::Exited(0), at(2));
    let actions = ask(&mut state, "eve", allocate("d", 2, |_| {}), at(3));
    assert!(matches!(reply(&actions), Reply::Allocating { .. }));
}

#[test]
fn the_same_owner_replaces_by_force_once_its_client_was_told_of_the_end() {
    let mut state = state(None);
    running(&mut state, "ada", "old", 2);
    let actions = ask(&mut state, "ada", allocate("new", 1, |terms| terms.force = true), at(1));
    assert!(matches!(reply(&actions), Reply::Allocating { .. }));
    assert!(actions.contains(&Action::Stop { key: key("old"), signal: STOP }));
    assert!(!actions.iter().any(|action| matches!(action, Action::Open { .. })));
    let ended = end(&mut state, "old", 2, End::Signaled { signal: 15, core: false }, at(2));
    assert_eq!(ended.last().unwrap(), "done i-1");
    assert_eq!(state.step(Input::Tick, at(3)), [], "nobody has fetched that yet");
    let actions = state.step(Input::Delivered { key: key("old") }, at(4));
    assert!(actions == [Action::Open { key: key("new") }], "{actions:?}");
}

#[test]
fn a_repeated_allocate_starts_nothing_and_a_key_of_another_is_refused() {
    let mut state = state(Some(8));
    running(&mut state, "ada", "k", 2);
    let again = ask(&mut state, "ada", allocate("k", 2, |_| {}), at(1));
    assert_eq!(again, [Action::Reply(Reply::Allocating { key: key("k"), world: WorldId::from("i-1") })]);
    for (who, ranks) in [("bob", 2), ("ada", 3)] {
        let actions = ask(&mut state, who, allocate("k", ranks, |_| {}), at(1));
        assert_eq!(actions, [Action::Reply(Reply::Refused(Refusal::KeyTaken { key: key("k") }))]);
    }
}

#[test]
fn what_can_never_be_had_is_refused_and_costs_nothing() {
    let mut state = State::new(Rules { slots: Some(4), has_program: false, ..rules() }, at(0));
    let refusal = |state: &mut State, message| {
        let actions = ask(state, "ada", message, at(0));
        assert_eq!(actions.len(), 1, "{actions:?}");
        match reply(&actions) {
            Reply::Refused(refusal) => (refusal.code(), refusal.to_string()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(&mut state, allocate("k", 0, |_| {})).0, "allocate-no-ranks");
    assert_eq!(refusal(&mut state, allocate("k", 5, |_| {})).0, "allocate-too-many-ranks");
    assert_eq!(refusal(&mut state, allocate("k", 1, |_| {})).0, "allocate-no-program");
    let huge = View::new(vec!["x".to_owned()], Slice::new(0, vec![(1 << 53) - 1], vec![1]).unwrap()).unwrap();
    let (hosts, client_context) = (Vec::new(), Some(ClientContext { trace_id: "t".to_owned() }));
    let message =
        Asked::Allocate { view: huge, bootstrap_addr: ChannelAddr::Caller, hosts, client_context, terms: None };
    let (code, words) = refusal(&mut state, message);
    assert_eq!(code, "allocate-too-many-ranks");
    assert!(words.contains("9007199254740991 ranks are asked for, and this allocator starts at most 4"), "{words}");
}

#[test]
fn a_client_that_reads_no_replies_is_told_of_a_refusal_at_its_address() {
    let mut state = state(None);
    let bootstrap_addr: ChannelAddr = "unix:@boot".parse().unwrap();
    let (hosts, client_context) = (Vec::new(), None);
    let message =
        Asked::Allocate { view: view(0), bootstrap_addr: bootstrap_addr.clone(), hosts, client_context, terms: None };
    let actions = ask(&mut state, "ada", message, at(0));
    let [Action::Refuse { bootstrap_addr: to, messages }, Action::Reply(_)] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!(*to, bootstrap_addr);
    let [Told::Update(ProcState::Failed { description, .. }), Told::Done(_)] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    assert!(description.contains("has no ranks"), "{description}");
}

#[test]
fn what_cannot_be_opened_fails_once_and_ends() {
    let mut state = state(None);
    ask(&mut state, "ada", allocate("k", 2, |_| {}), at(0));
    let actions =
        state.step(Input::NotOpened { key: key("k"), why: "the hosts file cannot be written".to_owned() }, at(1));
    assert_eq!(told(&actions), ["i-1: failed: the hosts file cannot be written", "done i-1"]);
    assert!(actions.contains(&Action::Close { key: key("k") }));
}

#[test]
fn a_guard_that_does_not_come_up_fails_in_time() {
    let mut state = state(None);
    ask(&mut state, "ada", allocate("k", 1, |terms| terms.lease_ms = Some(100_000)), at(0));
    let actions = state.step(Input::Tick, at(30_000));
    assert_eq!(told(&actions), ["i-1: failed: its guard did not come up in time", "done i-1"]);
}

#[test]
fn a_program_that_is_not_there_fails_once_and_its_ranks_were_never_created() {
    let mut state = state(None);
    ask(&mut state, "ada", allocate("k", 2, |_| {}), at(0));
    state.step(Input::Opened { key: key("k"), master_port: None }, at(0));
    let mut all = Vec::new();
    for rank in 0..2 {
        let why = format!("rank {rank}: `/srv/train` is not there");
        all.extend(told(&state.step(Input::NotStarted { key: key("k"), failed: not_started(rank), why }, at(1))));
    }
    assert_eq!(all, ["i-1: failed: rank 0: `/srv/train` is not there", "done i-1"]);
}

#[test]
fn a_rank_that_fails_stops_nobody_else() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 2);
    let input = Input::Ended { key: key("k"), rank: 0, end: End::Exited(3), stderr: "boom".to_owned() };
    let actions = state.step(input, at(1));
    assert_eq!(told(&actions), ["i-1[0]: stopped: exited with code 3: boom"]);
    assert_eq!(actions.len(), 1, "{actions:?}");
}

#[test]
fn a_lost_guard_is_told_with_every_rank() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 2);
    let told = told(&state.step(Input::GuardLost { key: key("k") }, at(1)));
    assert_eq!(
        told,
        [
            "i-1: failed: its guard is gone, and its ranks with it",
            "i-1[0]: stopped: unknown",
            "i-1[1]: stopped: unknown",
            "done i-1"
        ]
    );
}

#[test]
fn a_client_that_says_nothing_loses_its_ranks_in_time() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 1);
    ask(&mut state, "ada", Asked::HeartBeat, at(10_000));
    assert_eq!(state.step(Input::Tick, at(24_999)), []);
    assert_eq!(state.step(Input::Tick, at(25_000)), [Action::Stop { key: key("k"), signal: STOP }]);
    assert_eq!(state.step(Input::Tick, at(25_500)), [Action::Kill { key: key("k") }]);
    let mut actions = state.step(
        Input::Ended { key: key("k"), rank: 0, end: End::Signaled { signal: 9, core: false }, stderr: String::new() },
        at(25_501),
    );
    actions.extend(state.step(Input::Empty { key: key("k") }, at(25_502)));
    assert!(actions.contains(&Action::Forget { key: key("k") }), "nobody will fetch it: {actions:?}");
}

#[test]
fn a_closed_connection_ends_an_allocation_at_once_and_one_with_a_lease_after_it() {
    let session = || asker("ada").session;
    let mut state = state(None);
    running(&mut state, "ada", "k", 1);
    let actions = state.step(Input::Disconnected { session: session() }, at(100));
    assert_eq!(actions, [Action::Stop { key: key("k"), signal: STOP }]);

    let mut leased = State::new(rules(), at(0));
    ask(&mut leased, "ada", allocate("k", 1, |terms| terms.lease_ms = Some(60_000)), at(0));
    leased.step(Input::Opened { key: key("k"), master_port: None }, at(0));
    leased.step(Input::Started { key: key("k"), rank: 0, pid: 1 }, at(0));
    assert_eq!(leased.step(Input::Disconnected { session: session() }, at(100)), []);
    assert_eq!(leased.step(Input::Tick, at(60_099)), []);
    leased.step(Input::Connected { session: session() }, at(60_099));
    assert_eq!(leased.step(Input::Tick, at(100_000)), [], "it came back in time");
    leased.step(Input::Disconnected { session: session() }, at(100_000));
    assert_eq!(leased.step(Input::Tick, at(160_000)), [Action::Stop { key: key("k"), signal: STOP }]);
}

#[test]
fn a_client_that_is_dialled_is_gone_when_it_cannot_be_told() {
    let mut state = state(None);
    let bootstrap_addr = "unix:@boot".parse().unwrap();
    let message =
        Asked::Allocate { view: view(1), bootstrap_addr, hosts: Vec::new(), client_context: None, terms: None };
    ask(&mut state, "ada", message, at(0));
    state.step(Input::Opened { key: key("i-1"), master_port: None }, at(0));
    state.step(Input::Started { key: key("i-1"), rank: 0, pid: 1 }, at(0));
    assert_eq!(state.step(Input::Disconnected { session: asker("ada").session }, at(1)), []);
    assert_eq!(state.step(Input::Tick, at(1_000_000)), [], "it says nothing, and is told all the same");
    let actions = state.step(Input::Undeliverable { key: key("i-1") }, at(1_000_001));
    assert_eq!(actions, [Action::Stop { key: key("i-1"), signal: STOP }]);
}

#[test]
fn the_idle_timeout_counts_from_the_last_allocation_that_lived() {
    let mut state = State::new(Rules { idle_timeout: Some(Duration::from_secs(60)), ..rules() }, at(0));
    running(&mut state, "ada", "k", 1);
    ask(&mut state, "ada", Asked::HeartBeat, at(70_000 - 56_000));
    // The client vanishes; the published allocator stayed for ever.
    assert_eq!(state.step(Input::Tick, at(29_000)), [Action::Stop { key: key("k"), signal: STOP }]);
    end(&mut state, "k", 1, End::Signaled { signal: 15, core: false }, at(29_100));
    assert_eq!(state.step(Input::Tick, at(89_099)), []);
    assert_eq!(state.step(Input::Tick, at(89_100)), [Action::Exit]);
    let actions = ask(&mut state, "ada", allocate("late", 1, |_| {}), at(89_101));
    assert_eq!(actions, [Action::Reply(Reply::Refused(Refusal::Draining))]);
}

#[test]
fn an_allocator_that_nobody_uses_ends_by_its_timeout() {
    let mut state = State::new(Rules { idle_timeout: Some(Duration::from_secs(60)), ..rules() }, at(0));
    assert_eq!(state.deadline(), Some(at(60_000)));
    assert_eq!(state.step(Input::Tick, at(60_000)), [Action::Exit]);
    assert_eq!(state.deadline(), None);
}

#[test]
fn draining_takes_nothing_new_and_ends_when_all_is_told() {
    let mut state = state(Some(8));
    running(&mut state, "ada", "k", 1);
    assert_eq!(state.step(Input::Terminate, at(1)), [Action::Stop { key: key("k"), signal: STOP }]);
    let actions = ask(&mut state, "bob", allocate("b", 1, |_| {}), at(2));
    assert_eq!(actions, [Action::Reply(Reply::Refused(Refusal::Draining))]);
    end(&mut state, "k", 1, End::Exited(0), at(3));
    assert_eq!(state.step(Input::Delivered { key: key("k") }, at(4)), [Action::Exit]);
}

#[test]
fn draining_does_not_wait_for_a_client_that_fetches_nothing() {
    let mut away = state(None);
    running(&mut away, "ada", "k", 1);
    away.step(Input::Terminate, at(1));
    end(&mut away, "k", 1, End::Exited(0), at(2));
    assert_eq!(away.deadline(), Some(at(2).plus(TELLING)), "it is connected, and may fetch it yet");
    assert_eq!(away.clone().step(Input::Tick, at(2).plus(TELLING)), [Action::Exit]);
    assert_eq!(away.step(Input::Disconnected { session: asker("ada").session }, at(3)), [Action::Exit]);
}

#[test]
fn an_end_that_nobody_fetches_keeps_no_next_allocation_waiting() {
    let mut state = state(None);
    running(&mut state, "ada", "old", 1);
    ask(&mut state, "ada", allocate("new", 1, |terms| terms.force = true), at(1));
    end(&mut state, "old", 1, End::Exited(0), at(2));
    assert_eq!(state.step(Input::Tick, at(2).plus(TELLING - MS)), []);
    assert_eq!(state.step(Input::Tick, at(2).plus(TELLING)), [Action::Open { key: key("new") }]);
}

#[test]
fn a_second_termination_kills() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 1);
    state.step(Input::Terminate, at(1));
    assert_eq!(state.step(Input::Terminate, at(2)), [Action::Kill { key: key("k") }]);
}

#[test]
fn a_record_is_kept_for_a_while_and_not_for_ever() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 1);
    end(&mut state, "k", 1, End::Exited(0), at(0));
    state.step(Input::Delivered { key: key("k") }, at(1));
    assert_eq!(state.step(Input::Tick, at(0).plus(RETENTION - MS)), []);
    assert_eq!(state.step(Input::Tick, at(0).plus(RETENTION)), [Action::Forget { key: key("k") }]);
}

#[test]
fn records_of_many_short_allocations_do_not_pile_up() {
    let mut state = state(None);
    for number in 0..200 {
        let of = format!("k{number}");
        running(&mut state, "ada", &of, 1);
        end(&mut state, &of, 1, End::Exited(0), at(0));
        state.step(Input::Delivered { key: key(&of) }, at(0));
        assert!(state.held.len() <= MOST_OVER, "{}", state.held.len());
    }
}

/// What a host may do next, by number: the model picks from what is possible.
#[derive(Clone, Debug)]
enum Move {
    Ask { who: usize, what: usize, ranks: usize, force: bool },
    Host { which: usize, how: usize },
    Session { who: usize, is_back: bool },
    Deliver(usize),
    Terminate,
    Wait(u64),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => (0..3_usize, 0..6_usize, 0..5_usize, any::<bool>()).prop_map(|(who, what, ranks, force)| Move::Ask { who, what, ranks, force }),
        20 => (any::<usize>(), any::<usize>()).prop_map(|(which, how)| Move::Host { which, how }),
        1 => (0..3_usize, any::<bool>()).prop_map(|(who, is_back)| Move::Session { who, is_back }),
        2 => any::<usize>().prop_map(Move::Deliver),
        1 => Just(Move::Terminate),
        4 => (0..20_000_u64).prop_map(Move::Wait),
    ]
}

/// What the host still owes for each allocation, and what each client was told.
#[derive(Default)]
struct World {
    now: u64,
    opening: Vec<AllocKey>,
    /// By allocation: ranks to start, ranks that run.
    ranks: BTreeMap<AllocKey, (Vec<usize>, Vec<usize>)>,
    records: BTreeMap<AllocKey, Vec<Told>>,
    /// Records of keys that were forgotten and may come again.
    past: Vec<Vec<Told>>,
    views: BTreeMap<AllocKey, usize>,
    is_over: bool,
}

const WHO: [&str; 3] = ["ada", "bob", "eve"];

impl World {
    fn put(&mut self, state: &mut State, input: Input) {
        let is_asked = matches!(input, Input::Asked { .. });
        let mut inputs = vec![input];
        let mut replies = 0;
        while let Some(input) = inputs.pop() {
            for action in state.step(input, at(self.now)) {
                assert!(!self.is_over || matches!(action, Action::Reply(_)), "{action:?} after the end");
                match action {
                    Action::Reply(_) => replies += 1,
                    Action::Refuse { .. } => {}
                    Action::Hold { key, request, .. } => {
                        assert!(self.records.insert(key.clone(), Vec::new()).is_none(), "one record a key");
                        self.views.insert(key, request.view.num_ranks());
                    }
                    Action::Open { key } => {
                        self.ranks.insert(key.clone(), ((0..self.views[&key]).collect(), Vec::new()));
                        self.opening.push(key);
                    }
                    Action::Start { key } => assert!(self.ranks.contains_key(&key)),
                    Action::Stop { ref key, .. } | Action::Kill { ref key } => {
                        let (waiting, _) = self.ranks.get_mut(key).expect("only what was opened is stopped");
                        for rank in std::mem::take(waiting) {
                            inputs.push(Input::Withdrawn { key: key.clone(), rank });
                        }
                    }
                    Action::StopLeftovers { key } => assert!(self.ranks.contains_key(&key)),
                    Action::Close { key } => {
                        self.opening.retain(|open| *open != key);
                        self.ranks.remove(&key);
                    }
                    Action::Record { key, message } => {
                        self.records.get_mut(&key).expect("it was held before").push(message);
                    }
                    Action::Forget { key } => self.past.extend(self.records.remove(&key)),
                    Action::Exit => self.is_over = true,
                }
            }
        }
        assert_eq!(replies, usize::from(is_asked));
    }

    fn host(&mut self, state: &mut State, which: usize, how: usize) {
        if !self.opening.is_empty() && which.is_multiple_of(3) {
            let key = self.opening.remove(which % self.opening.len());
            let input = match how % 5 {
                0 => Input::NotOpened { key, why: "no".to_owned() },
                _ => Input::Opened { key, master_port: None },
            };
            return self.put(state, input);
        }
        let open: Vec<AllocKey> = self.ranks.keys().filter(|key| !self.opening.contains(key)).cloned().collect();
        if open.is_empty() {
            return;
        }
        let key = open[which % open.len()].clone();
        let (waiting, alive) = self.ranks.get_mut(&key).unwrap();
        let input = match how % 12 {
            0..5 if !waiting.is_empty() => {
                let rank = waiting.remove(0);
                if how % 7 == 6 {
                    Input::NotStarted { key, failed: not_started(rank), why: "no".to_owned() }
                } else {
                    alive.push(rank);
                    Input::Started { key, rank, pid: 1 }
                }
            }
            5..10 if !alive.is_empty() => {
                let rank = alive.remove(how % alive.len());
                let end = [End::Exited(0), End::Exited(1), End::Signaled { signal: 9, core: true }][how % 3];
                Input::Ended { key, rank, end, stderr: String::new() }
            }
            10 if alive.is_empty() => Input::Empty { key },
            11 if how.is_multiple_of(5) => Input::GuardLost { key },
            _ => Input::Output { key },
        };
        self.put(state, input);
    }

    fn take(&mut self, state: &mut State, step: &Move) {
        match *step {
            Move::Ask { who, what, ranks, force } => {
                let message = match what {
                    0 => Asked::HeartBeat,
                    1 => Asked::Stop,
                    2 => Asked::StopWith { signal: Some(2), grace_ms: None },
                    3 => Asked::StopWith { signal: None, grace_ms: Some(0) },
                    what => allocate(&format!("k{what}"), ranks, |terms| {
                        terms.force = force;
                        terms.lease_ms = (what == 3).then_some(30_000);
                    }),
                };
                self.put(state, Input::Asked { by: asker(WHO[who]), message });
            }
            Move::Host { which, how } => self.host(state, which, how),
            Move::Session { who, is_back } => {
                let session = asker(WHO[who]).session;
                self.put(state, if is_back { Input::Connected { session } } else { Input::Disconnected { session } });
            }
            Move::Deliver(which) => {
                let keys: Vec<_> = self.records.keys().cloned().collect();
                if let Some(key) = keys.get(which % keys.len().max(1)) {
                    self.put(state, Input::Delivered { key: key.clone() });
                }
            }
            Move::Terminate => self.put(state, Input::Terminate),
            Move::Wait(millis) => self.wait(state, millis),
        }
    }

    /// Lets time pass, with a tick at each deadline on the way.
    fn wait(&mut self, state: &mut State, millis: u64) {
        let until = self.now + millis;
        for _ in 0..10_000 {
            let Some(deadline) = state.deadline().filter(|deadline| *deadline <= at(until)) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(deadline.since(at(0)).as_millis() as u64);
            self.put(state, Input::Tick);
        }
        panic!("deadlines pass and nothing comes of it");
    }

    /// The record of one allocation keeps its order.
    fn check(record: &[Told], is_over: bool) -> Result<(), TestCaseError> {
        let mut created = BTreeMap::new();
        for (index, message) in record.iter().enumerate() {
            match message {
                Told::Allocated { .. } => prop_assert_eq!(index, 0),
                Told::Done(_) => prop_assert_eq!(index, record.len() - 1),
                Told::HeartBeat => {}
                Told::Update(ProcState::Failed { .. }) => {}
                Told::Update(state) => {
                    let Some(ProcId::Ranked(_, rank)) = state.proc_id() else { panic!("ours are ranked") };
                    let wanted = match state {
                        ProcState::Created { .. } => None,
                        ProcState::Running { .. } => Some("created"),
                        _ => Some("running"),
                    };
                    let now = match state {
                        ProcState::Created { .. } => "created",
                        ProcState::Running { .. } => "running",
                        _ => "stopped",
                    };
                    prop_assert_eq!(created.insert(*rank, now), wanted, "{:?}", record);
                }
            }
        }
        let failures =
            record.iter().filter(|message| matches!(message, Told::Update(ProcState::Failed { .. }))).count();
        prop_assert!(failures <= 1);
        if is_over {
            prop_assert!(matches!(record.last(), Some(Told::Done(_))), "{:?}", record);
            prop_assert!(created.values().all(|state| *state == "stopped"), "{:?}", record);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn whatever_happens_no_rank_is_lost_or_told_twice_and_all_ends(
        slots in prop::option::of(1..6_usize),
        moves in prop::collection::vec(any_move(), 0..150),
    ) {
        let mut state = state(slots);
        let mut world = World::default();
        for step in &moves {
            world.take(&mut state, step);
            if let Some(slots) = slots {
                let alive: usize = world.ranks.values().map(|(waiting, alive)| waiting.len() + alive.len()).sum();
                prop_assert!(alive <= slots, "{} ranks on {} slots", alive, slots);
            }
        }
        for record in world.records.values() {
            World::check(record, false)?;
        }
        // The host does what it is told from here on, and every client has gone.
        world.put(&mut state, Input::Terminate);
        for who in WHO {
            world.put(&mut state, Input::Disconnected { session: asker(who).session });
        }
        for _ in 0..60 {
            world.wait(&mut state, 31_000);
        }
        prop_assert!(world.is_over, "{:?}", state);
        prop_assert_eq!(state.holders(), []);
        for record in world.records.values().chain(&world.past) {
            World::check(record, true)?;
        }
    }
}

#[test]
fn reasons_are_those_of_the_ends() {
    let mut state = state(None);
    running(&mut state, "ada", "k", 3);
    let ends = [End::Signaled { signal: 9, core: false }, End::Signaled { signal: 11, core: true }, End::Lost];
    let wanted = [ProcStopReason::Killed(9, false), ProcStopReason::Killed(11, true), ProcStopReason::Unknown];
    for ((rank, end), wanted) in ends.into_iter().enumerate().zip(wanted) {
        let actions = state.step(Input::Ended { key: key("k"), rank, end, stderr: String::new() }, at(1));
        let [Action::Record { message: Told::Update(ProcState::Stopped { reason, .. }), .. }] = actions.as_slice()
        else {
            panic!("{actions:?}")
        };
        assert_eq!(*reason, wanted, "not our SIGKILL is a signal like others");
    }
}
