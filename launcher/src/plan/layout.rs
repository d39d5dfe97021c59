//! From a request to a plan: hosts and ranks laid out, every finding at once.
//!
//! Pure. Owns the order of ranks, programs, folders and runners; the variables are [`super::environment`]'s.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use torchlift_schema::{Finding, PerHostEnvelope, Place};

use super::environment::{self, Coordinates, HostEnvironment};
use super::request::{HostRequest, Program, RunRequest};
use super::{HostPlan, LATE, LaunchPlan, RankPlan};
use crate::event::Rank;

/// All hosts of a run are this machine for now.
const MASTER_ADDR: &str = "127.0.0.1";

/// A plan, and what is doubtful about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// The plan.
    pub plan: LaunchPlan,
    /// Findings that do not stop.
    pub warnings: Vec<Finding>,
    /// The caller's environment, so that a report can leave out what it already knows.
    pub base_env: BTreeMap<OsString, OsString>,
}

/// Lays a run out.
///
/// `find_program` looks a runner's first word up in the caller's `PATH`; it is only asked for words without `/`.
///
/// # Errors
/// All findings, of which at least one is an error.
pub(crate) fn build(
    request: &RunRequest,
    find_program: &dyn Fn(&OsStr) -> Option<PathBuf>,
) -> Result<Planned, Vec<Finding>> {
    let mut findings = Vec::new();
    check_run(request, &mut findings);
    environment::check_job(request, &mut findings);

    let world_size = request.hosts.iter().map(|host| host.slots).sum();
    let mut hosts = Vec::new();
    let mut next_rank = 0;
    for (host_index, host) in request.hosts.iter().enumerate() {
        let cwd = working_folder(host);
        check_host(host, &mut findings);
        let shared = HostEnvironment::new(request, host, &cwd, &mut findings);
        let ranks = (0..host.slots).map(|local_rank| {
            let rank = next_rank + local_rank;
            let at = Coordinates {
                rank,
                local_rank,
                local_world_size: host.slots,
                world_size,
                host_index,
                host_count: request.hosts.len(),
            };
            RankPlan { rank: Rank(rank), local_rank, env: shared.rank(request, host, at, MASTER_ADDR) }
        });
        let ranks: Vec<RankPlan> = ranks.collect();
        next_rank += host.slots;
        let (program, args) = command(request, host, find_program, &mut findings);
        let names = ranks.first().into_iter().flat_map(|rank| rank.env.keys()).map(OsString::as_os_str);
        let env = shared.without(&names.chain(LATE.map(OsStr::new)).collect());
        hosts.push(HostPlan { name: host.name.clone(), program, args, cwd, env, ranks });
    }
    if findings.iter().any(Finding::is_error) {
        return Err(findings);
    }
    let plan = LaunchPlan {
        run_id: request.run_id.clone(),
        run_dir: request.runs_dir.join(&request.run_id),
        master_addr: MASTER_ADDR.to_owned(),
        master_port: request.master_port,
        grace: request.grace,
        hosts,
    };
    Ok(Planned { plan, warnings: findings, base_env: request.base_env.clone() })
}

/// The program of a host, without its runner, absolute.
pub(crate) fn program(host: &HostRequest) -> PathBuf {
    match &host.program {
        Program::Plain { program, .. } => program.clone(),
        Program::Envelope(envelope) => host.path.join(&envelope.bin),
        Program::PerHost(envelope) => host.path.join(&envelope.bin),
    }
}

/// The folder that a host's ranks run in, absolute.
pub(crate) fn working_folder(host: &HostRequest) -> PathBuf {
    match &host.program {
        Program::Plain { cwd, .. } => cwd.clone(),
        // Joining an empty path would put a slash at the end.
        Program::Envelope(envelope) if envelope.cwd_subpath.is_empty() => host.path.clone(),
        Program::PerHost(envelope) if envelope.cwd_subpath.is_empty() => host.path.clone(),
        Program::Envelope(envelope) => host.path.join(&envelope.cwd_subpath),
        Program::PerHost(envelope) => host.path.join(&envelope.cwd_subpath),
    }
}

