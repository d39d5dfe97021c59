//! What a look at an allocator shows: its numbers, and its host.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::allocator::{Allocator, allocate, launch, setup, wait_until};

/// The values of `/metrics`, by name with labels.
fn numbers(allocator: &Allocator) -> BTreeMap<String, u64> {
    let (status, text) = allocator.get("/metrics");
    assert_eq!(status, 200);
    let text = text.as_str().unwrap().to_owned();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let numbers: BTreeMap<_, _> = samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect();
    // Every series has its help and its type in front of it.
    for name in numbers.keys().map(|name| name.split('{').next().unwrap()) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        assert!(text.contains(&format!("# HELP {name} ")), "{text}");
        assert!(text.contains(&format!("\n# TYPE {name} {kind}\n{name}")), "{text}");
    }
    numbers
}

fn run(allocator: &Allocator, key: &str, ranks: usize, script: &str) {
    let message = allocate(key, ranks, json!({ "launch": launch(script, 1000) }));
    let said = allocator.follow_after("s", &message, key).rest();
    assert_eq!(said.last().unwrap(), "done");
}

#[test]
fn the_numbers_agree_with_what_clients_were_told() {
    let allocator = setup().start();
    let before = numbers(&allocator);
    assert!(before.iter().filter(|(name, _)| name.ends_with('}')).count() >= 11, "{before:?}");
    let quiet = |(name, value): (&String, &u64)| *value == 0 || name.contains("_info") || name.contains("connections");
    assert!(before.iter().all(quiet), "{before:?}");
    let incarnation = allocator.get("/v1/status").1["incarnation"].as_str().unwrap().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("torchlift_allocator_info{{incarnation=\"{incarnation}\",version=\"{version}\"}}");
    assert_eq!(before[&info], 1);
    assert_eq!(before["torchlift_connections"], 1, "the one that asks");

    run(&allocator, "clean", 2, "exit 0");
    run(&allocator, "unclean", 3, "[ $LOCAL_RANK = 0 ] && exit 7; kill -9 $$");
    let mut missing = allocate("failed", 1, json!({ "launch": launch("", 1000) }));
    missing["Allocate"]["terms"]["launch"]["program"] = json!("/no/such/program");
    allocator.follow_after("s", &missing, "failed").rest();
    let mut held = allocator.follow_after(
        "held",
        &allocate("held", 2, json!({ "launch": launch("trap '' TERM; echo ready; sleep 600 & wait; sleep 600", 50) })),
        "held",
    );
    held.take(5);
    allocator.wait_until_ready("held", 2);
    assert_eq!(allocator.control("other", &allocate("busy", 1, json!({ "launch": launch("", 1) }))).0, 503);
    assert_eq!(allocator.control("other", &allocate("none", 0, json!({ "launch": launch("", 1) }))).0, 422);
    let meanwhile = numbers(&allocator);
    assert_eq!((meanwhile["torchlift_allocations_held"], meanwhile["torchlift_ranks_alive"]), (1, 2));
    assert!(meanwhile["torchlift_connections"] >= 2, "whoever follows, and the one that asks");
    allocator.control("held", &json!("Stop"));
    held.rest();

    let after = numbers(&allocator);
    for (name, value) in [
        ("torchlift_allocations_held", 0),
        ("torchlift_ranks_alive", 0),
        ("torchlift_ranks_started_total", 7),
        ("torchlift_ranks_ended_total{reason=\"stopped\"}", 2),
        ("torchlift_ranks_ended_total{reason=\"exited\"}", 1),
        ("torchlift_ranks_ended_total{reason=\"killed\"}", 2),
        ("torchlift_ranks_ended_total{reason=\"watchdog\"}", 2),
        ("torchlift_ranks_ended_total{reason=\"unknown\"}", 0),
        ("torchlift_allocations_total{outcome=\"clean\"}", 1),
        ("torchlift_allocations_total{outcome=\"unclean\"}", 2),
        ("torchlift_allocations_total{outcome=\"failed\"}", 1),
        ("torchlift_allocations_total{outcome=\"busy\"}", 1),
        ("torchlift_allocations_total{outcome=\"refused\"}", 1),
    ] {
        assert_eq!(after[name], value, "{name}: {after:?}");
    }
    wait_until("connections that are closed are not counted", || numbers(&allocator)["torchlift_connections"] == 1);
}

#[test]
fn the_facts_are_those_of_probe_and_are_kept_for_a_while() {
    let allocator = setup().start();
    let (status, facts) = allocator.get("/v1/facts");
    assert_eq!(status, 200, "{facts}");
    let mut probe = std::process::Command::new(env!("CARGO_BIN_EXE_torchlift"));
    probe.args(["probe", "--format", "json"]).current_dir(&allocator.folder).env_clear();
    let output = probe.env("PATH", "/usr/bin:/bin").env("HOME", &allocator.folder).output().unwrap();
    let probed: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Not what changes while one looks: when it was, how much room there is, the names of the processes that asked.
    let lasting = |facts: &Value| {
        let hosts = facts["hosts"].as_object().unwrap();
        let (name, host) = hosts.iter().next().unwrap();
        (hosts.len(), name.clone(), host["torchlift"].clone(), host["system"].clone(), host["cpu"].clone())
    };
    assert_eq!(lasting(&facts), lasting(&probed));
    assert_eq!(allocator.get("/v1/facts").1, facts, "not read again at once");
}

#[test]
fn who_may_not_ask_is_shown_neither() {
    let mut allocator = setup().args(&["--listen", "tcp:127.0.0.1:0", "--token-file", "token"]).spawn(Vec::new(), 1);
    let port = allocator.serving[0].strip_prefix("tcp:127.0.0.1:").unwrap().to_owned();
    allocator.reach(&["--connect-to", &format!("::127.0.0.1:{port}")]);
    for path in ["/metrics", "/v1/facts", "/v1/status"] {
        let (status, reply) = allocator.get(path);
        assert_eq!((status, &reply["Refused"]["code"]), (401, &json!("no-token")), "{path}");
    }
}
