//! `--dry-run`: everything is shown but secrets, and nothing is done.

use std::collections::BTreeMap;
use std::process::Command;

use crate::stage::{Stage, seen};

const SECRET: &str = "hunter2-very-secret";

#[test]
fn a_dry_run_masks_what_is_passed_on_and_makes_nothing() {
    let stage = Stage::new();
    for format in ["text", "json"] {
        let seen = seen(stage.command().env("API_KEY", SECRET).env("OTHER_SECRET", SECRET).args([
            "run",
            "--nproc",
            "2",
            "--env-pass",
            "API_KEY",
            "--env",
            "MODE=fast",
            "--dry-run",
            "--format",
            format,
            "--",
            "/bin/echo",
            "x y",
        ]));
        seen.code(0);
        assert!(!seen.stdout.contains(SECRET), "{}", seen.stdout);
        assert!(seen.stdout.contains("API_KEY") && seen.stdout.contains("MODE"), "{}", seen.stdout);
        assert_eq!(seen.stderr, "");
    }
    assert_eq!(fs_err::read_dir(&stage.folder).unwrap().count(), 0);
}

#[test]
fn the_json_of_a_dry_run_has_each_rank_s_own_variables() {
    let stage = Stage::new();
    let seen = stage.run(["run", "--nproc", "2", "--dry-run", "--format", "json", "--", "/bin/echo", "x y"]);
    let plan: serde_json::Value = serde_json::from_str(&seen.code(0).stdout).unwrap();
    let host = &plan["hosts"][0];
    assert_eq!(host["program"], "/bin/echo");
    assert_eq!(host["args"][0], "x y");
    assert_eq!(host["env"]["WORLD_SIZE"], "2");
    assert_eq!(host["ranks"][1]["env"]["RANK"], "1");
    assert_eq!(host["inherited"], serde_json::json!(["HOME", "PATH"]));
    assert!(plan["master_port"].is_null());
}

#[test]
fn a_command_of_a_dry_run_pasted_into_a_shell_is_the_rank() {
    let stage = Stage::new();
    let options = ["--nproc", "2", "--master-port", "29511", "--env", "J={\"a\": (b)}", "--env-pass", "API_KEY"];
    let command = |extra: &[&str]| {
        let mut command = stage.command();
        command.env("API_KEY", SECRET).env("CARGO_HOME", "/x").arg("run").args(options).args(extra);
        command.args(["--", "/usr/bin/env", "-0"]);
        command
    };
    let shown = seen(&mut command(&["--dry-run"]));
    let pasted = shown.code(0).stdout.split("\n\n").nth(2).unwrap().to_owned();
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &stage.folder).env("API_KEY", SECRET);
    let by_hand = variables(seen(shell.env("CARGO_HOME", "/x").args(["-c", &pasted])).code(0).stdout.as_bytes());
    seen(&mut command(&[])).code(0);
    let real = variables(&stage.log(1, "stdout"));
    assert_eq!(by_hand["RANK"], "1");
    assert_eq!(by_hand["API_KEY"], SECRET);
    assert_eq!(by_hand, real);
}

/// The output of `env -0`, but for what is another one in each run.
fn variables(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let pairs = text.split_terminator('\0').map(|pair| pair.split_once('=').unwrap());
    pairs
        .filter(|(name, _)| !["TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID"].contains(name))
        .filter(|(name, _)| !["TORCHLIFT_RUN_DIR", "TORCHLIFT_RUN_ID"].contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn what_is_passed_on_is_in_no_file_of_a_run() {
    let stage = Stage::new();
    stage.write("expected", SECRET, 0o644);
    let script = r#"echo out; echo err >&2; [ "$API_KEY" = "$(cat expected)" ]"#;
    let seen = seen(stage.command().envs([("API_KEY", SECRET), ("NOT_NAMED", SECRET)]).args([
        "run",
        "--nproc",
        "2",
        "--env-pass",
        "API_KEY",
        "--",
        "/bin/sh",
        "-c",
        script,
    ]));
    seen.code(0);
    let mut files = vec![stage.only_run()];
    let mut looked_at = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs_err::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        looked_at += 1;
        let text = String::from_utf8_lossy(&fs_err::read(&path).unwrap()).into_owned();
        assert!(!text.contains(SECRET), "{}", path.display());
    }
    assert_eq!(looked_at, 7, "plan, events, report and two files a rank");
    assert!(!seen.stderr.contains(SECRET));
}
