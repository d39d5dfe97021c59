//! Hosts: what is known of them, how old it is, whether their cards are served.

use serde_json::{Value, json};
use torchlift_schema::exit_code;

use crate::examination::Examination;
use crate::support::Project;

fn facts(read_at: &str, capability: &str, driver: &str) -> Value {
    json!({
        "read_at": read_at, "torchlift": "0.1.0", "system": {}, "cpu": { "arch": "x86_64" }, "cores": {}, "memory": {},
        "loader": {}, "nvidia": { "version": driver },
        "gpus": [{ "vendor": "nvidia", "index": 0, "name": "Test", "capability": capability, "uuid": "GPU-aaaa1111" }],
        "problems": [{ "code": "gpu-unreadable", "severity": "error", "place": {}, "message": "card 1 is lost", "remedy": "restart it" }],
    })
}

#[test]
fn facts_of_hosts_are_told_with_their_age_and_a_host_without_any_with_how_to_read_them() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cpu\"\n\
         [[host]]\nname = \"old\"\npath = \".\"\n[[host]]\nname = \"far\"\npath = \"/p\"\nreach = { ssh = \"me@far\" }\n",
    );
    let hosts = json!({ "old": facts("2020-02-29T12:00:00Z", "8.6", "550.54.14") });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": hosts }).to_string());
    let found = Examination::of(&project, &[], &[]);
    let hosts = found.all("cluster", "host");
    let old = hosts.iter().find(|look| look.found.starts_with("`old`")).unwrap();
    assert!(
        old.found.contains("days ago; ") && old.found.contains("8.6") && old.found.contains("550.54.14"),
        "{old:?}"
    );
    let far = hosts.iter().find(|look| look.found.starts_with("`far`")).unwrap();
    assert!(far.state == "doubtful" && far.remedy.contains("torchlift probe --save --host far"), "{far:?}");
    assert_eq!(far.place["host"], "far");
    assert_eq!(found.state("cluster", "host-facts-old"), "doubtful");
    assert_eq!(found.state("cluster", "reach-not-yet"), "wrong");
    let lost = found.only("cluster", "gpu-unreadable");
    assert!(lost.state == "doubtful" && lost.found.contains("`old`: card 1 is lost"), "{lost:?}");
    assert_eq!(found.code(), exit_code::CLUSTER_FILE);
}

#[test]
fn a_libtorch_without_code_for_a_hosts_card_is_told_on_that_host() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"auto\"\ngpus = [\"8.6\"]\n[[host]]\nname = \"a\"\npath = \".\"\n",
    );
    let found = Examination::of(&project, &[], &[]);
    let look = found.only("cluster", "libtorch-not-found");
    assert!(look.state == "wrong" && look.found.contains("8.6"), "{look:?}");
    assert_eq!(found.state("cluster", "kind"), "unchecked");
    assert_eq!(found.code(), exit_code::CLUSTER_FILE);
}

#[test]
fn what_auto_takes_is_told_with_its_reason() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"auto\"\n[[host]]\nname = \"a\"\npath = \".\"\n",
    );
    let hosts = json!({ "a": {
        "read_at": "9999-01-01T00:00:00Z", "torchlift": "0.1.0", "system": {}, "cpu": { "arch": "x86_64" },
        "cores": {}, "memory": {}, "loader": {},
    }});
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": hosts }).to_string());
    let found = Examination::of(&project, &[], &[]);
    let look = found.only("cluster", "kind");
    assert!(look.found.contains("`test/cpu`, torch 2.9.0+cpu, by `auto`: no GPU is there to serve"), "{look:?}");
    assert_eq!(found.state("cluster", "fit"), "right");
    assert!(found.only("cluster", "host").found.contains("read at a time to come"));
}

#[test]
fn a_file_of_facts_that_cannot_be_read_is_wrong() {
    let project = Project::linked();
    project.write("cluster.facts.json", "<<<<<<< HEAD");
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.state("cluster", "facts-form"), "wrong");
    assert_eq!(found.code(), exit_code::CLUSTER_FILE);
}
