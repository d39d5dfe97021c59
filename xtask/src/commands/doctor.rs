//! `doctor`: this machine and this cluster, what is right, what is not, how to mend it.

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::time::Duration;

use camino::Utf8PathBuf;
use torchlift::env_vars;

use super::Context;
use super::build::Format;
use crate::doctor::{Question, examine};
use crate::error::CommandError;
use crate::facts::Choice;
use crate::report::doctor::render;
use crate::report::{print_data, print_json};

/// Seconds that one tool may take: a cold Python on a slow disk answers within these, a compiler too.
const PATIENCE: u64 = 10;

/// Arguments of `doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// The cluster file [default: `cluster.toml` in the workspace's root]
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<Utf8PathBuf>,
    /// The `Cargo.toml` of the project [default: found from the working directory upward]
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<Utf8PathBuf>,
    /// The job [default: the first of the cluster file]
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Seconds that one tool may take before it counts as one that hangs
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub patience: u64,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Runs it: 0 when nothing is wrong, 201 when all that is wrong is the project's, else 1.
pub fn run(args: &DoctorArgs, context: &Context) -> Result<u8, CommandError> {
    let choice = Choice {
        cluster: args.cluster.clone(),
        manifest_path: args.manifest_path.clone(),
        job: args.job.clone(),
        ..Choice::default()
    };
    let patience = Duration::from_secs(args.patience);
    let examination = examine(Question { choice, context: context.clone(), patience });
    match args.format {
        Format::Text => print_data(&render(&examination, is_coloured(context)))?,
        Format::Json => print_json(&examination)?,
    }
    Ok(examination.exit_code)
}

/// Whether a person looks at it who wants colours.
fn is_coloured(context: &Context) -> bool {
    let value = |name: &str| context.env.get(OsStr::new(name)).filter(|value| !value.is_empty());
    let is_dumb = value(env_vars::TERM).is_none_or(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb && value(env_vars::NO_COLOR).is_none()
}
