//! Allocations from `Allocate` to `Done`. The names of the published tests are in `docs/allocator.md`.

use serde_json::{Value, json};

use crate::allocator::{PATIENT, allocate, is_any_process, launch, setup, wait_until, write_program};

#[test]
fn ranks_are_created_run_and_stop_and_the_record_ends() {
    let allocator = setup().program(PATIENT).start();
    let (status, reply) = allocator.control("s", &allocate("k", 2, json!({ "lease_ms": 60_000 })));
    assert_eq!((status, &reply["Allocating"]["alloc_key"]), (200, &json!("k")));
    let mut events = allocator.follow("s", "k", 0);
    assert_eq!(events.next().unwrap(), "allocated");
    let mut up = events.take(4);
    up.sort();
    assert_eq!(up, ["created 0", "created 1", "running 0", "running 1"]);
    allocator.wait_until_ready("k", 2);
    assert_eq!(allocator.control("s", &json!("Stop")), (200, json!({ "Stopping": { "alloc_keys": ["k"] } })));
    let mut down = events.take(2);
    down.sort();
    assert_eq!(down, [r#"stopped 0: "Stopped""#, r#"stopped 1: "Stopped""#]);
    assert_eq!(events.rest(), ["done"]);
    assert_eq!(allocator.held(), [""; 0]);
}

#[test]
fn ranks_know_their_place_and_the_trace_of_their_client() {
    let allocator = setup().program(r#"echo "$RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $MONARCH_CLIENT_TRACE_ID""#).start();
    let mut message = allocate("k", 2, json!({ "lease_ms": 60_000 }));
    // Every second rank of a row of four, from 8 on.
    message["Allocate"]["view"]["slice"] = json!({ "offset": 8, "sizes": [2], "strides": [2] });
    message["Allocate"]["client_context"] = json!({ "trace_id": "trace-1" });
    let mut events = allocator.follow_after("s", &message, "k");
    events.rest();
    for (rank, wanted) in ["8 0 2 trace-1\n", "10 1 2 trace-1\n"].iter().enumerate() {
        let (status, text) = allocator.get(&format!("/v1/allocations/k/output/{rank}/stdout"));
        assert_eq!((status, text.as_str()), (200, Some(*wanted)));
    }
}

#[test]
fn a_rank_tells_how_it_ended_with_the_end_of_its_stderr() {
    let allocator = setup().start();
    let script = r#"case $LOCAL_RANK in 0) echo one >&2; echo two >&2; exit 3;; 1) kill -9 $$;; 2) exit 0;; esac"#;
    let mut events = allocator.follow_after("s", &allocate("k", 3, json!({ "launch": launch(script, 1000) })), "k");
    let mut ends: Vec<String> = events.rest().into_iter().filter(|line| line.starts_with("stopped")).collect();
    ends.sort();
    let wanted =
        [r#"stopped 0: {"Exited":[3,"one\ntwo"]}"#, r#"stopped 1: {"Killed":[9,false]}"#, r#"stopped 2: "Stopped""#];
    assert_eq!(ends, wanted);
}

#[test]
fn a_rank_that_does_not_heed_its_signal_is_killed_and_said_to_be() {
    let allocator = setup().start();
    let script = "trap '' TERM; echo ready; while :; do sleep 600; done";
    let mut events = allocator.follow_after("s", &allocate("k", 1, json!({ "launch": launch(script, 200) })), "k");
    assert_eq!(events.take(3), ["allocated", "created 0", "running 0"]);
    wait_until("the trap is set", || allocator.get("/v1/allocations/k/output/0/stdout").1 == json!("ready\n"));
    allocator.control("s", &json!("Stop"));
    assert_eq!(events.rest(), [r#"stopped 0: "Watchdog""#, "done"]);
}

#[test]
fn what_ranks_leave_behind_is_gone_when_it_is_done() {
    let allocator = setup().start();
    let script = "setsid sleep 600.0417 >/dev/null 2>&1 & (setsid sh -c 'trap \"\" TERM; sleep 600.0417; :' >/dev/null 2>&1 &) ; exit 0";
    let mut events = allocator.follow_after("s", &allocate("k", 2, json!({ "launch": launch(script, 1000) })), "k");
    assert_eq!(events.rest().last().unwrap(), "done");
    assert!(!is_any_process("600.0417"));
}

#[test]
fn a_program_that_is_not_there_fails_the_allocation_once_and_leaves_the_allocator_usable() {
    let allocator = setup().start();
    let mut terms = json!({ "launch": launch("", 1000) });
    terms["launch"]["program"] = json!("/no/such/program");
    let mut events = allocator.follow_after("s", &allocate("k", 4, terms), "k");
    let said = events.rest();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("failed: `/no/such/program` cannot be used: "), "{said:?}");
    let text = allocator.folder.join("text");
    fs_err::write(&text, "no program").unwrap();
    let mut terms = json!({ "launch": launch("", 1000) });
    terms["launch"]["program"] = json!(text);
    let mut events = allocator.follow_after("s", &allocate("k2", 4, terms), "k2");
    let said = events.rest();
    assert_eq!(said.iter().filter(|line| line.starts_with("failed")).count(), 1, "{said:?}");
    assert!(said[1].contains("cannot be executed: Permission denied"), "{said:?}");
    let mut events = allocator.follow_after("s", &allocate("k3", 1, json!({ "launch": launch("exit 0", 1000) })), "k3");
    assert_eq!(events.rest(), ["allocated", "created 0", "running 0", r#"stopped 0: "Stopped""#, "done"]);
}

#[test]
fn what_does_not_fit_is_answered_busy_with_the_holder_and_disturbs_nobody() {
    let allocator = setup().program(PATIENT).start();
    let mut events = allocator.follow_after("s", &allocate("k", 2, json!({})), "k");
    events.take(5);
    let (status, reply) = allocator.control("other", &allocate("k2", 1, json!({})));
    assert_eq!(status, 503);
    let holder = &reply["Busy"]["holders"][0];
    assert_eq!((&holder["alloc_key"], &holder["ranks"]), (&json!("k"), &json!(2)));
    assert!(holder["owner"].as_str().unwrap().starts_with("tester (user "), "{holder}");
    assert_eq!(allocator.held(), ["k"]);
    allocator.control("s", &json!("Stop"));
    assert_eq!(events.rest().last().unwrap(), "done");
}

#[test]
fn several_allocations_are_held_while_slots_allow_and_one_stop_ends_one() {
    let allocator = setup().program(PATIENT).args(&["--slots", "4"]).start();
    let mut one = allocator.follow_after("one", &allocate("k1", 2, json!({})), "k1");
    let mut two = allocator.follow_after("two", &allocate("k2", 2, json!({})), "k2");
    one.take(5);
    two.take(5);
    assert_eq!(allocator.control("three", &allocate("k3", 1, json!({}))).0, 503);
    let (status, reply) = allocator.control("three", &allocate("k4", 5, json!({})));
    assert_eq!((status, &reply["Refused"]["code"]), (422, &json!("allocate-too-many-ranks")));
    allocator.control("one", &json!("Stop"));
    assert_eq!(one.rest().last().unwrap(), "done");
    assert_eq!(allocator.held(), ["k2"]);
}

#[test]
fn the_same_owner_replaces_by_force_and_hears_done_before_the_next_is_allocated() {
    let allocator = setup().program(PATIENT).start();
    let mut old = allocator.follow_after("s", &allocate("old", 2, json!({})), "old");
    old.take(5);
    let mut new = allocator.follow_after("s2", &allocate("new", 1, json!({ "force": true })), "new");
    assert_eq!(old.rest().last().unwrap(), "done");
    assert_eq!(new.take(3), ["allocated", "created 0", "running 0"]);
}

#[test]
fn a_view_that_cannot_be_had_costs_nothing() {
    let allocator = setup().program("exit 0").start();
    let refused = |ranks: Value| {
        let mut message = allocate("k", 1, json!({}));
        message["Allocate"]["view"]["slice"]["sizes"] = ranks;
        let (status, reply) = allocator.control("s", &message);
        (status, reply["Refused"]["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(refused(json!([0])), (422, "allocate-no-ranks".to_owned()));
    assert_eq!(refused(json!([1_000_000_000_u64])), (422, "allocate-too-many-ranks".to_owned()));
    assert_eq!(refused(json!([u64::MAX])), (400, "message-form".to_owned()));
    assert_eq!(refused(json!([-1])), (400, "message-form".to_owned()));
    assert_eq!(allocator.held(), [""; 0]);
    assert_eq!(allocator.control("s", &json!("HeartBeat")).0, 200, "it serves on");
}

#[test]
fn a_port_is_held_for_rank_0_and_every_rank_knows_it() {
    let allocator = setup().start();
    let mut terms = json!({ "lease_ms": 60_000, "launch": launch("echo $MASTER_PORT", 1000) });
    terms["launch"]["is_port_wanted"] = json!(true);
    let message = allocate("k", 2, terms);
    allocator.follow_after("s", &message, "k").rest();
    let (_, text) = allocator.get("/v1/allocations/k/events");
    let first: Value = serde_json::from_str(text.as_str().unwrap().lines().next().unwrap()).unwrap();
    let port = first["message"]["Allocated"]["terms"]["master_port"].as_u64().unwrap();
    for rank in 0..2 {
        let (_, text) = allocator.get(&format!("/v1/allocations/k/output/{rank}/stdout"));
        assert_eq!(text.to_string().trim_matches(['"', '\n']).trim_end_matches("\\n"), port.to_string());
    }
}

#[test]
fn the_hosts_file_is_written_before_anything_starts() {
    let mut setup = setup().program(r#"cat "$TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE""#);
    let file = setup.folder.join("hosts.json");
    setup.command.env("TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE", &file);
    let allocator = setup.start();
    allocator.follow_after("s", &allocate("k", 1, json!({ "lease_ms": 60_000 })), "k").rest();
    let (_, text) = allocator.get("/v1/allocations/k/output/0/stdout");
    assert_eq!(text, json!({ "hostnames": ["a", "b"] }));
}

#[test]
fn a_hosts_file_that_cannot_be_written_is_told() {
    let mut setup = setup().program("exit 0");
    setup.command.env("TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE", "/no/such/folder/hosts");
    let allocator = setup.start();
    let said = allocator.follow_after("s", &allocate("k", 1, json!({})), "k").rest();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("failed: the hosts file `/no/such/folder/hosts` cannot be written"), "{said:?}");
}

#[test]
fn programs_outside_of_the_roots_are_refused_also_behind_links() {
    let setup = setup();
    let (inside, outside) = (setup.folder.join("inside"), setup.folder.join("outside"));
    fs_err::create_dir(&inside).unwrap();
    fs_err::create_dir(&outside).unwrap();
    write_program(&inside.join("good"), "exit 0");
    write_program(&outside.join("bad"), "exit 0");
    std::os::unix::fs::symlink(outside.join("bad"), inside.join("link")).unwrap();
    let allocator = setup.args(&["--root", inside.to_str().unwrap()]).start();
    let run = |key: &str, program: std::path::PathBuf| {
        let mut terms = json!({ "launch": launch("", 1000) });
        terms["launch"]["program"] = json!(program);
        allocator.follow_after("s", &allocate(key, 1, terms), key).rest()
    };
    assert_eq!(run("good", inside.join("good")).last().unwrap(), "done");
    for (key, program) in
        [("bad", outside.join("bad")), ("link", inside.join("link")), ("dots", inside.join("../outside/bad"))]
    {
        let said = run(key, program);
        assert!(said[0].contains("is not below any `--root` of this allocator"), "{said:?}");
        assert_eq!(said[1..], ["done"]);
    }
}

#[test]
fn nothing_is_respawned() {
    let allocator = setup().program("exit 3").start();
    let said = allocator.follow_after("s", &allocate("k", 2, json!({})), "k").rest();
    assert_eq!(said.iter().filter(|line| line.starts_with("created")).count(), 2, "{said:?}");
    assert_eq!(said.last().unwrap(), "done");
}

#[test]
fn a_card_is_one_allocations_on_the_whole_machine_and_free_when_that_ends() {
    let claims = tempfile::tempdir().unwrap();
    let mut first = setup();
    first.command.env("TORCHLIFT_CLAIMS", claims.path());
    let mut second = setup().args(&["--slots", "8"]);
    second.command.env("TORCHLIFT_CLAIMS", claims.path());
    let (first, second) = (first.start(), second.start());
    let wants = |key: &str, cards: &[&str]| {
        let mut launch = launch("trap 'exit 0' TERM; echo ready; sleep 600 & wait", 30_000);
        launch["cards"] = json!(cards);
        allocate(key, 1, json!({ "launch": launch }))
    };
    let mut held = first.follow_after("s", &wants("one", &["GPU-1", "GPU-2"]), "one");
    assert_eq!(held.take(3), ["allocated", "created 0", "running 0"]);
    // Another allocator of this machine knows of it, and starts nothing.
    let refused = second.follow_after("s", &wants("two", &["GPU-2", "GPU-3"]), "two").rest();
    let [failed, done] = refused.as_slice() else { panic!("{refused:?}") };
    let holder = format!("(process {})", first.child.id());
    assert!(failed.starts_with("failed: card `GPU-2` is claimed by run `") && failed.contains(&holder), "{failed}");
    assert_eq!(done, "done");
    assert_eq!(second.follow_after("s", &wants("three", &["GPU-3"]), "three").take(1), ["allocated"]);
    first.wait_until_ready("one", 1);
    first.control("s", &json!("Stop"));
    held.rest();
    assert_eq!(second.follow_after("t", &wants("four", &["GPU-1"]), "four").take(1), ["allocated"]);
}
