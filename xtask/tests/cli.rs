//! What all verbs have in common: names, help, usage errors, and readers that go away.

#![expect(clippy::unwrap_used, reason = "a test stops where its ground is not there")]

use std::process::{Command, Output};

use torchlift_schema::exit_code;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The installed tool, started as cargo starts it: with the subcommand's own name in front.
fn cargo_torchlift(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cargo-torchlift")).arg("torchlift").args(args).output().unwrap()
}

#[test]
fn both_names_of_the_tool_have_the_same_verbs_and_each_speaks_of_itself() {
    let installed = cargo_torchlift(&["--help"]);
    let checkout = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("--help").output().unwrap();
    for output in [&installed, &checkout] {
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
    assert!(text(&installed.stdout).contains("Usage: cargo torchlift <COMMAND>"), "{}", text(&installed.stdout));
    assert_eq!(text(&installed.stdout).replace("cargo torchlift", "cargo xtask"), text(&checkout.stdout));
}

#[test]
fn a_command_line_that_cannot_be_meant_is_a_usage_error() {
    for args in [&["no-such-verb"][..], &["build", "--no-such-flag"], &["bench", "--format", "xml"], &[]] {
        let output = cargo_torchlift(args);
        assert_eq!(output.status.code(), Some(exit_code::USAGE.into()), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert_ne!(text(&output.stderr), "", "{args:?}");
    }
}

/// A pipe whose reader is gone before anything is written.
fn closed() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let home = tempfile::tempdir().unwrap();
    for args in
        [&["--help"][..], &["schema", "--check"], &["libtorch", "list"], &["libtorch", "list", "--format", "json"]]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(args).env("TORCHLIFT_HOME", home.path()).current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = command.stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{args:?}");
    }
}
