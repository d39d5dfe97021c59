//! What a build takes from `cluster.facts.json`, and what it says of it.

use serde_json::{Value, json};
use torchlift_schema::exit_code;

use crate::support::Project;

/// Facts as `torchlift probe --save` writes them, with these cards of (index, capability, UUID).
fn facts(read_at: &str, cards: &[(u32, &str, &str)]) -> Value {
    let cards: Vec<Value> = cards
        .iter()
        .map(|(index, capability, uuid)| {
            json!({ "vendor": "nvidia", "index": index, "name": "Test", "capability": capability, "uuid": uuid })
        })
        .collect();
    json!({
        "read_at": read_at, "torchlift": "0.1.0", "system": {}, "cpu": { "arch": "x86_64" }, "cores": {}, "memory": {},
        "loader": {}, "gpus": cards,
    })
}

/// A project for CUDA whose two hosts differ in their cards.
fn project(read_at: &str, devices: &str) -> Project {
    let project = Project::linked();
    project.libtorch("cuda", true);
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cuda\"\n\
         [[host]]\nname = \"node-1\"\npath = \".\"\n{devices}\n[[host]]\nname = \"node-2\"\npath = \".\"\n"
    ));
    let hosts = json!({
        "node-1": facts(read_at, &[(0, "12.0", "GPU-aaaa1111"), (1, "5.2", "GPU-aaaa2222")]),
        "node-2": facts(read_at, &[(0, "6.1", "GPU-bbbb1111")]),
    });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": hosts }).to_string());
    project
}

const LONG_AGO: &str = "2020-02-29T12:00:00Z";
/// Later than any run of this test whose clock is right, but for a stamp it is only a time to come.
const TO_COME: &str = "9999-01-01T00:00:00Z";

fn archs(project: &Project, args: &[&str]) -> String {
    let ran = project.run(&[&["build", "--dry-run", "--format", "json"], args].concat()).ok();
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    plan["builds"][0]["env"]["TORCH_CUDA_ARCH_LIST"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_kind_without_gpus_is_built_for_the_chosen_cards_of_its_hosts() {
    assert_eq!(archs(&project(LONG_AGO, ""), &[]), "5.2;6.1;12.0");
    assert_eq!(archs(&project(LONG_AGO, "devices = [0]"), &[]), "6.1;12.0");
    assert_eq!(archs(&project(LONG_AGO, "devices = [\"GPU-aaaa2222\"]"), &["--host", "node-2"]), "5.2;6.1");
}

#[test]
fn a_plan_says_what_it_takes_each_host_for_and_how_old_that_is() {
    let project = project(LONG_AGO, "");
    let text = project.run(&["build", "--dry-run"]).ok().stdout;
    assert!(text.contains("GPU 0 (`Test`, `GPU-bbbb1111`, capability 6.1) (cluster.facts.json, 2"), "{text}");
    assert!(text.contains(" days old)"), "{text}");
    fs_err::remove_file(project.root.join("cluster.facts.json")).unwrap();
    let text = project.run(&["build", "--dry-run"]).ok().stdout;
    assert!(text.contains("(this machine says)"), "{text}");
}

#[test]
fn facts_that_are_old_are_told_with_their_age_and_used() {
    let ran = project(LONG_AGO, "").run(&["build", "--dry-run", "--host", "node-2"]).ok();
    ran.says("warning[host-facts-old]").says("`node-2` 2").says("torchlift probe --save --host node-2");
    assert!(!ran.stderr.contains("node-1"), "only hosts that are built for: {}", ran.stderr);
    project(TO_COME, "").run(&["build", "--dry-run"]).ok().says("`node-1` of a time to come");
}

#[test]
fn a_card_that_the_host_has_not_is_told_with_those_it_has() {
    let ran = project(LONG_AGO, "devices = [0, 2]").run(&["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[device-unknown]")
        .says("no card `2`")
        .says("its cards: 0 (`Test`, `GPU-aaaa1111`), 1 (`Test`, `GPU-aaaa2222`)");
}

#[test]
fn a_uuid_that_is_cut_too_short_is_told_as_such() {
    let project = project(LONG_AGO, "devices = [\"GPU-aaaa1111\"]");
    let cards = [(0, "12.0", "GPU-aaaa1111-0001"), (1, "5.2", "GPU-aaaa1111-0002")];
    let hosts = json!({ "node-1": facts(LONG_AGO, &cards) });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": hosts }).to_string());
    let ran = project.run(&["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[device-unknown]").says("more than one card of host `node-1` begins with `GPU-aaaa1111`");
}

#[test]
fn a_card_of_which_gpus_says_nothing_is_told() {
    let project = project(LONG_AGO, "");
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let stated = |gpus: &str| {
        project.write("cluster.toml", &text.replace("[kind.k]\n", &format!("[kind.k]\ngpus = {gpus}\n")));
        project.run(&["build", "--dry-run", "--accept", "gpu-code-missing"]).ok()
    };
    let ran = stated("[\"5.0\", \"6.0\"]");
    ran.says("warning[gpus-differ]").says("`gpus` has 5.0, 6.0").says("node-1` its card 0 (`Test`) is a 12.0");
    assert!(!ran.stderr.contains("a 5.2") && !ran.stderr.contains("a 6.1"), "{}", ran.stderr);
    assert!(!stated("[\"5.0\", \"6.0\", \"12.0\"]").stderr.contains("gpus-differ"));
}

#[test]
fn a_file_of_facts_that_cannot_be_used_stops_and_is_named() {
    let project = project(LONG_AGO, "");
    for (text, code, words) in [
        ("{\"version\": 2}", "facts-newer", "version 2"),
        ("<<<<<<< HEAD", "facts-form", "no JSON at line 1"),
        ("{\"version\": 1, \"hosts\": {\"a/b\": 1}}", "facts-form", "`hosts.a/b`"),
    ] {
        project.write("cluster.facts.json", text);
        let ran = project.run(&["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
        ran.says(&format!("error[{code}]")).says(words).says("--> cluster.facts.json");
    }
    fs_err::remove_file(project.root.join("cluster.facts.json")).unwrap();
    fs_err::create_dir(project.root.join("cluster.facts.json")).unwrap();
    project
        .run(&["build", "--dry-run"])
        .fails(exit_code::CLUSTER_FILE)
        .says("error[facts-unreadable]")
        .says("no regular file");
}

#[test]
fn cards_of_the_facts_are_slots() {
    let project = project(LONG_AGO, "slots = \"gpus\"");
    let ran = project.run(&["launch", "--dry-run"]).ok();
    assert!(ran.stdout.contains("3 ranks on 2 hosts"), "{}", ran.stdout);
}
