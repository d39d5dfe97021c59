//! What would not start is told before anything does, all at once, and leaves nothing behind.

use std::path::Path;
use std::process::Command;

use crate::stage::{Stage, seen};

#[test]
fn a_program_that_cannot_run_is_named_before_anything_starts() {
    let stage = Stage::new();
    stage.write("not-executable", "#!/bin/sh\n", 0o644);
    stage.write("no-interpreter", "#!/no/such/interpreter\n", 0o755);
    stage.write("text", "no program\n", 0o755);
    fs_err::create_dir(stage.folder.join("folder")).unwrap();
    for (program, code) in [
        ("./missing", "program-missing"),
        ("no-such-program-anywhere", "program-missing"),
        ("./not-executable", "program-not-executable"),
        ("./folder", "program-not-a-file"),
        ("./no-interpreter", "interpreter-missing"),
        ("./text", "program-unusable"),
    ] {
        let seen = stage.run(["run", "--nproc", "2", "--", program]);
        seen.code(203).says(&format!("error[{code}]")).says(program.trim_start_matches("./"));
    }
    assert!(stage.runs().is_empty());
}

#[test]
fn a_missing_library_is_named_and_is_never_a_127() {
    let stage = Stage::new();
    build_with_library(&stage.folder);
    let libraries = stage.folder.join("libraries");
    let run = |path: &Path| {
        let mut command = stage.command();
        seen(command.env("LD_LIBRARY_PATH", path).args(["run", "--nproc", "2", "--quiet", "--", "./program"]))
    };
    run(&libraries).code(0);
    fs_err::remove_file(libraries.join("libstand_in.so")).unwrap();
    run(&libraries).code(203).says("error[library-missing]").says("libstand_in.so");
    assert_eq!(stage.runs().len(), 1);
}

/// `program`, which needs `libraries/libstand_in.so`.
fn build_with_library(folder: &Path) {
    fs_err::create_dir(folder.join("libraries")).unwrap();
    fs_err::write(folder.join("library.c"), "int answer(void) { return 0; }\n").unwrap();
    fs_err::write(folder.join("program.c"), "int answer(void); int main(void) { return answer(); }\n").unwrap();
    let cc = |args: &[&str]| {
        let status = Command::new("cc").current_dir(folder).args(args).status().unwrap();
        assert!(status.success(), "cc {args:?}");
    };
    cc(&["-shared", "-fPIC", "-o", "libraries/libstand_in.so", "library.c"]);
    cc(&["-o", "program", "program.c", "-Llibraries", "-lstand_in"]);
}

#[test]
fn required_paths_are_all_looked_for() {
    let stage = Stage::new();
    stage.write("there", "", 0o644);
    let options = ["--nproc", "1", "--require", "there", "--require", "not here", "--require", "/nor/there"];
    let seen = stage.sh(&options, "true");
    seen.code(203).says("not here`, which is required, is not there").says("`/nor/there`, which is required");
    assert_eq!(seen.stderr.matches("error[required-missing]").count(), 2);
    stage.sh(&["--nproc", "1", "--require", "there"], "true").code(0);
}

#[test]
fn what_is_passed_on_but_unset_is_a_warning() {
    let stage = Stage::new();
    stage.sh(&["--nproc", "1", "--env-pass", "NOT_SET_HERE"], "true").code(0).says("warning[env-pass-unset]");
}
