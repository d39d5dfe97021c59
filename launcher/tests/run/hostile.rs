//! Names and texts that try to steer a terminal, or to look like words of the launcher.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::stage::{Seen, Stage, seen};

/// Turns the terminal red, begins a line that looks like ours, and turns the order of letters.
const ODD: &str = "x\x1b[31m\nerror: forged\r\u{9b}\u{202e}";

#[track_caller]
fn is_harmless(what: &str, seen: &Seen) {
    for text in [&seen.stderr, &seen.stdout] {
        let obeyed = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert_eq!(obeyed, None, "{what}:\n{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{what}:\n{text}");
    }
    assert!(seen.stderr.contains("forged") || seen.stdout.contains("forged"), "{what} is not named:\n{}", seen.stderr);
}

#[test]
fn what_a_person_gives_is_never_printed_as_a_terminal_would_obey_it() {
    let stage = Stage::new();
    stage.write("bin/true", "#!/bin/sh\n", 0o755);
    stage.write("file", "", 0o644);
    stage.write("envelopes/a.json", r#"{"bin": "bin/true", "ld_library_path": ""}"#, 0o644);
    stage.write(&format!("bad/{}.json", ODD.replace('\r', "")), "{", 0o644);
    let path = format!("./{ODD}");
    let below_file = format!("file/{ODD}");
    let of_host = format!("{ODD}=1");
    let of_env = format!("{ODD}=value");
    for args in [
        &["--nproc", "1", "--require", ODD, "--", "true"][..],
        &["--nproc", "1", "--", ODD],
        &["--nproc", "1", "--", &path],
        &["--nproc", "1", "--runs", &below_file, "--", "true"],
        &["--nproc", "1", "--env", &of_env, "--", "true"],
        &["--nproc", "1", "--env", ODD, "--", "true"],
        &["--nproc", "1", "--env-pass", ODD, "--", "true"],
        &["--nproc", "1", "--grace", ODD, "--", "true"],
        &["--nproc", ODD, "--", "true"],
        &["--nproc", "1", "--format", ODD, "--", "true"],
        &[ODD],
        &["--envelopes", ODD],
        &["--envelopes", "bad"],
        &["--envelopes", "envelopes", "--host", ODD],
        &["--envelopes", "envelopes", "--slots", ODD],
        &["--envelopes", "envelopes", "--slots", &of_host],
        &["--envelopes", "envelopes", "--path", &of_host],
        &["--envelopes", "envelopes", "--path", ODD],
        &["--nproc", "1", "--dry-run", "--", "/bin/true", ODD],
    ] {
        is_harmless(&format!("{args:?}"), &stage.run(["run"].iter().chain(args)));
    }
    is_harmless("a verb", &stage.run([ODD]));
}

#[test]
fn a_run_in_a_folder_with_such_a_name_prints_it_spelled_out() {
    let stage = Stage::new();
    let folder = stage.folder.join(ODD);
    fs_err::create_dir(&folder).unwrap();
    // A line that is cut names its file, and so does a failure, with and without a last line.
    for script in ["head -c 70000 /dev/zero | tr '\\0' x; echo; exit 3", "echo last >&2; exit 3"] {
        let mut command = stage.command();
        command.current_dir(&folder).args(["run", "--nproc", "1", "--", "/bin/sh", "-c", script]);
        let seen = seen(&mut command);
        is_harmless(script, seen.code(3));
    }
}

#[test]
fn bytes_that_are_no_text_are_named_as_well_as_they_can_be() {
    let stage = Stage::new();
    let program = OsString::from_vec(b"./no-\xff-text".to_vec());
    let args = ["run", "--nproc", "1", "--"].map(OsString::from).into_iter().chain([program]);
    stage.run(args).code(203).says("no-\u{fffd}-text` is not there");
}
