//! A project that was built: today's, edited since, tampered with.

use crate::examination::Examination;
use crate::support::Project;

#[test]
fn what_was_built_is_held_against_todays_plan_and_against_its_envelopes() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.code(), 0, "{:#}", found.json);
    assert_eq!(found.state("build", "build"), "right");
    assert!(found.only("build", "envelope").found.starts_with("`node-1`, `node-2`: is of the present plan"));
    assert!(found.only("build", "launch").found.starts_with("2 ranks on 2 hosts would start"), "{:#}", found.json);

    let main = project.root.join("src/main.rs");
    let text = fs_err::read_to_string(&main).unwrap();
    fs_err::write(&main, format!("{text}\n// edited\n")).unwrap();
    let found = Examination::of(&project, &[], &[]);
    let old = found.all("build", "build-old");
    assert!(old.iter().all(|look| look.state == "doubtful" && look.remedy.contains("xtask build")), "{old:?}");
    assert!(old.iter().any(|look| look.found.contains("src/main.rs")), "{old:?}");
    assert_eq!(found.code(), 0);

    let library = project.root.join("libtorch/test/cpu/lib/libc10.so");
    let mut bytes = fs_err::read(&library).unwrap();
    bytes.push(0);
    fs_err::write(&library, bytes).unwrap();
    let envelope = project.envelope_file("node-2");
    let text = fs_err::read_to_string(&envelope).unwrap();
    fs_err::write(&envelope, text.replace("quick", "quack")).unwrap();
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.state("build", "envelope-digest"), "wrong", "{:#}", found.json);
    assert!(
        found.all("build", "library-changed").iter().any(|look| look.place["host"] == "node-1"),
        "{:#}",
        found.json
    );
    assert!(found.all("build", "launch").is_empty());
    assert_eq!(found.code(), 1);
}

#[test]
fn an_envelope_of_a_host_that_the_file_does_not_have_any_more_is_told() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    project.cluster("[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cpu\"\n[[host]]\nname = \"node-1\"\npath = \".\"\n");
    let found = Examination::of(&project, &[], &[]);
    let other = found.all("build", "envelope").into_iter().find(|look| look.state == "doubtful").unwrap();
    assert!(other.found.contains("`target/cluster/node-2`"), "{other:?}");
}

#[test]
fn what_is_in_the_way_of_a_build_is_told_before_it() {
    let project = Project::linked();
    fs_err::create_dir_all(project.envelope_file("node-1")).unwrap();
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.state("build", "place-taken"), "wrong");
    assert_eq!(found.code(), 1);
}
