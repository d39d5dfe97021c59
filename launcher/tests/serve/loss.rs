//! Who is gone, and what becomes of the ranks then.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::allocator::{PATIENT, allocate, is_any_process, launch, setup, wait_until};

#[test]
fn a_client_whose_connection_closes_loses_its_ranks_at_once_and_nothing_else() {
    let allocator = setup().args(&["--slots", "8"]).start();
    let terms =
        |word: &str| json!({ "launch": launch(&format!("trap '' TERM; sleep {word} & sleep {word}; :"), 30_000) });
    let mut stays = allocator.follow_after("stays", &allocate("stays", 2, terms("600.0101")), "stays");
    let mut goes = allocator.follow_after("goes", &allocate("goes", 2, terms("600.0202")), "goes");
    stays.take(5);
    goes.take(5);
    goes.close();
    wait_until("the ranks of the one that went are gone", || !is_any_process("600.0202"));
    wait_until("it is not held any more", || allocator.held() == ["stays"]);
    assert!(is_any_process("600.0101"));
}

#[test]
fn an_allocation_with_a_lease_outlives_a_connection_and_its_record_goes_on() {
    let allocator = setup().program(PATIENT).start();
    let message = allocate("k", 1, json!({ "lease_ms": 60_000 }));
    let mut events = allocator.follow_after("s", &message, "k");
    assert_eq!(events.take(3), ["allocated", "created 0", "running 0"]);
    allocator.wait_until_ready("k", 1);
    events.close();
    let mut again = allocator.follow("s", "k", 3);
    allocator.control("s", &json!("Stop"));
    assert_eq!(again.rest(), [r#"stopped 0: "Stopped""#, "done"]);
}

#[test]
fn a_lease_that_runs_out_ends_the_allocation() {
    let allocator = setup().program("exec sleep 600").start();
    let message = allocate("k", 1, json!({ "lease_ms": 300 }));
    allocator.follow_after("s", &message, "k").take(3);
    wait_until("the lease has run out", || allocator.held().is_empty());
}

#[test]
fn a_client_that_says_nothing_in_time_is_gone_though_its_connection_is_open() {
    let allocator = setup().program("exec sleep 600").args(&["--client-timeout", "500ms"]).start();
    let mut events = allocator.follow_after("s", &allocate("k", 1, json!({})), "k");
    events.take(3);
    assert_eq!(events.rest(), [r#"stopped 0: {"Killed":[15,false]}"#, "done"]);
}

#[test]
fn an_allocator_killed_takes_every_rank_with_it() {
    let mut allocator = setup().start();
    let script = "trap '' TERM INT HUP; setsid sleep 600.0303 & sleep 600.0303 & wait; sleep 600.0303";
    let terms = json!({ "launch": launch(script, 30_000) });
    allocator.follow_after("s", &allocate("k", 8, terms), "k").take(17);
    wait_until("all sleep", || is_any_process("600.0303"));
    allocator.child.kill().unwrap();
    allocator.child.wait().unwrap();
    wait_until("all are gone", || !is_any_process("600.0303"));
}

fn guards(allocator: u32) -> Vec<i32> {
    let children = fs_err::read_to_string(format!("/proc/{allocator}/task/{allocator}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn an_idle_allocator_has_one_guard_ready_and_does_without_when_that_is_gone() {
    let allocator = setup().start();
    let pid = allocator.child.id();
    for key in ["first", "killed", "last"] {
        wait_until("a guard is ready", || guards(pid).len() == 1);
        let ready = guards(pid)[0];
        if key == "killed" {
            kill(ready);
            let stat = format!("/proc/{ready}/stat");
            wait_until("it is dead", || fs_err::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")));
        }
        let message = allocate(key, 2, json!({ "launch": launch("exec sleep 600", 1000) }));
        let mut events = allocator.follow_after("s", &message, key);
        assert_eq!(events.take(5)[0], "allocated");
        // The one that was ready, or another; never both.
        let [guard] = guards(pid)[..] else { panic!("one guard") };
        assert_eq!(guard == ready, key != "killed");
        allocator.control("s", &json!("Stop"));
        assert_eq!(events.rest().last().unwrap(), "done");
        wait_until("it is over", || allocator.held().is_empty());
    }
}

#[test]
fn a_guard_killed_is_told_and_leaves_nothing() {
    let allocator = setup().start();
    let terms = json!({ "launch": launch("trap '' TERM; setsid sleep 600.0404 & sleep 600.0404; :", 30_000) });
    let mut events = allocator.follow_after("s", &allocate("k", 2, terms), "k");
    events.take(5);
    let [guard] = guards(allocator.child.id())[..] else { panic!("one guard") };
    kill(guard);
    let said = events.rest();
    assert_eq!(said[0], "failed: its guard is gone, and its ranks with it");
    assert_eq!(said[1..], [r#"stopped 0: "Unknown""#, r#"stopped 1: "Unknown""#, "done"]);
    wait_until("nothing is left", || !is_any_process("600.0404"));
    allocator.follow_after("s", &allocate("k2", 1, json!({ "launch": launch("exit 0", 1) })), "k2").rest();
}

#[test]
fn sigterm_stops_what_is_held_tells_it_and_ends_with_0() {
    let mut allocator = setup().program(PATIENT).start();
    let mut events = allocator.follow_after("s", &allocate("k", 2, json!({})), "k");
    events.take(5);
    allocator.wait_until_ready("k", 2);
    allocator.signal(Signal::SIGTERM);
    let mut said = events.rest();
    assert_eq!(said.pop().unwrap(), "done");
    said.sort();
    assert_eq!(said, [r#"stopped 0: "Stopped""#, r#"stopped 1: "Stopped""#]);
    assert_eq!(allocator.wait().0, Some(0));
}

#[test]
fn a_second_sigterm_kills_what_does_not_end() {
    let mut allocator = setup().start();
    let script = "trap '' TERM; echo ready; while :; do sleep 600; done";
    let terms = json!({ "launch": launch(script, 600_000) });
    let mut events = allocator.follow_after("s", &allocate("k", 1, terms), "k");
    events.take(3);
    wait_until("the trap is set", || allocator.get("/v1/allocations/k/output/0/stdout").1 == json!("ready\n"));
    allocator.signal(Signal::SIGTERM);
    wait_until("it drains", || allocator.control("late", &allocate("k2", 1, json!({}))).0 == 503);
    allocator.signal(Signal::SIGTERM);
    assert_eq!(events.rest(), [r#"stopped 0: "Watchdog""#, "done"]);
    assert_eq!(allocator.wait().0, Some(0));
}

#[test]
fn an_idle_allocator_ends_by_its_timeout_with_0() {
    let mut allocator = setup().args(&["--idle-timeout", "300ms"]).start();
    assert_eq!(allocator.wait().0, Some(0));
}

#[test]
fn an_allocator_is_not_idle_while_an_allocation_lives() {
    let mut allocator = setup().program("sleep 1").args(&["--idle-timeout", "300ms"]).start();
    let said = allocator.follow_after("s", &allocate("k", 2, json!({})), "k").rest();
    assert_eq!(said.last().unwrap(), "done");
    assert_eq!(said.iter().filter(|line| line.ends_with(r#": "Stopped""#)).count(), 2, "{said:?}");
    assert_eq!(allocator.wait().0, Some(0));
}
