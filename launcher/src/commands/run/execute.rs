//! Carries a request out: plan, look, write down, run, report.
//!
//! Nothing is made on disk before every check has passed, and no rank runs before everything is written down.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::time::Duration;

use torchlift_schema::{Finding, exit_code};

use super::detach::{self, Leaving, Terminal};
use super::flags::{Format, RunOptions};
use super::watchers::Watchers;
use super::{cards, preflight, settle};
use crate::allocator::port::PortError;
use crate::clock::{self, Moment};
use crate::commands::lookup;
use crate::dispatcher::{self, DispatchError};
use crate::env_vars;
use crate::error::CommandError;
use crate::event::Outcome;
use crate::live::Live;
use crate::live::message::Over;
use crate::output::terminal;
use crate::plan::{self, LaunchPlan, Planned, RunRequest};
use crate::preflight::code;
use crate::process::{limit, signal};
use crate::report::verdict::Verdict;
use crate::report::{console, dry_run, failure, json, shown, words};

/// Runs of the same name that may be there already; more means that something else is wrong.
const NAMES: u32 = 100;
/// The dispatcher's clock starts with the run.
const START: Moment = Moment::after_zero(Duration::ZERO);

/// Carries a request out and gives the run's exit code: the first failing rank's own, or 128 + signal.
///
/// When a signal to this process ended ranks, the process dies by that signal once all is cleaned up and written,
/// so that this does not return.
///
/// # Errors
/// Whatever keeps the run from starting; then no rank has run.
pub fn execute(request: RunRequest, options: RunOptions) -> Result<u8, CommandError> {
    let mut request = request;
    let terminal = Terminal::take(&request.base_env)
        .map_err(|error| CommandError::new(exit_code::REFUSED, "the run cannot go on by itself").because(error))?;
    let mut planned = build(&request)?;
    if options.is_dry_run {
        tell(&planned.warnings);
        return show(&planned, options.format);
    }
    let mut findings = std::mem::take(&mut planned.warnings);
    findings.extend(settle::check(
        || preflight::check(&request, &planned, options.is_paranoid),
        |finding| {
            if !options.is_quiet {
                console::print(&console::settling(finding, settle::PATIENCE))
            }
        },
    ));
    if let Some(code) = code::exit_code(&findings) {
        return Err(CommandError::findings(code, "the run was not started", findings));
    }
    tell(&findings);
    let (_claims, doubts) = cards::claim(&request, &planned)?;
    tell(&doubts);
    make_folder(&mut request, &mut planned)?;
    run(&planned, options, terminal)
}

/// What a run would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Ranks that would start.
    pub ranks: u32,
    /// Hosts that they would start on.
    pub hosts: usize,
    /// Everything that is wrong or doubtful.
    pub findings: Vec<Finding>,
    /// When this process may not have so many files open: what a run needs, and the hard limit.
    pub too_few_files: Option<(u64, u64)>,
}

/// Everything that [`execute()`] looks at before it starts a rank, without starting one or making a folder.
///
/// # Errors
/// When the run cannot be planned at all; with all findings.
pub fn look(request: &RunRequest) -> Result<Look, CommandError> {
    let mut planned = build(request)?;
    let mut findings = std::mem::take(&mut planned.warnings);
    findings.extend(preflight::check(request, &planned, false));
    let (ranks, hosts) = (planned.plan.world_size(), planned.plan.hosts.len());
    let too_few_files = limit::check(hosts, ranks).err().map(|too_few| (too_few.needed, too_few.hard));
    Ok(Look { ranks, hosts, findings, too_few_files })
}

fn build(request: &RunRequest) -> Result<Planned, CommandError> {
    let path = request.base_env.get(OsStr::new(env_vars::PATH)).map(OsString::as_os_str);
    // A runner is named in a file, so that the working directory of the moment says nothing about it.
    let find = |name: &OsStr| lookup::find(name, path, "/".as_ref());
    plan::build(request, &find)
        .map_err(|findings| CommandError::findings(exit_code::USAGE, "the run cannot be planned", findings))
}

