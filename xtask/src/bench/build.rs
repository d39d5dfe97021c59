//! What a build with nothing to do costs above the one cargo call in it.
//!
//! The project is the demo's: a real tch program, two hosts of one kind. The cargo call is the very one of the plan,
//! with its arguments and environment, run by hand beside it.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use torchlift_schema::exit_code;

use super::{Bound, Figure, median_ms, timed};
use crate::commands::Context;
use crate::error::CommandError;
use crate::toolchain;

/// Enough that one slow run of a busy machine is not the median.
const ROUNDS: usize = 11;

/// Measures `xtask build` with the binary at `xtask`, in the demo's project below `root`.
pub fn figures(xtask: &Utf8Path, root: &Utf8Path, context: &Context) -> Result<Vec<Figure>, CommandError> {
    let project = root.join("fixtures/projects/tch-train");
    // The first build does what there is to do.
    time_of(&mut build(xtask, &project, &[]))?;
    let mut bare = cargo_of_plan(xtask, &project, &[], context)?;
    let mut ours = Vec::new();
    let mut cargo = Vec::new();
    for _ in 0..ROUNDS {
        cargo.push(time_of(&mut bare)?);
        ours.push(time_of(&mut build(xtask, &project, &[]))?);
    }
    Ok(vec![Figure {
        name: "xtask build with nothing to do, two hosts of one kind".into(),
        ours: median_ms(&ours),
        yardstick: Some(("the one cargo call in it".into(), median_ms(&cargo))),
        unit: "ms",
        bound: Bound::Above(300.0),
    }])
}

pub(super) fn build(xtask: &Utf8Path, project: &Utf8Path, more: &[&str]) -> Command {
    let mut command = Command::new(xtask);
    command.arg("build").args(more).current_dir(project);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

/// The cargo call that the plan names, ready to be run.
pub(super) fn cargo_of_plan(
    xtask: &Utf8Path,
    project: &Utf8Path,
    more: &[&str],
    context: &Context,
) -> Result<Command, CommandError> {
    let arguments = [&["--dry-run", "--format", "json"], more].concat();
    let output = build(xtask, project, &arguments).output().map_err(cannot_run(xtask.as_str()))?;
    let unexpected = || {
        CommandError::new(
            exit_code::BUILD,
            format!("`{xtask} build --dry-run --format json` gave no plan with one build"),
        )
    };
    let plan: Value = serde_json::from_slice(&output.stdout).map_err(|error| unexpected().because(error))?;
    let [build] = plan["builds"].as_array().ok_or_else(unexpected)?.as_slice() else { return Err(unexpected()) };
    let words = |key: &str| -> Vec<String> {
        let list = build[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let workspace = Utf8PathBuf::from(plan["workspace"].as_str().ok_or_else(unexpected)?);
    let mut command = Command::new(build["cargo"].as_str().ok_or_else(unexpected)?);
    command.args(words("args")).current_dir(workspace).env_clear().envs(toolchain::inherited(context));
    for name in words("env_unset") {
        command.env_remove(name);
    }
    for (name, value) in build["env"].as_object().into_iter().flatten() {
        command.env(OsString::from(name), OsString::from(value.as_str().unwrap_or_default()));
    }
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// The time of one run that must succeed.
pub(super) fn time_of(command: &mut Command) -> Result<Duration, CommandError> {
    timed(command).map(|(_, taken)| taken)
}

fn cannot_run(program: &str) -> impl Fn(std::io::Error) -> CommandError {
    let message = format!("cannot run `{program}`");
    move |error| CommandError::new(exit_code::BUILD, message.clone()).because(error)
}
