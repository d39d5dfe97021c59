//! What is looked at before anything starts: programs, libraries, digests, folders.
//!
//! Reads files only. All findings of all hosts come at once.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use torchlift_schema::{Finding, Place};

use crate::env_vars;
use crate::plan::{HostPlan, HostRequest, Planned, Program, RunRequest, program};
use crate::preflight::verify::{StartQuestion, check_before_start};
use crate::preflight::{DigestCache, HostLibraries, LibraryPath, Runner, code};

/// A working folder that is not there.
const CWD_MISSING: &str = "cwd-missing";
/// A path of `require` that is not there.
const REQUIRED_MISSING: &str = "required-missing";

/// Every finding about the hosts of a run, which are all this machine. `is_paranoid` believes no digest that is remembered.
pub(super) fn check(request: &RunRequest, planned: &Planned, is_paranoid: bool) -> Vec<Finding> {
    let libraries = HostLibraries::of_this_host();
    let has_envelope = request.hosts.iter().any(|host| matches!(host.program, Program::Envelope(_)));
    let mut cache = match cache_file(request).filter(|_| has_envelope && !is_paranoid) {
        Some(file) => DigestCache::open(&file),
        None => DigestCache::in_memory(),
    };
    let mut findings = Vec::new();
    for (host, plan) in request.hosts.iter().zip(&planned.plan.hosts) {
        findings.extend(folders(request, host, plan));
        findings.extend(start(host, plan, &libraries, &mut cache));
    }
    // The cache saves time and nothing else: whether it could be written makes no difference to this run.
    let _ = cache.save();
    findings
}

fn folders(request: &RunRequest, host: &HostRequest, plan: &HostPlan) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !plan.cwd.is_dir() {
        let message = format!("the working folder `{}` is not there", plan.cwd.display());
        let finding = Finding::error(CWD_MISSING, Place::host(&host.name), message);
        findings.push(finding.remedy("make it, or correct the host's path"));
    }
    for path in &request.require {
        let whole = host.path.join(path);
        if let Err(error) = fs_err::metadata(&whole) {
            let message = format!("`{}`, which is required, is not there: {}", whole.display(), error.kind());
            let finding = Finding::error(REQUIRED_MISSING, Place::host(&host.name).key("require"), message);
            findings.push(finding.remedy("bring it there, or mount what holds it"));
        }
    }
    findings
}

fn start(host: &HostRequest, plan: &HostPlan, libraries: &HostLibraries, cache: &mut DigestCache) -> Vec<Finding> {
    let key = OsStr::new(env_vars::LD_LIBRARY_PATH);
    let library_path = plan.env.get(key).map(|entry| entry.value.as_os_str());
    let library_path = LibraryPath::parse(library_path.unwrap_or_default());
    let own = program(host);
    let question = StartQuestion {
        program: &own,
        library_path: &library_path,
        cwd: &plan.cwd,
        envelope: match &host.program {
            Program::Envelope(envelope) => Some(envelope),
            Program::PerHost(_) | Program::Plain { .. } => None,
        },
        host_name: Some(&host.name),
    };
    let variable = |name: &str| Some(plan.env.get(OsStr::new(name))?.value.to_string_lossy().into_owned());
    let system = Runner::of(&host.runner, variable).system(libraries);
    let mut findings = check_before_start(question, system.as_deref().unwrap_or(libraries), cache);
    if system.is_none() {
        // In a container other libraries count than this machine's: only bytes can be compared.
        findings.retain(|finding| is_about_the_file(&finding.code));
    }
    if !host.runner.is_empty() {
        let none = LibraryPath::default();
        let runner = StartQuestion { program: &plan.program, library_path: &none, envelope: None, ..question };
        findings.extend(check_before_start(runner, libraries, cache));
    }
    findings
}

fn is_about_the_file(code: &str) -> bool {
    code::INTEGRITY.contains(&code) || [code::PROGRAM_MISSING, code::PROGRAM_NOT_A_FILE].contains(&code)
}

/// Where digests are remembered over runs: none without a home.
fn cache_file(request: &RunRequest) -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = request.base_env.get(OsStr::new(name)).map(Path::new);
        value.filter(|path| path.is_absolute()).map(Path::to_owned)
    };
    let cache = folder(env_vars::TORCHLIFT_CACHE)
        .or_else(|| Some(folder(env_vars::XDG_CACHE_HOME)?.join("torchlift")))
        .or_else(|| Some(folder(env_vars::HOME)?.join(".cache/torchlift")))?;
    Some(cache.join("digests"))
}