fn tell(warnings: &[Finding]) {
    if !warnings.is_empty() {
        console::print(&failure::render_findings(warnings));
    }
}

fn show(planned: &Planned, format: Format) -> Result<u8, CommandError> {
    let text = match format {
        Format::Text => dry_run::render(planned),
        Format::Json => json::text(&shown::plan(planned)),
    };
    terminal::print_data(text.as_bytes())
        .map_err(|error| CommandError::new(exit_code::REFUSED, "cannot write to stdout").because(error))?;
    Ok(exit_code::OK)
}

/// Makes the run's folder, which nobody else may have made: a run of the same name on a shared folder gets its own.
fn make_folder(request: &mut RunRequest, planned: &mut Planned) -> Result<(), CommandError> {
    let id = request.run_id.clone();
    fs_err::create_dir_all(&request.runs_dir).map_err(unwritable)?;
    for number in 2..NAMES {
        match fs_err::create_dir(&planned.plan.run_dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unwritable(error)),
            Err(_) => {
                request.run_id = format!("{id}-{number}");
                *planned = build(request)?;
            }
        }
    }
    Err(unwritable(io::ErrorKind::AlreadyExists.into()))
}

fn unwritable(error: io::Error) -> CommandError {
    CommandError::new(exit_code::REFUSED, "the run's files cannot be made")
        .because(error)
        .hint("choose another folder with `--runs DIR`, or make room")
}

fn run(planned: &Planned, options: RunOptions, mut terminal: Option<Terminal>) -> Result<u8, CommandError> {
    let plan = &planned.plan;
    let wall = clock::wall();
    // The guards come up while the files are made.
    let prepared = dispatcher::prepare(plan).map_err(|error| {
        remove(&plan.run_dir);
        not_dispatched(error, "the run was not started".to_owned())
    })?;
    let mut watchers = Watchers::create(planned, options, START, wall).map_err(|error| {
        remove(&plan.run_dir);
        unwritable(error)
    })?;
    watchers.live = live(planned, wall, terminal.as_mut()).inspect_err(|_| remove(&plan.run_dir))?;
    if !options.is_quiet {
        console::print(&console::start(plan));
    }
    let mut leaving = Leaving { watchers: &mut watchers, plan, terminal };
    let outcome = prepared.run(&mut leaving).map_err(|error| {
        let message = if watchers.record.has_started() {
            format!("the run in `{}` was given up, and nothing of it runs any more", plan.run_dir.display())
        } else {
            remove(&plan.run_dir);
            "the run was not started".to_owned()
        };
        not_dispatched(error, message)
    })?;
    finish(plan, &mut watchers, outcome, options);
    match Verdict::of(outcome) {
        Verdict::Code(code) => Ok(code),
        Verdict::DieBy(number) => signal::die_by(number),
    }
}

/// Lets the run be asked how it goes. One that goes on by itself is not begun without that.
fn live(planned: &Planned, wall: Duration, terminal: Option<&mut Terminal>) -> Result<Option<Live>, CommandError> {
    detach::check(terminal.as_deref())?;
    match Live::open(&planned.plan, &planned.base_env, wall) {
        Ok(live) => {
            if let Some(terminal) = terminal {
                terminal.make_console(&planned.plan.run_dir).map_err(unwritable)?;
            }
            Ok(Some(live))
        }
        Err(error) if terminal.is_some() => Err(CommandError::new(
            exit_code::REFUSED,
            "the run could not be asked how it goes once it goes on by itself",
        )
        .because(error)
        .hint("set XDG_RUNTIME_DIR to a folder of your own with mode 0700")),
        Err(error) => {
            console::print(&console::warning(&format!("`torchlift status` will not find this run: {error}")));
            Ok(None)
        }
    }
}

