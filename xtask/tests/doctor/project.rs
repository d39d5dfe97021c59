//! Projects: none, broken ones, a cluster file with many faults.

use torchlift_schema::exit_code;

use crate::examination::Examination;
use crate::support::Project;

#[test]
fn outside_of_any_project_the_machine_is_told_and_what_to_do_next() {
    let project = Project::linked();
    let empty = project.beside("leerer Ordner ü");
    let found = Examination::by(project.command(&["doctor", "--format", "json"]).current_dir(&empty));
    assert_eq!(found.code(), exit_code::OK, "{:#}", found.json);
    let look = found.only("project", "workspace");
    assert!(look.state == "unchecked" && look.remedy.contains("cargo new"), "{look:?}");
    let look = found.only("project", "cluster-file");
    assert!(look.state == "doubtful" && look.remedy.contains("docs/cluster-file.md"), "{look:?}");
    assert_eq!(found.state("machine", "cpu"), "right");
    assert_eq!(found.state("tools", "rustc"), "right");
    let look = found.only("store", "no-variant");
    assert!(look.state == "doubtful" && look.remedy.contains("libtorch fetch"), "{look:?}");
}

#[test]
fn a_project_without_a_cluster_file_is_told_how_to_write_one() {
    let project = Project::copy_of("linked");
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.code(), exit_code::OK, "{:#}", found.json);
    assert_eq!(found.state("project", "workspace"), "right");
    let look = found.only("project", "cluster-file");
    assert!(look.state == "doubtful" && look.remedy.contains("[[host]]"), "{look:?}");
    let found = Examination::of(&project, &["--cluster", "nowhere.toml"], &[]);
    assert_eq!(found.state("project", "cluster-unreadable"), "wrong", "one that was named must be there");
    assert_eq!(found.code(), exit_code::CLUSTER_FILE);
}

#[test]
fn every_fault_of_a_cluster_file_comes_in_one_run() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nbin = 'linkd'\nprofile = 'qick'\ncolour = 'red'\n\
         [kind.k]\nlibtorch = 'test/cpx'\n\
         [[host]]\nname = 'node-1'\nkind = 'k'\npath = '.'\n\
         [[host]]\nname = 'node-1'\nkind = 'k'\npath = '.'\n\
         [[host]]\nname = 'gone'\nkind = 'k'\npath = '/does/not exist/ü'\n",
    );
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.code(), exit_code::CLUSTER_FILE, "{:#}", found.json);
    let wrong: Vec<String> =
        found.looks().into_iter().filter(|look| look.state == "wrong").map(|look| look.id).collect();
    for code in
        ["program-unknown", "profile-unknown", "unknown-key", "libtorch-not-found", "duplicate-host", "path-missing"]
    {
        assert!(wrong.iter().any(|id| id == code), "{code}: {wrong:?}");
    }
    let look = found.only("project", "unknown-key");
    assert_eq!((look.place["file"].as_str(), look.place["line"].as_u64()), (Some("cluster.toml"), Some(5)), "{look:?}");
    assert_eq!(found.state("cluster", "kind"), "unchecked");
    assert_eq!(found.state("build", "plan"), "unchecked");
    assert_eq!(found.state("tools", "rustc"), "right");
}

#[test]
fn a_cluster_file_that_is_no_text_is_a_line() {
    let project = Project::linked();
    for bytes in [&b"\xff\xfe\x00schema"[..], b"schema = 2\n", b"[[[", b""] {
        fs_err::write(project.root.join("cluster.toml"), bytes).unwrap();
        let found = Examination::of(&project, &[], &[]);
        assert_eq!(found.code(), exit_code::CLUSTER_FILE, "{:#}", found.json);
    }
    fs_err::remove_file(project.root.join("cluster.toml")).unwrap();
    nix::unistd::mkfifo(&project.root.join("cluster.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let look = Examination::of(&project, &[], &[]).only("project", "cluster-unreadable");
    assert!(look.found.contains("pipe"), "{look:?}");
}

#[test]
fn a_manifest_that_cargo_cannot_read_is_told_in_cargos_words() {
    let project = Project::linked();
    project.write("Cargo.toml", "[package\n");
    let found = Examination::of(&project, &[], &[]);
    let look = found.only("project", "workspace");
    assert!(look.state == "wrong" && look.found.contains("Cargo.toml"), "{look:?}");
    assert_eq!(found.state("project", "cluster-file"), "right", "what can be read is read");
    assert_eq!(found.code(), exit_code::CLUSTER_FILE);
}

#[test]
fn a_job_that_is_not_the_first_is_looked_at_too() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[job.eval]\nbin = \"evaluate\"\n[kind.k]\nlibtorch = \"test/cpu\"\n\
         [[host]]\nname = \"a\"\npath = \".\"\n",
    );
    let look = Examination::of(&project, &[], &[]).only("project", "program-unknown");
    assert!(look.state == "wrong" && look.found.contains("`evaluate`"), "{look:?}");
    let look = Examination::of(&project, &["--job", "evl"], &[]).only("project", "unknown-job");
    assert!(look.remedy.contains("`eval`"), "{look:?}");
}

#[test]
fn a_local_overlay_is_named() {
    let project = Project::linked();
    project.write("cluster.local.toml", "[job.train]\nprofile = \"release\"\n");
    let found = Examination::of(&project, &[], &[]);
    assert!(
        found.only("project", "cluster-file").found.contains("`cluster.local.toml` is laid over it"),
        "{:#}",
        found.json
    );
    assert!(found.only("project", "job").found.ends_with("profile `release`"));
}
