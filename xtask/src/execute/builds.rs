//! Cargo, once for every build of a plan: one after the other, or several side by side that share one pool of jobs.
//!
//! Owns what becomes of the others when one fails. One build uses all cores by itself where there is something to compile;
//! several at once are worth it where much is linked, or tested by build scripts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use jobserver::Client;
use torchlift_schema::exit_code;

use super::{Execution, prepare};
use crate::cargo::{self, CargoError, CargoRun, Jobs, Signals};
use crate::error::CommandError;
use crate::plan::{Build, BuildKey, BuildPlan};
use crate::report::events::BuildEvents;
use crate::toolchain::Env;

/// How builds are made.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Whether other builds go on when one fails.
    pub keep_going: bool,
    /// Builds at once, at least 1.
    pub at_once: usize,
    /// Compilers and build scripts at once in all of them; none is one a core.
    pub jobs: Option<usize>,
}

/// What each build came to, by its place in the plan.
type Results = BTreeMap<usize, Result<CargoRun, CargoError>>;

/// Runs cargo for every build.
pub(super) fn build_all(
    execution: &Execution<'_>,
    env: &Env,
    signals: &Signals,
    events: &BuildEvents,
) -> Result<BTreeMap<BuildKey, CargoRun>, CommandError> {
    let plan = execution.plan;
    let results = run_all(execution, env, signals, events)?;
    let left = plan.builds.len().saturating_sub(results.len());
    let mut runs = BTreeMap::new();
    let mut failures: Vec<(&Build, CargoError)> = Vec::new();
    for (build, result) in results.into_iter().filter_map(|(index, result)| Some((plan.builds.get(index)?, result))) {
        match result {
            Ok(run) => drop(runs.insert(build.key.clone(), run)),
            Err(error) => failures.push((build, error)),
        }
    }
    if failures.is_empty() { Ok(runs) } else { Err(failed(plan, failures, left)) }
}

fn run_all(
    execution: &Execution<'_>,
    env: &Env,
    signals: &Signals,
    events: &BuildEvents,
) -> Result<Results, CommandError> {
    let Execution { plan, effort, .. } = execution;
    let workers = effort.at_once.clamp(1, plan.builds.len().max(1));
    let pool = (workers > 1).then(|| pool(*effort)).transpose()?;
    let board = execution.console.board(workers > 1);
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Results::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::SeqCst);
            let Some(build) = plan.builds.get(index) else { return };
            // Each cargo may run one job without asking: that one is taken out of the pool for it.
            let _own = pool.as_ref().map(Client::acquire);
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let mut progress = board.begin(build, &plan.program.name, execution.packages);
            let share = share(*effort, workers);
            // A container has no part in the pool: it gets its share of the jobs for itself.
            let taken: Vec<_> = match &pool {
                Some(pool) if build.container.is_some() => (1..share).map(|_| pool.acquire()).collect(),
                _ => Vec::new(),
            };
            let jobs = match &pool {
                None => Jobs::Own,
                Some(_) if build.container.is_some() => Jobs::Share(share),
                Some(pool) => Jobs::Pool(pool),
            };
            let result = prepare::prepare(execution, build, env).and_then(|()| {
                let mut watcher = events.cargo(build, &mut progress);
                cargo::run(build, &plan.program, &plan.workspace, env, jobs, signals, &mut watcher)
            });
            drop(taken);
            events.cargo_ended(build, &result);
            progress.end();
            let is_interrupt = matches!(result, Err(CargoError::Interrupted { .. }));
            if is_interrupt || (result.is_err() && !effort.keep_going) {
                is_over.store(true, Ordering::SeqCst);
            }
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(index, result);
        }
    };
    if workers == 1 {
        work();
    } else {
        thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    }
    Ok(results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// The jobs that all cargos together may run, at least 1.
fn jobs(effort: Effort) -> usize {
    effort.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// The jobs of one build among so many at once, at least 1: whoever takes its share waits for no one who waits for it.
fn share(effort: Effort, workers: usize) -> usize {
    (jobs(effort) / workers).max(1)
}

/// The pool of all jobs.
fn pool(effort: Effort) -> Result<Client, CommandError> {
    Client::new(jobs(effort)).map_err(|error| {
        CommandError::new(exit_code::BUILD, "builds side by side cannot share their jobs")
            .because(error)
            .hint("leave `--builds` out")
    })
}

/// One error for all builds that failed, each with the kind and the hosts that it concerns.
fn failed(plan: &BuildPlan, failures: Vec<(&Build, CargoError)>, left: usize) -> CommandError {
    let program = &plan.program.name;
    let is_interrupt = failures.iter().any(|(_, error)| matches!(error, CargoError::Interrupted { .. }));
    let code = if is_interrupt { exit_code::INTERRUPTED } else { exit_code::BUILD };
    let names: Vec<String> =
        failures.iter().map(|(build, _)| format!("{} ({})", build.concerns(), build.hosts.join(", "))).collect();
    let message = format!("`{program}` was not built for {}", names.join("; "));
    let hint = failures.iter().find_map(|(_, error)| hint(error));
    let causes: Vec<String> = failures.iter().map(|(_, error)| with_sources(error)).collect();
    let mut failure = CommandError::new(code, message).because(causes.join("; "));
    let skipped = (left > 0 && !is_interrupt)
        .then(|| format!("{left} more would have been built: `--keep-going` builds them all the same"));
    if let Some(hint) = hint.or(skipped) {
        failure = failure.hint(hint);
    }
    failure
}

fn hint(error: &CargoError) -> Option<String> {
    match error {
        CargoError::NotStarted { .. } => Some("install Rust from https://rustup.rs, or set `CARGO`".to_owned()),
        CargoError::NoFolder { dir, .. } => {
            Some(format!("remove what is in the way of `{dir}`, or choose another folder with `--builds-dir`"))
        }
        CargoError::NoContainer { .. } => {
            Some("`args` of the kind's `container` are options of `run`; docs/containers.md has those that a small virtual machine needs".to_owned())
        }
        CargoError::NoExecutable { .. } => Some("is `CARGO`, a wrapper or an alias not cargo itself?".to_owned()),
        _ => None,
    }
}

fn with_sources(error: &CargoError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
