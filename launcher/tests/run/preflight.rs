//! What would not start is told before anything does, all at once, and leaves nothing behind.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use torchlift_schema::{Artifact, Envelope, PerHostEnvelope, write};

use crate::stage::{Seen, Stage, seen};

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

/// `torchlift run` as a user who may not read what root alone may, in a folder that this user may enter and write to.
fn as_stranger(stage: &Stage, args: &[&str]) -> Seen {
    let open = |path: &Path| fs_err::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    open(&stage.folder);
    open(stage.folder.parent().unwrap());
    // The build's own folder may be below a home that nobody else may enter.
    let torchlift = stage.folder.join("torchlift");
    fs_err::copy(env!("CARGO_BIN_EXE_torchlift"), &torchlift).unwrap();
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&torchlift);
        command
    } else {
        Command::new(&torchlift)
    };
    command.current_dir(&stage.folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &stage.folder);
    seen(command.arg("run").args(args))
}

#[test]
fn a_program_that_may_be_executed_and_not_read_runs_with_a_warning() {
    let stage = Stage::new();
    fs_err::copy("/bin/echo", stage.folder.join("echo")).unwrap();
    // A user's own file without the bit for reading is as unreadable as root's file with the bit for executing alone.
    fs_err::set_permissions(stage.folder.join("echo"), Permissions::from_mode(0o111)).unwrap();
    let seen = as_stranger(&stage, &["--nproc", "1", "--", "./echo", "ran"]);
    seen.code(0).says("warning[program-unreadable]").says("may be executed and not read");
    assert_eq!(seen.stdout, "[local:0] ran\n");
    // The same for a script's interpreter, whose libraries nobody looks at anyway.
    stage.write("script", &format!("#!{}/shell\n", link_without_spaces(&stage).display()), 0o755);
    fs_err::copy("/bin/echo", stage.folder.join("shell")).unwrap();
    fs_err::set_permissions(stage.folder.join("shell"), Permissions::from_mode(0o111)).unwrap();
    let seen = as_stranger(&stage, &["--nproc", "1", "--quiet", "--", "./script"]);
    assert_eq!(seen.code(0).stderr, "");
}

/// A way to the folder that a `#!` line can have in it.
fn link_without_spaces(stage: &Stage) -> PathBuf {
    let link = stage.folder.parent().unwrap().join("plain");
    std::os::unix::fs::symlink(&stage.folder, &link).unwrap();
    link
}

#[test]
fn a_program_of_an_envelope_that_may_not_be_read_is_an_integrity_error_that_says_why() {
    let stage = Stage::new();
    let program = stage.folder.join("echo");
    fs_err::copy("/bin/echo", &program).unwrap();
    let digest = torchlift::preflight::digest::digest(&program).unwrap();
    let run = PerHostEnvelope { bin: "echo".to_owned(), ld_library_path: String::new(), cwd_subpath: String::new() };
    let artifact = Artifact::new("x86_64-unknown-linux-gnu", digest.size, digest.sha256, "0123abcd", "source");
    let envelope = write::seal(Envelope::new("node-a", run, artifact));
    stage.write("envelope.json", &write::to_text(&envelope), 0o644);
    as_stranger(&stage, &["--envelopes", "envelope.json", "--", "ran"]).code(0);
    fs_err::set_permissions(&program, Permissions::from_mode(0o111)).unwrap();
    let seen = as_stranger(&stage, &["--envelopes", "envelope.json", "--", "ran"]);
    seen.code(205).says("error[program-changed]").says("it cannot be read: permission denied").says("chmod +r");
    assert_eq!(seen.stderr.matches("error[").count(), 1, "{}", seen.stderr);
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
