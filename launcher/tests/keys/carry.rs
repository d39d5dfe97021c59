//! The commands that are printed, run as they are, with a shell in the place of ssh.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::{Keys, command, shown, stderr};

/// Runs what a line of a command says, on "the other machine" whose home this is.
fn run(line: &str, home: &Path) {
    let output = Command::new("sh").args(["-c", line]).env("HOME", home).output().unwrap();
    assert!(output.status.success(), "{line}: {}", stderr(&output));
}

#[test]
fn the_folder_is_carried_by_the_line_that_is_printed() {
    let keys = Keys::none();
    keys.ok(&["init"]);
    let said = keys.ok(&["issue", "node-a"]);
    let line = said.lines().find(|line| line.starts_with("  tar ")).unwrap();
    assert!(line.contains("| ssh node-a '"), "{line}");
    let home = tempfile::Builder::new().prefix("zu Hause ö ").tempdir().unwrap();
    let there = home.path().join(".config/torchlift/keys");
    // Twice: what is carried again takes the place of what is there.
    for _ in 0..2 {
        run(&line.replace("ssh node-a", "sh -c"), home.path());
    }
    for name in ["keys.json", "identity.pem", "trust.pem", "revoked.pem"] {
        assert_eq!(fs_err::metadata(there.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(fs_err::metadata(&there).unwrap().permissions().mode() & 0o777, 0o700);
    let shown = shown(&there);
    assert_eq!((&shown["holds"], &shown["issued"][0]["name"]), (&"certificate".into(), &"node-a".into()));
    assert_eq!(shown["findings"], serde_json::json!([]));
    let output = command(&there, &["show"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("the certificate of host `node-a`, until 20"));
    // What it holds issues nothing.
    let output = command(&there, &["issue", "node-b"]).output().unwrap();
    assert_eq!(output.status.code(), Some(200));
    assert!(
        stderr(&output).contains("the keys in") && stderr(&output).contains("are of one host `node-a`"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn several_hosts_are_carried_to_by_one_line() {
    let keys = Keys::issued();
    keys.ok(&["issue", "node-b"]);
    let said = keys.ok(&["rotate"]);
    let line = said.lines().find(|line| line.starts_with("  for host in node-a node-b; do tar ")).unwrap();
    let homes = tempfile::Builder::new().prefix("Häuser ").tempdir().unwrap();
    let line = line.replace("| ssh $host ", "| HOME=\"$HOME/$host\" sh -c ");
    run(&line, homes.path());
    for name in ["node-a", "node-b"] {
        let shown = shown(&homes.path().join(name).join(".config/torchlift/keys"));
        assert_eq!(shown["issued"][0]["name"], name);
        assert_eq!(shown["authorities"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_host_folder_that_was_moved_away_is_missed_by_nobody() {
    let keys = Keys::issued();
    fs_err::remove_dir_all(keys.path().join("host/node-a")).unwrap();
    assert_eq!(keys.shown()["findings"], serde_json::json!([]));
    keys.ok(&["issue", "node-b"]);
    keys.ok(&["rotate"]);
    assert!(keys.path().join("host/node-a/identity.pem").is_file(), "it gets a new one all the same");
}

#[test]
fn the_folder_follows_the_environment() {
    let home = tempfile::tempdir().unwrap();
    let torchlift = |variables: &[(&str, &Path)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
        command.args(["keys", "init"]).env_remove("XDG_CONFIG_HOME").env_remove("HOME");
        command.envs(variables.iter().copied()).output().unwrap()
    };
    assert!(torchlift(&[("HOME", home.path())]).status.success());
    assert!(home.path().join(".config/torchlift/keys/keys.json").is_file());
    let xdg = home.path().join("c ö");
    assert!(torchlift(&[("HOME", home.path()), ("XDG_CONFIG_HOME", &xdg)]).status.success());
    assert!(xdg.join("torchlift/keys/keys.json").is_file());
    let output = torchlift(&[]);
    assert_eq!(output.status.code(), Some(200));
    assert!(stderr(&output).contains("`--keys DIR`"), "{}", stderr(&output));
}
