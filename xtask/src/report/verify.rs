//! How a verification looks: for people on stdout, or as JSON.

use std::fmt::Write as _;
use std::path::Path;

use torchlift::preflight::loader::How;
use torchlift_schema::Finding;

use super::progress::counted;
use crate::verify::check::{Check, Label, Verdict};
use crate::verify::{Built, Looked, Question, Verified};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// The job.
    pub job: String,
    /// Of all hosts and the run together.
    pub verdict: Verdict,
    /// How many checks were made, and how many were not.
    pub checks: Counts,
    /// The hosts that have an envelope.
    pub hosts: Vec<HostReport>,
    /// Checks of the run as a whole.
    pub run: Vec<Check>,
    /// All findings: warnings, what was accepted, and errors.
    pub findings: Vec<Finding>,
    /// How long the verification itself took, without the cluster file, cargo's metadata and hosts' facts; milliseconds.
    pub elapsed_ms: u64,
}

/// Checks by who made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Here.
    pub checked_here: usize,
    /// On the host.
    pub checked_on_host: usize,
    /// By nobody.
    pub not_checked: usize,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostReport {
    /// Its name.
    pub host: String,
    /// What can be said of it.
    pub verdict: Verdict,
    /// The binary, below its path.
    pub bin: String,
    /// The variant, or its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<String>,
    /// Value for `LD_LIBRARY_PATH`.
    pub ld_library_path: String,
    /// What the loader would choose, in its order.
    pub libraries: Vec<Choice>,
    /// Libraries that it would not find.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Libraries that only the host can look for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_looked_for: Vec<String>,
    /// Every check.
    pub checks: Vec<Check>,
}

/// What the loader would choose for one library.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Choice {
    /// The name that is asked for.
    pub name: String,
    /// The file.
    pub file: String,
    /// By which rule.
    pub rule: &'static str,
    /// The first that needs it.
    pub needed_by: String,
}

impl VerifyReport {
    /// Puts it together. `lost` are findings of hosts without an envelope, `told` are warnings from before.
    pub fn new(job: &str, question: &Question, verified: &Verified, lost: &[Finding], told: &[Finding]) -> Self {
        let hosts: Vec<HostReport> =
            question.hosts.iter().zip(&verified.hosts).map(|(built, looked)| host(question, built, looked)).collect();
        let checks = || hosts.iter().flat_map(|host| &host.checks).chain(&verified.run);
        let mut counts = Counts::default();
        for check in checks() {
            match check.label {
                Label::Here => counts.checked_here += 1,
                Label::OnHost => counts.checked_on_host += 1,
                Label::Not => counts.not_checked += 1,
            }
        }
        let is_lost = lost.iter().any(Finding::is_error);
        Self {
            job: job.to_owned(),
            verdict: if is_lost { Verdict::Fails } else { Verdict::of(checks()) },
            checks: counts,
            run: verified.run.clone(),
            findings: told.iter().chain(lost).cloned().chain(verified.findings()).collect(),
            elapsed_ms: u64::try_from(verified.elapsed.as_millis()).unwrap_or(u64::MAX),
            hosts,
        }
    }
}

fn host(question: &Question, built: &Built, looked: &Looked) -> HostReport {
    let closure = looked.inspection.as_ref().map(|inspection| &inspection.closure);
    let shown = |path: &Path| path.display().to_string();
    // One look may have served several hosts, each of which has its own copy of the program.
    let is_program = |path: &Path| question.hosts.iter().any(|other| other.file == path);
    let needing = |path: &Path| if is_program(path) { built.host.bin.clone() } else { shown(path) };
    HostReport {
        host: built.host.name.clone(),
        verdict: Verdict::of(&looked.checks),
        bin: built.host.bin.clone(),
        libtorch: built.host.libtorch.as_ref().map(|libtorch| match &libtorch.variant {
            Some(id) => id.to_string(),
            None => libtorch.root.to_string(),
        }),
        ld_library_path: built.host.ld_library_path.clone(),
        libraries: closure
            .into_iter()
            .flat_map(|closure| &closure.objects)
            .map(|object| Choice {
                name: object.name.clone(),
                file: shown(&object.path),
                rule: rule(object.how),
                needed_by: needing(&object.needed_by),
            })
            .collect(),
        missing: closure.into_iter().flat_map(|closure| &closure.missing).map(|missing| missing.name.clone()).collect(),
        not_looked_for: looked.inspection.as_ref().map(|inspection| inspection.unseen.clone()).unwrap_or_default(),
        checks: looked.checks.clone(),
    }
}

/// The loader's rules by the names that people look them up by.
fn rule(how: How) -> &'static str {
    match how {
        How::Interpreter => "interpreter",
        How::Path => "path",
        How::Rpath => "RPATH",
        How::LibraryPath => "LD_LIBRARY_PATH",
        How::Runpath => "RUNPATH",
        How::Cache => "cache",
        How::DefaultFolder => "default folder",
    }
}

/// The report as text.
pub fn render(report: &VerifyReport) -> String {
    let mut text = String::new();
    for host in &report.hosts {
        let _ = writeln!(text, "host {}: {}", host.host, host.bin);
        if let Some(libtorch) = &host.libtorch {
            let _ = writeln!(text, "  libtorch         {libtorch}");
        }
        if !host.ld_library_path.is_empty() {
            let _ = writeln!(text, "  LD_LIBRARY_PATH  {}", host.ld_library_path);
        }
        for Choice { name, file, rule, .. } in &host.libraries {
            let _ = writeln!(text, "  loads            {name} = {file} ({rule})");
        }
        for name in &host.missing {
            let _ = writeln!(text, "  loads            {name} = nothing");
        }
        for check in &host.checks {
            text.push_str(&line(check));
        }
        let _ = writeln!(text, "  {}\n", words(host.verdict));
    }
    for check in &report.run {
        let _ = writeln!(text, "run\n{}", line(check));
    }
    let Counts { checked_here, checked_on_host, not_checked } = report.checks;
    let of = |verdict| report.hosts.iter().filter(|host| host.verdict == verdict).count();
    let mut hosts = vec![format!("{} of {} hold", of(Verdict::Holds), counted(report.hosts.len(), "host"))];
    if of(Verdict::Unproven) > 0 {
        hosts.push(format!("{} not proven", of(Verdict::Unproven)));
    }
    if of(Verdict::Fails) > 0 {
        hosts.push(format!("{} would not run", of(Verdict::Fails)));
    }
    let _ = writeln!(text, "job {}: {}", report.job, hosts.join(", "));
    let _ = writeln!(
        text,
        "{checked_here} checked here, {checked_on_host} checked on host, {not_checked} not checked{}",
        if not_checked > 0 { ", which does not count as good" } else { "" }
    );
    text
}

fn line(check: &Check) -> String {
    use crate::verify::check::Outcome;
    let outcome = match check.outcome {
        None | Some(Outcome::Holds) => "",
        Some(Outcome::Doubtful) => "doubtful: ",
        Some(Outcome::Fails) => "fails: ",
    };
    format!("  {:<15}  {:<16} {outcome}{}\n", check.label.words(), check.check.words(), check.how)
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Unproven => "not proven: not everything was checked",
        Verdict::Fails => "would not run",
    }
}
