//! Builds that nothing needs any more go, and all others stay.

use serde_json::Value;
use torchlift_schema::exit_code;

use crate::support::Project;

/// A project with a build that its envelopes name, and one that they named before.
fn project() -> (Project, String, String) {
    let project = Project::linked();
    let other = project.libtorch("other", true);
    project.run(&["build", "--libtorch", other.to_str().unwrap()]).ok();
    let old = project.envelope("node-1").artifact.build_key;
    project.run(&["build"]).ok();
    let new = project.envelope("node-1").artifact.build_key;
    (project, old, new)
}

fn builds(project: &Project) -> Vec<String> {
    let folder = project.root.join("target/torchlift/builds");
    let entries = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn builds_that_no_envelope_names_go_and_what_that_frees_is_said() {
    let (project, old, new) = project();
    let ran = project.run(&["clean", "--stale", "--dry-run"]).ok();
    assert!(ran.stdout.contains(&old) && ran.stdout.contains("1 build in ") && ran.stdout.contains("would go"));
    assert_eq!(builds(&project).len(), 2, "a dry run takes nothing out");
    let ran = project.run(&["clean", "--stale", "--format", "json"]).ok();
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((report["builds"][0]["key"].as_str(), report["kept"].as_u64()), (Some(old.as_str()), Some(1)));
    assert!(report["builds"][0]["size"].as_u64().unwrap() > 100_000, "a build has a program in it");
    assert_eq!(builds(&project), [new]);
    // The libtorch that its link led to is no part of it.
    assert!(project.root.join("libtorch/test/other/lib/libc10.so").is_file());
    let text = project.run(&["clean", "--stale"]).ok().stdout;
    assert!(text.starts_with("nothing to take out") && text.contains("1 build stays"), "{text}");
    let ran = project.run(&["build", "--format", "json"]).ok();
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["builds"][0]["compiled"], 0, "what stays is whole");
}

#[test]
fn an_envelope_that_cannot_be_read_keeps_every_build() {
    let (project, ..) = project();
    fs_err::write(project.envelope_file("node-2"), "{").unwrap();
    let ran = project.run(&["clean", "--stale"]).fails(exit_code::USAGE);
    ran.says("error[clean-envelope]").says("node-2").says("nothing is taken out");
    assert_eq!(builds(&project).len(), 2);
}

#[test]
fn without_saying_which_builds_nothing_goes() {
    let (project, ..) = project();
    project.run(&["clean"]).fails(exit_code::USAGE).says("--stale");
    assert_eq!(builds(&project).len(), 2);
}