/// Takes back the folder of a run that did not come about. What cannot be removed does no harm.
fn remove(folder: &Path) {
    let _ = fs_err::remove_dir_all(folder);
}

fn not_dispatched(error: DispatchError, message: String) -> CommandError {
    let code = match &error {
        // What was asked for in so many words cannot be had.
        DispatchError::Port(PortError::Busy { .. } | PortError::Refused { .. }) | DispatchError::Busy => {
            exit_code::USAGE
        }
        DispatchError::Port(PortError::None { .. })
        | DispatchError::TooFewFiles { .. }
        | DispatchError::System { .. } => exit_code::REFUSED,
        DispatchError::Unusable { .. } => exit_code::USAGE,
        DispatchError::Guard { .. } | DispatchError::NotAllocated { .. } => exit_code::UNREACHABLE,
    };
    let hint = match &error {
        DispatchError::Port(PortError::Busy { .. }) => Some("leave `--master-port` out, and a free one is taken"),
        DispatchError::Port(PortError::Refused { .. }) => {
            Some("choose a port from 1024 on, or leave `--master-port` out")
        }
        DispatchError::TooFewFiles { .. } => Some("raise the hard limit (`ulimit -Hn`), or start fewer ranks"),
        _ => None,
    };
    let failed = CommandError::new(code, message).because(error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// Writes the report and says how it went.
fn finish(plan: &LaunchPlan, watchers: &mut Watchers, outcome: Outcome, options: RunOptions) {
    let lost = watchers.files.lost();
    let report = watchers.record.report(outcome, lost);
    let written = json::write_report(&plan.run_dir, &report);
    let mut text = String::new();
    if lost > 0 {
        let (bytes, are) = (words::count(lost as usize, "byte"), if lost == 1 { "is" } else { "are" });
        text.push_str(&console::warning(&format!("{bytes} of ranks' output {are} in no file")));
    }
    if let Err(error) = written {
        text.push_str(&console::warning(&format!("the report cannot be written: {error}")));
    }
    text.push_str(&console::failure(outcome, &watchers.record).unwrap_or_default());
    let end = console::end(outcome, &watchers.record, &plan.run_id);
    let words = format!("{text}{end}");
    console::print(if options.is_quiet { &text } else { &words });
    if let Some(live) = watchers.live.take() {
        live.finish(Over { exit_code: report.exit_code, words });
    }
    if options.format == Format::Json
        && let Err(error) = terminal::print_data(json::text(&report).as_bytes())
    {
        console::print(&console::warning(&format!("the report cannot be printed: {error}")));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::{HostRequest, Program};

    #[test]
    fn a_run_of_a_name_that_is_taken_gets_a_folder_of_its_own() {
        let runs = tempfile::tempdir().unwrap();
        let request = RunRequest {
            run_id: "run".to_owned(),
            runs_dir: runs.path().join("deep/er"),
            hosts: vec![HostRequest {
                name: "local".to_owned(),
                path: "/".into(),
                program: Program::Plain { program: "/bin/true".into(), cwd: "/".into() },
                slots: 1,
                env: BTreeMap::new(),
                runner: Vec::new(),
                devices: Vec::new(),
            }],
            args: Vec::new(),
            job_env: BTreeMap::new(),
            env_pass: Vec::new(),
            base_env: BTreeMap::new(),
            require: Vec::new(),
            grace: Duration::ZERO,
            master_port: None,
            one_gpu_per_rank: false,
            max_restarts: 0,
        };
        for expected in ["run", "run-2", "run-3"] {
            let (mut request, mut planned) = (request.clone(), build(&request).unwrap());
            make_folder(&mut request, &mut planned).unwrap();
            assert_eq!(planned.plan.run_id, expected);
            assert!(runs.path().join("deep/er").join(expected).is_dir());
            let env = &planned.plan.hosts[0].ranks[0].env;
            assert_eq!(env[OsStr::new(env_vars::TORCHLIFT_RUN_ID)].value, expected);
        }
    }
}
