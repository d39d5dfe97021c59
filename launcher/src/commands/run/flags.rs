//! The options that `torchlift run` and `cargo xtask launch` have in common.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::env_vars;

/// The default of `--runs`, below the folder that a command is about.
pub const RUNS_DIR: &str = ".torchlift/runs";

/// How a run ends, what its ranks get, and how it is shown.
#[derive(Clone, Debug, Args)]
pub struct RunFlags {
    /// Set a variable for every rank; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = assignment, help_heading = "Ranks")]
    pub env: Vec<(String, String)>,
    /// Pass a variable of this environment on to every rank, masked wherever it is shown; may be repeated
    #[arg(long, value_name = "NAME", value_parser = variable, help_heading = "Ranks")]
    pub env_pass: Vec<String>,
    /// Start only if this path is there, relative to each host's path; may be repeated
    #[arg(long, value_name = "PATH", help_heading = "Ranks")]
    pub require: Vec<String>,
    /// TCP port for rank 0 [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Ranks")]
    pub master_port: Option<u16>,
    /// Let each rank see one card only, as local rank 0
    #[arg(long, help_heading = "Ranks")]
    pub one_gpu_per_rank: bool,
    /// Time between the first signal and SIGKILL, such as `30s`, `1m` or `500ms`
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s", help_heading = "Run")]
    pub grace: Duration,
    /// Read programs and libraries whole before the start, whatever is remembered of their digests
    #[arg(long, help_heading = "Run")]
    pub paranoid: bool,
    /// Folder that gets a folder for each run
    #[arg(long, value_name = "DIR", default_value = RUNS_DIR, help_heading = "Run")]
    pub runs: PathBuf,
    /// Return once the ranks run, and let them go on by themselves: `torchlift status`, `logs`, `attach`, `stop`
    #[arg(long, conflicts_with = "dry_run", help_heading = "Run")]
    pub detach: bool,
    /// Print each rank's command, folder and environment, and start nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Print the final report (or the plan of a dry run) on stdout as JSON; ranks' lines then go to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text, help_heading = "Output")]
    pub format: Format,
    /// Show only failures: ranks' lines go to their files alone
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl RunFlags {
    /// `--env` as a map; the last of a name holds.
    pub fn job_env(&self) -> BTreeMap<String, String> {
        self.env.iter().cloned().collect()
    }

    /// How the run is shown.
    pub fn options(&self) -> RunOptions {
        RunOptions { format: self.format, is_quiet: self.quiet, is_dry_run: self.dry_run, is_paranoid: self.paranoid }
    }
}

/// How a run is shown, and how hard is looked before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// What stdout is for.
    pub format: Format,
    /// Whether only failures are shown.
    pub is_quiet: bool,
    /// Whether the plan is printed and nothing started.
    pub is_dry_run: bool,
    /// Whether every file that has a digest is read for it now.
    pub is_paranoid: bool,
}

/// What stdout is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Ranks' stdout.
    #[default]
    Text,
    /// The report or the plan, as JSON.
    Json,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("no name stands before the `=`".to_owned()),
        Some((name, value)) => Ok((variable(name)?, value.to_owned())),
        None => Err("no `=`; to pass a variable of this environment on, use `--env-pass NAME`".to_owned()),
    }
}

fn variable(name: &str) -> Result<String, String> {
    if env_vars::is_name(name) {
        return Ok(name.to_owned());
    }
    Err(format!("`{}` is no name of a variable; {}", name.escape_debug(), env_vars::NAME_REMEDY))
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as `30s`, `1m` or `500ms`"))
}
