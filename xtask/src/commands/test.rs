//! `test`: all of Torchlift's own tests, the slow real parts last.
//!
//! Owns the order of the stages and the account of what could not be run. The tests themselves are ordinary cargo tests;
//! one that lacks a part says so in the file that `TORCHLIFT_TEST_SKIPS` names (see `fixtures/support/skip.rs`).

use std::process::Command;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars::TORCHLIFT_TEST_SKIPS;
use torchlift_schema::exit_code;

use super::{CHECK_FAILED, Context};
use crate::checkout;
use crate::error::CommandError;
use crate::report::say;
use crate::toolchain;

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Make a test that cannot run on this machine an error
    #[arg(long)]
    deny_skips: bool,
    /// Leave out the tests that fetch and use a real libtorch; counts as a skip
    #[arg(long)]
    no_libtorch: bool,
}

/// One `cargo test` of the list.
struct Stage {
    title: &'static str,
    args: Vec<String>,
    needs_libtorch: bool,
}

/// A test that was not run.
struct Skip {
    test: String,
    reason: String,
    remedy: String,
}

/// Runs it.
pub fn run(args: &TestArgs, context: &Context) -> Result<u8, CommandError> {
    let root = checkout::root(&context.invocation, "test")?;
    let scratch = tempfile::tempdir().map_err(|error| {
        CommandError::new(exit_code::BUILD, "cannot make a temporary folder").because(error).hint("set TMPDIR")
    })?;
    let skips_file = Utf8PathBuf::from(scratch.path().join("skips").to_string_lossy().into_owned());
    let mut failed = Vec::new();
    let mut skips = Vec::new();
    for stage in stages(&root) {
        if stage.needs_libtorch && args.no_libtorch {
            skips.push(Skip {
                test: stage.title.to_owned(),
                reason: "`--no-libtorch` was given".to_owned(),
                remedy: "leave it out".to_owned(),
            });
            continue;
        }
        say(&format!("\n== {}", stage.title));
        if !run_stage(&stage, &root, &skips_file, context)? {
            failed.push(stage.title);
        }
    }
    skips.extend(read_skips(&skips_file));
    if !skips.is_empty() {
        say(&account(&skips));
    }
    verdict(&failed, &skips, args.deny_skips)?;
    say("all tests passed");
    Ok(exit_code::OK)
}

fn verdict(failed: &[&str], skips: &[Skip], deny_skips: bool) -> Result<(), CommandError> {
    if !failed.is_empty() {
        return Err(CommandError::new(CHECK_FAILED, format!("tests failed: {}", failed.join(", "))));
    }
    if deny_skips && !skips.is_empty() {
        return Err(CommandError::new(
            CHECK_FAILED,
            format!("{} could not be run, and `--deny-skips` was given", count(skips)),
        )
        .hint("each line above says how to get what it needs"));
    }
    Ok(())
}

fn stages(root: &Utf8Path) -> Vec<Stage> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let misbehave = root.join("fixtures/projects/misbehave/Cargo.toml");
    vec![
        Stage {
            title: "fixture program `misbehave`",
            args: [words("test --locked --manifest-path"), vec![misbehave.into_string()]].concat(),
            needs_libtorch: false,
        },
        Stage {
            title: "workspace: unit and integration tests",
            args: words("test --workspace --locked --no-fail-fast"),
            needs_libtorch: false,
        },
        Stage {
            title: "real libtorch and containers: fetch, build, launch and train",
            args: words(
                "test --package torchlift-xtask --features real-libtorch --locked --test real_libtorch -- --nocapture --test-threads 1",
            ),
            needs_libtorch: true,
        },
    ]
}

/// Runs one stage with its output passed through; whether it passed.
fn run_stage(stage: &Stage, root: &Utf8Path, skips: &Utf8Path, context: &Context) -> Result<bool, CommandError> {
    let cargo = toolchain::cargo_program(context);
    let mut command = Command::new(&cargo);
    command.args(&stage.args).current_dir(root).env_clear().envs(toolchain::inherited(context));
    command.env(TORCHLIFT_TEST_SKIPS, skips);
    let status = command.status().map_err(|error| {
        CommandError::new(exit_code::BUILD, format!("cannot run `{}`", cargo.to_string_lossy())).because(error)
    })?;
    Ok(status.success())
}

fn read_skips(file: &Utf8Path) -> Vec<Skip> {
    let text = fs_err::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| {
            let mut fields = line.split('\t').map(str::to_owned);
            let mut next = || fields.next().unwrap_or_default();
            Skip { test: next(), reason: next(), remedy: next() }
        })
        .collect()
}

fn account(skips: &[Skip]) -> String {
    let mut text = format!("\n{} could not be run on this machine:", count(skips));
    for skip in skips {
        text.push_str(&format!("\n  {}: {}\n    to get it: {}", skip.test, skip.reason, skip.remedy));
    }
    text
}

fn count(skips: &[Skip]) -> String {
    if skips.len() == 1 { "1 test".to_owned() } else { format!("{} tests", skips.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_run_is_named_with_reason_and_remedy_and_is_an_error_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let file = Utf8PathBuf::try_from(folder.path().join("skips")).unwrap();
        assert!(read_skips(&file).is_empty(), "no test said anything");
        fs_err::write(&file, "a_test\tno tmpfs\trun as root\n").unwrap();
        let skips = read_skips(&file);
        assert_eq!(
            account(&skips),
            "\n1 test could not be run on this machine:\n  a_test: no tmpfs\n    to get it: run as root"
        );
        assert!(verdict(&[], &skips, false).is_ok());
        assert!(verdict(&[], &[], true).is_ok());
        let denied = verdict(&[], &skips, true).unwrap_err();
        assert_eq!(
            (denied.exit_code(), denied.to_string().as_str()),
            (1, "1 test could not be run, and `--deny-skips` was given")
        );
        assert_eq!(verdict(&["a", "b"], &skips, true).unwrap_err().to_string(), "tests failed: a, b");
    }
}
