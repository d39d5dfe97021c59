//! `probe`: what this host is, for people, for programs, and for `cluster.facts.json`.
//!
//! `machine` asks this machine itself, and is also what `cargo xtask` does for a host that is this one and has no entry.
//! `asker` is the process in which NVIDIA's library is opened.

mod asker;
mod machine;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use torchlift_schema::{ClusterFacts, Finding, HostFacts, exit_code, facts};

use crate::commands::Context;
use crate::error::CommandError;
use crate::output::terminal;
use crate::preflight::host::saved::{self, Saved, SavedError};
use crate::report::{console, failure, host};

pub use asker::enter;
pub(crate) use machine::card_users;
pub use machine::of_this_machine;

/// The cluster file, beside which facts are kept.
const CLUSTER_FILE: &str = "cluster.toml";

/// Says what this host is: CPU, C library, GPUs and their drivers, memory, disks, limits
///
/// Everything is read anew, and nothing is changed. What could not be read is told on stderr, with the reason.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProbeArgs {
    /// How facts are printed: for people, or the JSON of `cluster.facts.json` with this host alone
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: Format,
    /// Write the facts into this file, and leave those of other hosts as they are
    /// [default: `cluster.facts.json` beside the nearest `cluster.toml`, from the working directory upward]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub save: Option<Option<PathBuf>>,
    /// What the cluster file calls this host [default: its hostname up to the first dot]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

/// How facts are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Runs it.
///
/// # Errors
/// When there is no name for the host, or its facts cannot be saved. What could not be read is no failure.
pub(crate) fn run(args: &ProbeArgs, context: &Context) -> Result<u8, CommandError> {
    // Before anything is read: what cannot be saved need not be.
    let target = args.save.as_ref().map(|file| target(file.as_deref(), context)).transpose()?;
    let project = target.as_deref().and_then(Path::parent).unwrap_or(&context.cwd);
    let (name, all) = gathered(args.host.as_deref(), project, context)?;
    tell(&name, &all.hosts[&name].problems);
    check(&all)?;
    let facts = &all.hosts[&name];
    let text = match args.format {
        Format::Text => host::render(&name, facts),
        Format::Json => facts::to_text(&all),
    };
    terminal::print_data(text.as_bytes())
        .map_err(|error| CommandError::new(exit_code::USAGE, "cannot write to stdout").because(error))?;
    if let Some(file) = target {
        let saved =
            saved::save(&file, &name, facts.clone(), saved::PATIENCE).map_err(|error| not_saved(&name, error))?;
        let word = match saved {
            Saved::Added => "added to",
            Saved::Replaced => "replaced in",
        };
        console::print(&format!("host `{name}` {word} `{}`\n", file.display()));
    }
    Ok(exit_code::OK)
}

/// This machine's facts, under this name or its own; what could not be read is in them.
///
/// # Errors
/// When there is no name for the host.
pub(crate) fn gathered(
    name: Option<&str>,
    project: &Path,
    context: &Context,
) -> Result<(String, ClusterFacts), CommandError> {
    let facts = of_this_machine(&context.env, &context.cwd, project);
    let name = self::name(name, &facts)?;
    let all = ClusterFacts::of(&name, facts);
    Ok((name, all))
}

/// Whether facts can be written down.
///
/// # Errors
/// With all that stands against it.
pub(crate) fn check(all: &ClusterFacts) -> Result<(), CommandError> {
    let remedy = "give the name that the cluster file has for this host: `--host NAME`";
    let beyond = "this is a defect of torchlift: show it to those who make it";
    let remedied = |finding: Finding| {
        let is_name = finding.code == "facts-host-name";
        finding.remedy(if is_name { remedy } else { beyond })
    };
    let findings: Vec<Finding> = all.validate().into_iter().map(remedied).collect();
    if findings.is_empty() {
        Ok(())
    } else {
        Err(CommandError::findings(exit_code::USAGE, "the facts of this host cannot be written down", findings))
    }
}

/// The file to save to.
fn target(given: Option<&Path>, context: &Context) -> Result<PathBuf, CommandError> {
    if let Some(file) = given {
        return Ok(context.cwd.join(file));
    }
    let folder = context.cwd.ancestors().find(|folder| folder.join(CLUSTER_FILE).is_file());
    folder.map(|folder| folder.join(saved::FILE_NAME)).ok_or_else(|| {
        let message = format!(
            "there is no `{CLUSTER_FILE}` in `{}` or above it, beside which facts are kept",
            context.cwd.display()
        );
        CommandError::new(exit_code::USAGE, message)
            .hint(format!("change into the project, or name the file: `--save {}`", saved::FILE_NAME))
    })
}

fn name(given: Option<&str>, facts: &HostFacts) -> Result<String, CommandError> {
    if let Some(name) = given {
        return Ok(name.to_owned());
    }
    // DNS names it by its first label, as a cluster file does.
    let hostname =
        facts.system.hostname.as_deref().and_then(|name| name.split('.').next()).filter(|name| !name.is_empty());
    hostname.map(str::to_owned).ok_or_else(|| {
        CommandError::new(exit_code::USAGE, "this host does not say its name")
            .hint("give the one of the cluster file: `--host NAME`")
    })
}

fn tell(name: &str, problems: &[Finding]) {
    let on_host = |problem: &Finding| {
        let mut problem = problem.clone();
        problem.place.host = Some(name.to_owned());
        problem
    };
    console::print(&failure::render_findings(&problems.iter().map(on_host).collect::<Vec<_>>()));
}

fn not_saved(name: &str, error: SavedError) -> CommandError {
    let hint = error.hint();
    CommandError::new(exit_code::USAGE, format!("the facts of host `{name}` were not saved")).because(error).hint(hint)
}
