//! What ranks write, as it is read over the channel.

use serde_json::json;

use crate::allocator::{allocate, launch, setup, wait_until};

#[test]
fn output_is_read_to_the_byte_from_anywhere_and_to_its_end() {
    let allocator = setup().start();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo last >&2";
    let terms = json!({ "lease_ms": 60_000, "launch": launch(script, 1000) });
    let mut events = allocator.follow_after("s", &allocate("k", 1, terms), "k");
    assert_eq!(events.next().unwrap(), "allocated");
    let wanted: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    // From its first moment, while it is written.
    let (status, followed) = allocator.get("/v1/allocations/k/output/0/stdout?follow=true");
    assert_eq!(status, 200);
    assert!(followed.as_str() == Some(&wanted), "what was followed is not what was written");
    events.rest();
    let (_, rest) = allocator.get(&format!("/v1/allocations/k/output/0/stdout?from={}", wanted.len() - 11));
    assert_eq!(rest, json!("line 19999\n"));
    assert_eq!(allocator.get("/v1/allocations/k/output/0/stderr").1, json!("last\n"));
    assert_eq!(allocator.get("/v1/allocations/k/output/0/stdout?from=99999999").1, json!(""));
    assert_eq!(allocator.get("/v1/allocations/k/output/1/stdout").0, 404);
    assert_eq!(allocator.get("/v1/allocations/k/output/0/stdin").0, 404);
    assert_eq!(allocator.get("/v1/allocations/k/output/0/stdout?from=x").0, 400);
}

#[test]
fn a_rank_that_writes_without_end_keeps_no_client_waiting() {
    let allocator = setup().args(&["--slots", "2"]).start();
    let terms = json!({ "launch": launch("exec yes >&2", 1000) });
    let mut events = allocator.follow_after("s", &allocate("k", 1, terms), "k");
    events.take(3);
    for _ in 0..20 {
        assert_eq!(allocator.control("s", &json!("HeartBeat")).0, 200);
    }
    let mut other = allocator.follow_after("o", &allocate("o", 1, json!({ "launch": launch("exit 0", 1000) })), "o");
    assert_eq!(other.rest().last().unwrap(), "done");
    allocator.control("s", &json!("Stop"));
    assert_eq!(events.rest().last().unwrap(), "done");
}

#[test]
fn output_without_end_holds_up_no_deadline() {
    let allocator = setup().start();
    let terms = json!({ "launch": launch("trap '' TERM; while :; do yes | head -c 1000000; done", 300) });
    let mut events = allocator.follow_after("s", &allocate("k", 1, terms), "k");
    events.take(3);
    wait_until("the trap is set", || {
        fs_err::metadata(allocator.spooled("k", 0, "stdout")).is_ok_and(|file| file.len() > 0)
    });
    allocator.control("s", &json!("Stop"));
    assert_eq!(events.rest(), [r#"stopped 0: "Watchdog""#, "done"]);
}

#[test]
fn what_was_kept_of_output_goes_with_the_allocator() {
    let setup = setup();
    let spool = setup.folder.join("kept");
    let mut allocator = setup.args(&["--spool", spool.to_str().unwrap()]).start();
    let terms = json!({ "launch": launch("echo x", 1000) });
    allocator.follow_after("s", &allocate("k", 1, terms), "k").rest();
    assert!(spool.read_dir().unwrap().count() > 0);
    allocator.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(allocator.wait().0, Some(0));
    assert_eq!(spool.read_dir().unwrap().count(), 0);
}

#[test]
fn what_a_killed_allocator_kept_goes_with_the_next_one_and_what_a_living_one_keeps_stays() {
    let shared = tempfile::tempdir().unwrap();
    let spool = shared.path().join("kept");
    let start = || setup().args(&["--spool", spool.to_str().unwrap()]).start();
    let lives = || spool.read_dir().unwrap().count();
    let mut killed = start();
    let living = start();
    assert_eq!(lives(), 2);
    // Something else in the folder is nobody's spool.
    fs_err::create_dir(spool.join("mine")).unwrap();
    fs_err::write(spool.join("mine/notes"), "").unwrap();
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let launch = launch("echo here; exec sleep 600", 100);
    let mut held = living.follow_after("s", &allocate("k", 1, json!({ "launch": launch })), "k");
    held.take(3);
    let _next = start();
    assert_eq!(lives(), 3, "the killed one's is gone");
    assert!(spool.join("mine/notes").is_file());
    let output = || living.get("/v1/allocations/k/output/0/stdout").1;
    wait_until("what it wrote is kept", || output() == json!("here\n"));
}