fn command(
    request: &RunRequest,
    host: &HostRequest,
    find_program: &dyn Fn(&OsStr) -> Option<PathBuf>,
    findings: &mut Vec<Finding>,
) -> (PathBuf, Vec<OsString>) {
    let program = program(host);
    let Some((runner, words)) = host.runner.split_first() else {
        return (program, request.args.clone());
    };
    let found = if runner.contains('/') { Some(host.path.join(runner)) } else { find_program(runner.as_ref()) };
    let runner = found.unwrap_or_else(|| {
        findings.push(
            Finding::error(
                "runner-missing",
                Place::host(&host.name).key("runner"),
                format!("`{runner}` is in no folder of `PATH`"),
            )
            .remedy("install it, or give its absolute path"),
        );
        PathBuf::from(runner)
    });
    let words = words.iter().map(OsString::from);
    (runner, words.chain([program.into_os_string()]).chain(request.args.iter().cloned()).collect())
}

fn check_run(request: &RunRequest, findings: &mut Vec<Finding>) {
    if request.hosts.is_empty() {
        findings.push(
            Finding::error("no-hosts", Place::default(), "no host is left to run on").remedy("name at least one host"),
        );
    }
    let mut names = BTreeSet::new();
    for host in &request.hosts {
        if !names.insert(&host.name) {
            findings.push(
                Finding::error("host-duplicate", Place::host(&host.name), "the host is there twice")
                    .remedy("give each host once, and more `slots` for more ranks"),
            );
        }
    }
    let id = request.run_id.as_str();
    if id.is_empty() || id.starts_with('.') || id.contains(['/', '\0']) || !request.runs_dir.is_absolute() {
        let folder = request.runs_dir.join(id);
        findings.push(
            Finding::error("run-folder", Place::default(), format!("`{}` is no folder for a run", folder.display()))
                .remedy("a run's id is one folder name, below an absolute path"),
        );
    }
    if let Some(arg) = request.args.iter().find(|arg| arg.as_bytes().contains(&0)) {
        let message = format!("the argument {arg:?} has a NUL byte, which no program can get");
        findings.push(Finding::error("argument-value", Place::default(), message).remedy("take it out"));
    }
}

fn check_host(host: &HostRequest, findings: &mut Vec<Finding>) {
    let place = || Place::host(&host.name);
    if host.slots == 0 {
        findings.push(
            Finding::error("no-slots", place().key("slots"), "the host has no slot for a rank")
                .remedy("give it at least one, or leave the host out"),
        );
    }
    if !host.path.is_absolute() {
        let message = format!("`{}` is not absolute", host.path.display());
        findings.push(Finding::error("host-path", place().key("path"), message).remedy("give the path from `/` on"));
    }
    if let Program::Plain { program, cwd } = &host.program {
        for path in [program, cwd].into_iter().filter(|path| !path.is_absolute()) {
            let message = format!("`{}` is not absolute", path.display());
            findings.push(Finding::error("program-path", place(), message).remedy("give the path from `/` on"));
        }
    }
    if let Some(envelope) = host.program.per_host() {
        check_envelope(host, &envelope, findings);
    }
    for word in &host.runner {
        if word.contains('\0') {
            let finding = Finding::error("runner-value", place().key("runner"), "a word has a NUL byte");
            findings.push(finding.remedy("take it out"));
        }
    }
    if host.runner.first().is_some_and(String::is_empty) {
        let finding = Finding::error("runner-value", place().key("runner"), "the first word is empty");
        findings.push(finding.remedy("put the runner's program first, or leave `runner` empty"));
    }
}

/// A reader has checked this already; an envelope made in this process has not been through one.
fn check_envelope(host: &HostRequest, envelope: &PerHostEnvelope, findings: &mut Vec<Finding>) {
    let mut error = |key: &str, message: String| {
        let finding = Finding::error("envelope-value", Place::host(&host.name).key(key), message);
        findings.push(finding.remedy("build again, or mend the program that made this envelope"));
    };
    if envelope.bin.is_empty() || !is_below(&envelope.bin) {
        error("bin", format!("`{}` is no path of a file below the host's path", envelope.bin.escape_debug()));
    }
    if !is_below(&envelope.cwd_subpath) {
        error("cwd_subpath", format!("`{}` does not stay below the host's path", envelope.cwd_subpath.escape_debug()));
    }
    let path = &envelope.ld_library_path;
    let is_element = |text: &str| text.starts_with('/') && !text.contains([';', '$', '\0']);
    if !path.is_empty() && !path.split(':').all(is_element) {
        let message = format!("`{}` has an element that is no absolute folder", path.escape_debug());
        error("ld_library_path", message);
    }
}

fn is_below(path: &str) -> bool {
    !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
