//! Runs of envelopes.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use torchlift_schema::{Artifact, Envelope, PerHostEnvelope, write};

use crate::stage::Stage;

const SCRIPT: &str =
    "#!/bin/sh\necho \"$TORCHLIFT_HOST $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $(basename \"$PWD\") $1\"\n";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn per_host(host: &str) -> PerHostEnvelope {
    PerHostEnvelope { bin: format!("bin/{host}/train"), ld_library_path: String::new(), cwd_subpath: "work".to_owned() }
}

/// A project with two hosts' programs and sealed envelopes; gives the folder of the envelopes.
fn project(stage: &Stage) -> PathBuf {
    fs_err::create_dir_all(stage.folder.join("work")).unwrap();
    for host in ["node-a", "node-b"] {
        stage.write(&format!("bin/{host}/train"), SCRIPT, 0o755);
        let artifact = Artifact::new(
            "x86_64-unknown-linux-gnu",
            SCRIPT.len() as u64,
            sha256(SCRIPT.as_bytes()),
            "0123abcd",
            "source",
        );
        let envelope = write::seal(Envelope::new(host, per_host(host), artifact));
        stage.write(&format!("cluster/{host}/envelope.json"), &write::to_text(&envelope), 0o644);
    }
    stage.folder.join("cluster")
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_folder_of_envelopes_runs_host_by_host() {
    let stage = Stage::new();
    project(&stage);
    let args = ["run", "--envelopes", "cluster", "--slots", "node-a=2", "--", "an arg"];
    let seen = stage.run(args);
    seen.code(0);
    assert_eq!(
        lines(&seen.stdout),
        [
            "[node-a:0] node-a 0 0 3 0 work an arg",
            "[node-a:1] node-a 1 1 3 0 work an arg",
            "[node-b:2] node-b 2 0 3 1 work an arg",
        ]
    );
}

#[test]
fn one_envelope_one_host_and_the_plain_map_run_too() {
    let stage = Stage::new();
    project(&stage);
    let one = stage.run(["run", "--envelopes", "cluster/node-b/envelope.json"]);
    assert_eq!(one.code(0).stdout, "[node-b:0] node-b 0 0 1 0 work \n");
    let of_folder = stage.run(["run", "--envelopes", "cluster/node-b"]);
    assert_eq!(of_folder.code(0).stdout, one.stdout);
    let chosen = stage.run(["run", "--envelopes", "cluster", "--host", "node-b", "--slots", "1"]);
    assert_eq!(chosen.code(0).stdout, one.stdout);
    let map = write::per_host_map(&["node-a", "node-b"].map(|host| (host.to_owned(), per_host(host))).into());
    stage.write("map.json", &map, 0o644);
    let map = stage.run(["run", "--envelopes", "map.json"]);
    assert_eq!(lines(&map.code(0).stdout), ["[node-a:0] node-a 0 0 2 0 work ", "[node-b:1] node-b 1 0 2 1 work "]);
}

#[test]
fn each_host_may_have_a_path_of_its_own() {
    let stage = Stage::new();
    project(&stage);
    let other = stage.folder.join("elsewhere");
    fs_err::create_dir_all(other.join("work")).unwrap();
    stage.write("elsewhere/bin/node-b/train", SCRIPT, 0o755);
    fs_err::remove_file(stage.folder.join("bin/node-b/train")).unwrap();
    stage.run(["run", "--envelopes", "cluster"]).code(203).says("error[program-missing]").says("host `node-b`");
    stage.run(["run", "--envelopes", "cluster", "--path", "node-b=elsewhere"]).code(0);
    let seen = stage.run(["run", "--envelopes", "cluster", "--path", "nodeb=x", "--slots", "nodec=2", "--host", "n"]);
    seen.code(200)
        .says("`n` of `--host`")
        .says("`nodeb` of `--path`")
        .says("`nodec` of `--slots`")
        .says("`node-a`, `node-b`");
}

#[test]
fn a_swapped_binary_is_refused_with_both_digests() {
    let stage = Stage::new();
    project(&stage);
    let other = SCRIPT.replace("echo", "cat ;");
    stage.write("bin/node-a/train", &other, 0o755);
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(205).says("error[program-changed]");
    seen.says(&sha256(SCRIPT.as_bytes())).says(&sha256(other.as_bytes()));
    assert!(stage.runs().is_empty());
}

#[test]
fn an_edited_envelope_is_refused_with_both_digests() {
    let stage = Stage::new();
    let folder = project(&stage);
    let file = folder.join("node-a/envelope.json");
    let text = fs_err::read_to_string(&file).unwrap();
    fs_err::write(&file, text.replace("bin/node-a/train", "bin/node-b/train")).unwrap();
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(205).says("error[envelope-digest]").says("node-a/envelope.json").says("states").says("has");
    assert!(stage.runs().is_empty());
}

#[test]
fn every_envelope_that_cannot_be_used_is_told_at_once() {
    let stage = Stage::new();
    let folder = project(&stage);
    let b = fs_err::read_to_string(folder.join("node-b/envelope.json")).unwrap();
    stage.write("cluster/node-a/envelope.json", "{", 0o644);
    stage.write("cluster/node-c.json", &b, 0o644);
    stage.write("cluster/node-d.json", r#"{"bin": "/x", "ld_library_path": "a::b", "cwd_subpath": ".."}"#, 0o644);
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(203).says("node-a/envelope.json").says("node-c.json").says("node-d.json").says("error[envelope-host]");
    assert!(seen.stderr.matches("error[").count() >= 5, "{}", seen.stderr);
    assert!(stage.runs().is_empty());
}

#[test]
fn a_working_folder_and_programs_that_are_missing_are_told_for_all_hosts() {
    let stage = Stage::new();
    project(&stage);
    remove(&stage.folder.join("work"));
    fs_err::remove_file(stage.folder.join("bin/node-a/train")).unwrap();
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(203).says("error[program-missing]");
    assert_eq!(seen.stderr.matches("error[cwd-missing]").count(), 2, "{}", seen.stderr);
}

fn remove(folder: &Path) {
    fs_err::remove_dir_all(folder).unwrap();
}

#[test]
fn a_host_whose_envelope_cannot_be_followed_is_told_of_and_never_left_out() {
    let stage = Stage::new();
    let cluster = project(&stage);
    std::os::unix::fs::symlink("/no/such/folder", cluster.join("node-c")).unwrap();
    std::os::unix::fs::symlink("/no/such/file", cluster.join("node-d.json")).unwrap();
    let pipe = |name: &str| nix::unistd::mkfifo(&cluster.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    pipe("node-e.json");
    fs_err::create_dir(cluster.join("node-f")).unwrap();
    pipe("node-f/envelope.json");
    fs_err::create_dir(cluster.join("no host, for it has no envelope")).unwrap();
    stage.write("cluster/a-file", "", 0o644);
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(203);
    assert_eq!(seen.stderr.matches("error[envelope-unreadable]").count(), 4, "{}", seen.stderr);
    for host in ["node-c", "node-d", "node-e", "node-f"] {
        seen.says(host);
    }
    assert!(stage.runs().is_empty());
}
