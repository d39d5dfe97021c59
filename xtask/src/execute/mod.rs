//! Does what a plan says: builds, verifies, publishes, writes envelopes.
//!
//! Nothing is published unless every build of the plan holds and every host's binary was verified; then binaries and
//! envelopes are renamed in, all of them already on disk. A signal before that leaves everything as it was. Must not decide what is built, and prints through `report` only.

mod builds;
mod envelope;
mod interrupt;
mod lock;
mod place;
mod prepare;
mod publish;
pub mod stale;
mod verify;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::Duration;

use camino::Utf8PathBuf;
use torchlift::clock::Clock;
use torchlift::env_vars::TORCHLIFT_INTERNAL_BUILD_LOCK;
use torchlift::preflight::DigestCache;
use torchlift_schema::{Envelope, Finding, exit_code};

pub use builds::Effort;
pub use envelope::envelope_file;
use interrupt::Interrupt;
pub use lock::{LockError, WorkspaceLock, lock_file};
pub(crate) use place::check as check_places;

use crate::cargo::{CargoRun, Signals};
use crate::cluster::Accept;
use crate::error::CommandError;
use crate::plan::{Build, BuildPlan};
use crate::report::build::{BuildReport, BuildResult, HostResult};
use crate::report::events::BuildEvents;
use crate::report::progress::Console;
use crate::toolchain::Env;
use crate::verify::Knowledge;
use crate::workspace::SourceId;

/// What a plan is carried out with.
#[derive(Debug)]
pub struct Execution<'a> {
    /// The plan.
    pub plan: &'a BuildPlan,
    /// Each host's path, by its name: the folder that `bin` is below.
    pub paths: &'a BTreeMap<String, Utf8PathBuf>,
    /// The inherited environment.
    pub env: &'a Env,
    /// This machine's cargo.
    pub cargo: &'a OsStr,
    /// What it is built from.
    pub source: SourceId,
    /// Findings that are accepted.
    pub accept: &'a [Accept],
    /// What is known of the hosts, by their names.
    pub known: &'a BTreeMap<String, Knowledge>,
    /// Warnings that the plan already has.
    pub warnings: Vec<Finding>,
    /// Number of packages that the lock file names.
    pub packages: Option<usize>,
    /// How builds are made.
    pub effort: Effort,
    /// The file that remembers digests; none remembers nothing.
    pub digests: Option<Utf8PathBuf>,
    /// Where progress goes.
    pub console: Console,
}

/// What an execution gave.
#[derive(Clone, Debug)]
pub struct Executed {
    /// For people and machines.
    pub report: BuildReport,
    /// The envelopes, in the order of the plan's hosts.
    pub envelopes: Vec<Envelope>,
}

/// Carries a plan out.
///
/// # Errors
/// When a build fails, a binary would not load on its host, or a file cannot be written; nothing was published then.
pub fn execute(execution: Execution<'_>) -> Result<Executed, CommandError> {
    let clock = Clock::start();
    let started = clock.now();
    let lock = WorkspaceLock::take(&execution.plan.workspace, execution.env, execution.console)?;
    let events = BuildEvents::begin(execution.plan, execution.console);
    let mut executed = carry_out(execution, &lock, &events);
    if let Ok(executed) = &mut executed {
        executed.report.elapsed_ms = milliseconds(clock.now().since(started));
    }
    events.finished(&executed);
    executed
}

fn carry_out(execution: Execution<'_>, lock: &WorkspaceLock, events: &BuildEvents) -> Result<Executed, CommandError> {
    let plan = execution.plan;
    let mut env = execution.env.clone();
    env.insert(TORCHLIFT_INTERNAL_BUILD_LOCK.into(), lock.file().as_std_path().into());
    execution.console.colour(&mut env);
    // Nobody should wait for a compiler to hear that its result has no place.
    place::check(plan)?;
    // From here on a signal waits until what is being done is either done or undone.
    let signals = Signals::hold()
        .map_err(|error| CommandError::new(exit_code::BUILD, "signals cannot be held back").because(error))?;

    let runs = builds::build_all(&execution, &env, &signals, events)?;
    let source = execution.source.clone().with_lock_of(&plan.workspace);
    let digests = match &execution.digests {
        Some(file) => DigestCache::open(file.as_std_path()),
        None => DigestCache::in_memory(),
    };
    let interrupt = Interrupt { signals: &signals, program: &plan.program.name };
    place::check(plan)?;
    let (staged, digests) = publish::stage(plan, &runs, digests, interrupt)?;
    let question = verify::question(&execution, &staged);
    let (verified, mut digests) = verify::verify(plan, question, &source, digests, interrupt)?;
    for (host, not_checked) in &verified.not_checked {
        events.verified(host, not_checked);
    }
    let envelopes = envelope::stage(plan, &verified)?;
    interrupt.check()?;
    let results = publish::publish(plan, staged, envelopes)?;
    // What is remembered only saves time.
    let _ = digests.save();

    let report = BuildReport {
        job: plan.job.clone(),
        builds: plan.builds.iter().filter_map(|build| Some(built(build, runs.get(&build.key)?))).collect(),
        hosts: results
            .into_iter()
            .zip(&verified.envelopes)
            .map(|(published, envelope)| HostResult {
                host: envelope.host.clone(),
                bin: envelope.bin.clone(),
                size: envelope.artifact.size,
                sha256: envelope.artifact.sha256.clone(),
                is_new: published.is_new,
                envelope: published.envelope.into_string(),
                not_checked: verified.not_checked.get(&envelope.host).cloned().unwrap_or_default(),
            })
            .collect(),
        findings: execution.warnings.iter().cloned().chain(verified.warnings).collect(),
        elapsed_ms: 0,
    };
    report.hosts.iter().for_each(|host| events.published(host));
    Ok(Executed { report, envelopes: verified.envelopes })
}

fn built(build: &Build, run: &CargoRun) -> BuildResult {
    BuildResult {
        key: build.key.to_string(),
        kinds: build.kinds.clone(),
        hosts: build.hosts.clone(),
        compiled: run.compiled.len(),
        crates: run.compiled.clone(),
        fresh: run.fresh,
        elapsed_ms: milliseconds(run.elapsed),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
