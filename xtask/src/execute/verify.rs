//! Each host's staged binary verified, and the envelope that says what was found.
//!
//! The verification itself is [`crate::verify`]'s, which looks at published binaries the same way.

use std::collections::BTreeMap;

use torchlift::preflight::verify::Inspection;
use torchlift::preflight::{DigestCache, code};
use torchlift_schema::{Envelope, Finding, write};

use super::Execution;
use super::interrupt::Interrupt;
use super::publish::Staged;
use crate::error::CommandError;
use crate::plan::{Build, BuildPlan, HostBuild};
use crate::verify::check::Label;
use crate::verify::{self, Built, Made, Question};
use crate::workspace::SourceId;

/// Binaries that hold.
#[derive(Debug)]
pub(super) struct Verified {
    /// An envelope a host, in the plan's order, sealed.
    pub(super) envelopes: Vec<Envelope>,
    /// What was not checked of each host, in words.
    pub(super) not_checked: BTreeMap<String, Vec<&'static str>>,
    /// What is doubtful, and what was accepted.
    pub(super) warnings: Vec<Finding>,
}

/// The question about the staged binaries of an execution.
pub(super) fn question(execution: &Execution<'_>, staged: &[Staged]) -> Question {
    let plan = execution.plan;
    let built = |(host, staged): (&HostBuild, &Staged)| {
        let path = execution.paths.get(&host.name).unwrap_or(&plan.workspace);
        Built {
            host: host.clone(),
            file: staged.file().to_owned(),
            place: staged.place.clone(),
            bytes: host.build.as_str().to_owned(),
            cwd: path.join(&host.cwd_subpath),
            cpu_level: plan.build_of(host).and_then(|build| build.cpu_level.clone()),
            made: plan.build_of(host).map(Made::by).unwrap_or_default(),
            envelope: None,
            known: execution.known.get(&host.name).cloned().unwrap_or_default(),
        }
    };
    Question {
        hosts: plan.hosts.iter().zip(staged).map(built).collect(),
        accept: execution.accept.to_vec(),
        told: execution.warnings.clone(),
    }
}

/// Verifies the staged binary of every host.
///
/// # Errors
/// With all findings of all hosts, when one of them stops; when a signal comes.
pub(super) fn verify(
    plan: &BuildPlan,
    question: Question,
    source: &SourceId,
    mut digests: DigestCache,
    interrupt: Interrupt<'_>,
) -> Result<(Verified, DigestCache), CommandError> {
    let (verified, digests) = interrupt.read(move || (verify::verify(&question, &mut digests), digests))?;
    let findings = verified.findings();
    if let Some(exit_code) = code::exit_code(&findings) {
        let summary = format!("`{}` would not run on every host; nothing was published", plan.program.name);
        return Err(CommandError::findings(exit_code, summary, findings));
    }
    let mut envelopes = Vec::new();
    let mut not_checked = BTreeMap::new();
    for (host, looked) in plan.hosts.iter().zip(&verified.hosts) {
        let left = looked.checks.iter().filter(|check| check.label == Label::Not).map(|check| check.check.words());
        not_checked.insert(host.name.clone(), left.collect());
        let (Some(build), Some(inspection)) = (plan.build_of(host), &looked.inspection) else { continue };
        envelopes.push(envelope(host, build, inspection, &looked.findings, source));
    }
    Ok((Verified { envelopes, not_checked, warnings: findings }, digests))
}

fn envelope(
    host: &HostBuild,
    build: &Build,
    inspection: &Inspection,
    findings: &[Finding],
    source: &SourceId,
) -> Envelope {
    let mut artifact = inspection.artifact(&build.target, build.key.as_str(), source.to_string());
    artifact.cpu_level = build.cpu_level.clone();
    let mut envelope = host.envelope(artifact);
    if let Some(record) = &mut envelope.libtorch {
        record.libraries = inspection.libraries.clone();
    }
    envelope.findings = findings.to_vec();
    write::seal(envelope)
}
