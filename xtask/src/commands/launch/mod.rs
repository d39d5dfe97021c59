//! `launch`: builds, then starts the ranks on every host and stays with them.
//!
//! `request` makes of the cluster and the envelopes the same request that `torchlift run` makes of its command line;
//! from there on both are one path.

pub(crate) mod old;
pub(crate) mod request;

use std::collections::BTreeMap;
use std::ffi::OsString;

use torchlift::commands::run::{Format, RunFlags, detach, execute};
use torchlift_schema::Envelope;

use super::Context;
use super::build::{BuildFlags, build};
use crate::error::CommandError;
use crate::facts::Facts;
use crate::report::print_warnings;
use crate::report::progress::{Console, counted, duration};

/// Arguments of `launch`.
#[derive(Clone, Debug, clap::Args)]
pub struct LaunchArgs {
    /// What is built, and for whom.
    #[command(flatten)]
    pub build: BuildFlags,
    /// How it is run.
    #[command(flatten)]
    pub run: RunFlags,
    /// Start what was built last; say what of it is old
    #[arg(long, help_heading = "Build options")]
    pub no_build: bool,
    /// Arguments for every rank
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// Runs it; gives the run's exit code.
pub fn run(args: &LaunchArgs, context: &Context) -> Result<u8, CommandError> {
    let facts = Facts::gather(&args.build.choice(), context, true)?;
    let is_detached = detach::is_detached(&context.env);
    // Whatever is to be built is built by the one that waits, whom Ctrl-C reaches.
    let envelopes = if is_detached { old::read(&facts)?.0 } else { envelopes(args, &facts)? };
    if args.run.detach && !is_detached {
        return detach::leave(args.run.options());
    }
    let request = request::request(args, &facts, envelopes, context)?;
    execute(request, args.run.options())
}

/// The envelope of each chosen host: built now, found, or for a dry run the one that would be written.
fn envelopes(args: &LaunchArgs, facts: &Facts) -> Result<BTreeMap<String, Envelope>, CommandError> {
    let is_quiet = args.run.quiet || args.run.format == Format::Json;
    if args.no_build {
        let (envelopes, warnings) = old::read(facts)?;
        print_warnings(&facts.warnings);
        print_warnings(&warnings);
        return Ok(envelopes);
    }
    if args.run.dry_run {
        print_warnings(&facts.warnings);
        return Ok(request::planned_envelopes(&facts.plan));
    }
    let console = Console::new(is_quiet);
    let executed = build(facts, args.build.effort(), console)?;
    print_warnings(&executed.report.findings);
    let time = duration(std::time::Duration::from_millis(executed.report.elapsed_ms));
    let hosts = counted(executed.report.hosts.len(), "host");
    console.note(&format!("job `{}` is ready for {hosts} in {time}", executed.report.job));
    Ok(executed.envelopes.into_iter().map(|envelope| (envelope.host.clone(), envelope)).collect())
}
