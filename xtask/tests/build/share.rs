//! Which kinds share a build, what the plan says of those that do not, and whose CPU the code is for.

use serde_json::{Value, json};
use torchlift_schema::exit_code;

use crate::stand_in;
use crate::support::Project;

/// Two kinds of one host each, with further lines for each.
fn two_kinds(a: &str, b: &str) -> Project {
    let project = Project::linked();
    cluster(&project, a, b);
    project
}

fn cluster(project: &Project, a: &str, b: &str) {
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[kind.a]\n{a}\n[kind.b]\n{b}\n\
         [[host]]\nname = \"node-1\"\nkind = \"a\"\npath = \".\"\n[[host]]\nname = \"node-2\"\nkind = \"b\"\npath = \".\"\n"
    ));
}

fn plan(project: &Project, args: &[&str]) -> Value {
    let ran = project.run(&[&["build", "--dry-run", "--format", "json"], args].concat()).ok();
    serde_json::from_str(&ran.stdout).unwrap()
}

fn builds(plan: &Value) -> usize {
    plan["builds"].as_array().unwrap().len()
}

const CPU: &str = "libtorch = \"test/cpu\"";

#[test]
fn two_variants_with_one_abi_share_a_build_and_each_is_verified_by_itself() {
    let project = two_kinds(CPU, "libtorch = \"test/other\"");
    let other = project.libtorch("other", false).join("lib");
    // Headers are part of the ABI, and those of the stand-ins have their names in them.
    let header = "libtorch/test/cpu/include/torch/torch.h";
    fs_err::copy(project.root.join(header), project.root.join(header.replace("cpu", "other"))).unwrap();
    // Other bytes with the same symbols.
    let search = stand_in::search(&other);
    stand_in::library("torch_cpu.c", &other.join("libtorch_cpu.so"), &["-O2", "-g", search.as_str(), "-lc10"]);
    assert_eq!(builds(&plan(&project, &[])), 1);
    let ran = project.run(&["build"]).ok();
    assert_eq!(ran.stderr.matches("Compiling linked").count(), 1, "{}", ran.stderr);
    let libraries = |host: &str| project.envelope(host).libtorch.unwrap().libraries;
    let (here, there) = (libraries("node-1"), libraries("node-2"));
    assert_eq!(here.len(), there.len());
    assert_ne!(here, there, "each has the digests of its own libraries");
    assert_eq!(project.envelope("node-1").artifact.sha256, project.envelope("node-2").artifact.sha256);
    // What the second one lacks is found, though the build was made with the first one.
    fs_err::remove_file(other.join("libc10.so")).unwrap();
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("libc10.so");
}

#[test]
fn no_share_builds_every_kind_by_itself_and_the_plan_says_that_nothing_else_keeps_them_apart() {
    let project = two_kinds(CPU, CPU);
    assert_eq!(builds(&plan(&project, &[])), 1);
    let apart = plan(&project, &["--no-share"]);
    assert_eq!(builds(&apart), 2);
    assert_eq!(apart["builds"][1]["apart"]["from"], apart["builds"][0]["key"]);
    assert_eq!(
        apart["builds"][1]["apart"]["by"],
        json!([{ "part": "kind, by `--no-share`", "here": "b", "there": "a" }])
    );
    let ran = project.run(&["build", "--no-share"]).ok();
    assert_eq!(ran.stderr.matches("Compiling linked").count(), 2, "{}", ran.stderr);
}

#[test]
fn the_plan_says_in_what_two_kinds_differ_that_do_not_share() {
    let project = two_kinds(CPU, &format!("{CPU}\nrustflags = [\"-Cdebuginfo=1\"]\nbuild_env = {{ MINE = \"1\" }}"));
    let text = project.run(&["build", "--dry-run"]).ok().stdout;
    let line = text.lines().find(|line| line.contains("  apart ")).unwrap_or_else(|| panic!("{text}"));
    let expected = "build_env MINE (`1` here, nothing there); kind rustflags (`-Cdebuginfo=1` here, nothing there)";
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn another_shell_terminal_or_agent_changes_no_key() {
    let project = two_kinds(CPU, CPU);
    let key = |env: &[(&str, &str)]| {
        let ran = project.run_with(&["build", "--dry-run", "--format", "json"], env).ok();
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["builds"][0]["key"].clone()
    };
    let usual = key(&[("TERM", "xterm")]);
    for (name, value) in [("TERM", "dumb"), ("SSH_AUTH_SOCK", "/tmp/other"), ("SHELL", "/bin/fish"), ("COLUMNS", "40")]
    {
        assert_eq!(key(&[(name, value)]), usual, "{name}");
    }
    assert_ne!(key(&[("CXXFLAGS", "-O3")]), usual);
}

/// A host whose CPU has this level.
fn host_of_level(project: &Project, level: &str) {
    let host = json!({
        "read_at": "9999-01-01T00:00:00Z", "torchlift": "0.1.0", "system": {}, "cores": {}, "memory": {}, "loader": {},
        "cpu": { "arch": "x86_64", "level": level, "model": "Old One" },
    });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": { "node-2": host } }).to_string());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn code_for_a_newer_cpu_than_a_sharing_host_has_is_an_error_before_anything_is_built() {
    let flags = format!("{CPU}\nrustflags = [\"-C\", \"target-cpu=x86-64-v3\"]");
    let project = two_kinds(&flags, &flags);
    host_of_level(&project, "x86-64-v2");
    let ran = project.run(&["build"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[cpu-lacks]")
        .says("host `node-2` (`Old One`) lacks avx, avx2, bmi1")
        .says("`-Ctarget-cpu=x86-64-v2`");
    assert!(!ran.stderr.contains("`node-1`"), "this machine has it: {}", ran.stderr);
    assert!(project.published().is_empty());
    // Flags of the environment count as well.
    cluster(&project, CPU, CPU);
    let ran = project.run_with(&["build", "--dry-run"], &[("RUSTFLAGS", "-Ctarget-feature=+avx2")]);
    ran.fails(exit_code::CLUSTER_FILE).says("lacks avx, avx2");
    project.run(&["build", "--dry-run"]).ok();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_envelope_says_which_cpu_its_program_needs_and_no_other_one_starts_it() {
    let flags = format!("{CPU}\nrustflags = [\"-Ctarget-cpu=x86-64-v2\"]");
    let project = two_kinds(&flags, CPU);
    project.run(&["build"]).ok();
    let mut envelope = project.envelope("node-1");
    assert_eq!(envelope.artifact.cpu_level.as_deref(), Some("x86-64-v2"));
    assert_eq!(project.envelope("node-2").artifact.cpu_level, None);
    envelope.artifact.cpu_level = Some("x86-64-v9".to_owned());
    // No CPU of today has it, whatever this one is.
    let text = torchlift_schema::write::to_text(&torchlift_schema::write::seal(envelope));
    fs_err::write(project.envelope_file("node-1"), text).unwrap();
    let ran = project.run(&["launch", "--no-build", "--host", "node-1"]);
    assert_ne!(ran.code, 0);
    ran.says("x86-64-v9");
}
