//! `build`: one cargo run per distinct kind of host, every host verified, one envelope each.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use camino::Utf8PathBuf;
use torchlift_schema::{PerHostEnvelope, exit_code, write};

use super::Context;
use crate::cluster::{self, Accept};
use crate::error::CommandError;
use crate::execute::{Effort, Executed, Execution, execute};
use crate::facts::{Choice, Facts};
use crate::report::build::{render, render_plan};
use crate::report::progress::Console;
use crate::report::{print_data, print_json, print_warnings};

/// Arguments of `build`.
#[derive(Clone, Debug, clap::Args)]
pub struct BuildArgs {
    /// What is built, and for whom.
    #[command(flatten)]
    pub flags: BuildFlags,
    /// Print the map `{host: envelope}` with the published three fields, for launchers that take it
    #[arg(long, conflicts_with = "dry_run")]
    pub print_map: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How facts are printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What `build` and `launch` have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct BuildFlags {
    /// The cluster file [default: `cluster.toml` in the workspace's root]
    #[arg(long, value_name = "FILE", help_heading = "Build options")]
    pub cluster: Option<Utf8PathBuf>,
    /// Only these hosts: names or ranges such as `node-[01-04]`
    #[arg(long = "host", value_name = "NAME", help_heading = "Build options")]
    pub hosts: Vec<String>,
    /// All hosts but these
    #[arg(long, value_name = "NAME", help_heading = "Build options")]
    pub exclude: Vec<String>,
    /// The job [default: the first of the cluster file]
    #[arg(long, value_name = "NAME", help_heading = "Build options")]
    pub job: Option<String>,
    /// Go on with other builds when one fails
    #[arg(long, help_heading = "Build options")]
    pub keep_going: bool,
    /// Builds at once, which share the jobs
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN, help_heading = "Build options")]
    pub builds: NonZeroUsize,
    /// Compilers and build scripts at once in all builds together [default: one a core]
    #[arg(long, short = 'j', value_name = "N", help_heading = "Build options")]
    pub jobs: Option<NonZeroUsize>,
    /// Fail when `Cargo.lock` would have to change
    #[arg(long, help_heading = "Build options")]
    pub locked: bool,
    /// Build without a network
    #[arg(long, help_heading = "Build options")]
    pub offline: bool,
    /// Build every kind by itself, where one build would serve several too
    #[arg(long, help_heading = "Build options")]
    pub no_share: bool,
    /// The `Cargo.toml` of the project [default: found from the working directory upward]
    #[arg(long, value_name = "PATH", help_heading = "Build options")]
    pub manifest_path: Option<Utf8PathBuf>,
    /// Folder for cargo's own output [default: `torchlift/builds` in cargo's target folder]
    #[arg(long, value_name = "DIR", help_heading = "Build options")]
    pub builds_dir: Option<Utf8PathBuf>,
    /// The libtorch for every kind, instead of what the cluster file names
    #[arg(long, value_name = "DIR", help_heading = "Build options")]
    pub libtorch: Option<Utf8PathBuf>,
    /// Take this finding as a warning, on one host or on all
    #[arg(long, value_name = "CODE[@HOST]", value_parser = accepted, help_heading = "Build options")]
    pub accept: Vec<Accept>,
}

/// How facts are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Reads the argument of `--accept`.
pub(super) fn accepted(text: &str) -> Result<Accept, String> {
    let (code, host) = match text.split_once('@') {
        Some((code, host)) => (code, Some(host.to_owned())),
        None => (text, None),
    };
    if let Some((fault, remedy)) = cluster::accept_fault(code) {
        return Err(format!("`{code}` {fault}: {remedy}"));
    }
    Ok(Accept { code: code.to_owned(), host, reason: "on the command line".to_owned() })
}

impl BuildFlags {
    /// How builds are made.
    pub fn effort(&self) -> Effort {
        Effort { keep_going: self.keep_going, at_once: self.builds.get(), jobs: self.jobs.map(NonZeroUsize::get) }
    }

    /// What they choose.
    pub fn choice(&self) -> Choice {
        Choice {
            cluster: self.cluster.clone(),
            manifest_path: self.manifest_path.clone(),
            hosts: self.hosts.clone(),
            exclude: self.exclude.clone(),
            job: self.job.clone(),
            libtorch: self.libtorch.clone(),
            builds_dir: self.builds_dir.clone(),
            accept: self.accept.clone(),
            locked: self.locked,
            offline: self.offline,
            no_share: self.no_share,
            // Several at once have a pool of jobs instead, and cargo takes one of the two.
            jobs: self.jobs.filter(|_| self.builds == NonZeroUsize::MIN),
        }
    }
}

/// Runs it.
pub fn run(args: &BuildArgs, context: &Context) -> Result<u8, CommandError> {
    let facts = Facts::gather(&args.flags.choice(), context, !args.dry_run)?;
    if args.dry_run {
        print_warnings(&facts.warnings);
        match args.format {
            Format::Text => print_data(&render_plan(&facts.plan))?,
            Format::Json => print_json(&facts.plan)?,
        }
        return Ok(exit_code::OK);
    }
    let executed = build(&facts, args.flags.effort(), Console::new(false))?;
    print_warnings(&executed.report.findings);
    if args.print_map {
        let map: BTreeMap<String, PerHostEnvelope> =
            executed.envelopes.iter().map(|envelope| (envelope.host.clone(), envelope.per_host())).collect();
        print_data(&format!("{}\n", write::per_host_map(&map)))?;
    } else {
        match args.format {
            Format::Text => print_data(&render(&executed.report))?,
            Format::Json => print_json(&executed.report)?,
        }
    }
    Ok(exit_code::OK)
}

/// Carries the plan of the facts out.
///
/// # Errors
/// As [`execute`].
pub fn build(facts: &Facts, effort: Effort, console: Console) -> Result<Executed, CommandError> {
    let source = match &facts.source {
        Some(source) => source.clone(),
        None => return Err(CommandError::new(exit_code::BUILD, "what is built is not known")),
    };
    execute(Execution {
        plan: &facts.plan,
        paths: &facts.paths(),
        env: &facts.env,
        cargo: &facts.cargo,
        source,
        accept: &facts.accept,
        known: &facts.knowledge(),
        warnings: facts.warnings.clone(),
        packages: facts.workspace.lock.as_ref().map(|lock| lock.packages).filter(|count| *count > 0),
        effort,
        digests: facts.digests(),
        console,
    })
}
