//! Each host's binary held against what its loader would do, and the envelope that says what was found.

use std::collections::BTreeMap;
use std::path::Path;

use camino::Utf8PathBuf;
use torchlift::preflight::verify::{ArtifactQuestion, Inspection, inspect_artifact};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code};
use torchlift_schema::{Envelope, Finding, exit_code, write};

use super::Execution;
use super::fit::{GpuCode, Looked};
use super::interrupt::Interrupt;
use super::publish::Staged;
use crate::cluster::Accept;
use crate::error::CommandError;
use crate::facts::HostGpus;
use crate::plan::{Build, BuildKey, BuildPlan, HostBuild, accept};
use crate::workspace::SourceId;

/// Binaries that hold.
#[derive(Debug)]
pub(super) struct Verified {
    /// An envelope a host, in the plan's order, sealed.
    pub(super) envelopes: Vec<Envelope>,
    /// What is doubtful, and what was accepted.
    pub(super) warnings: Vec<Finding>,
}

/// What is verified, owned, since it is looked at in a thread that may be left alone.
#[derive(Debug)]
pub(super) struct Question {
    plan: BuildPlan,
    paths: BTreeMap<String, Utf8PathBuf>,
    accept: Vec<Accept>,
    gpus: BTreeMap<String, HostGpus>,
    /// What the plan has told.
    told: Vec<Finding>,
    source: SourceId,
    /// Where each host's binary lies now, in the plan's order.
    binaries: Vec<Binary>,
}

/// Where a binary lies now, and where it is going to lie.
#[derive(Clone, Debug)]
struct Binary {
    file: Utf8PathBuf,
    place: Utf8PathBuf,
}

impl Question {
    /// The question about the staged binaries of an execution.
    pub(super) fn new(execution: &Execution<'_>, staged: &[Staged], source: SourceId) -> Self {
        let binary = |staged: &Staged| Binary { file: staged.file().to_owned(), place: staged.place.clone() };
        Self {
            plan: execution.plan.clone(),
            paths: execution.paths.clone(),
            accept: execution.accept.to_vec(),
            gpus: execution.gpus.clone(),
            told: execution.warnings.clone(),
            source,
            binaries: staged.iter().map(binary).collect(),
        }
    }
}

/// Verifies the staged binary of every host.
///
/// # Errors
/// With all findings of all hosts, when one of them stops; when a signal comes.
pub(super) fn verify(
    question: Question,
    mut digests: DigestCache,
    interrupt: Interrupt<'_>,
) -> Result<(Verified, DigestCache), CommandError> {
    interrupt.read(move || look(&question, &mut digests).map(|verified| (verified, digests)))?
}

fn look(question: &Question, digests: &mut DigestCache) -> Result<Verified, CommandError> {
    let plan = &question.plan;
    let libraries = HostLibraries::of_this_host();
    // Hosts of one kind have the same bytes and the same path: one look serves them all.
    let mut seen: BTreeMap<(&BuildKey, &str, Utf8PathBuf), (Inspection, &Binary)> = BTreeMap::new();
    let mut gpu_code = GpuCode::default();
    let mut findings = Vec::new();
    let mut envelopes = Vec::new();
    for (host, binary) in plan.hosts.iter().zip(&question.binaries) {
        let Some(build) = plan.build_of(host) else { continue };
        let path = question.paths.get(&host.name).unwrap_or(&plan.workspace);
        let cwd = path.join(&host.cwd_subpath);
        let key = (&host.build, host.ld_library_path.as_str(), cwd.clone());
        if !seen.contains_key(&key) {
            let inspection = inspect(host, binary, &cwd, &libraries, digests)?;
            seen.insert(key.clone(), (inspection, binary));
        }
        let (inspection, looked_at) = &seen[&key];
        let mut own: Vec<Finding> =
            inspection.findings.iter().map(|finding| on_host(finding, host, looked_at, binary)).collect();
        if let Some(gpus) = question.gpus.get(&host.name) {
            let of_cards = gpu_code.findings(&Looked { host, gpus, binary: &looked_at.file, inspection });
            own.extend(of_cards.into_iter().filter(|finding| !is_told(finding, &question.told)));
        }
        let own = accept(own, &question.accept, |code| !code::INTEGRITY.contains(&code));
        envelopes.push(envelope(host, build, inspection, &own, &question.source));
        findings.extend(own);
    }
    match code::exit_code(&findings) {
        None => Ok(Verified { envelopes, warnings: findings }),
        Some(exit_code) => {
            let summary = format!("`{}` would not run on every host; nothing was published", plan.program.name);
            Err(CommandError::findings(exit_code, summary, findings))
        }
    }
}

fn inspect(
    host: &HostBuild,
    binary: &Binary,
    cwd: &camino::Utf8Path,
    libraries: &HostLibraries,
    digests: &mut DigestCache,
) -> Result<Inspection, CommandError> {
    let library_path = LibraryPath::parse(host.ld_library_path.as_ref());
    let variant_lib = host.libtorch.as_ref().map(|libtorch| libtorch.root.join("lib"));
    let question = ArtifactQuestion {
        binary: binary.file.as_std_path(),
        library_path: &library_path,
        variant_lib: variant_lib.as_deref().map(|lib| -> &Path { lib.as_std_path() }),
        cwd: cwd.as_std_path(),
    };
    inspect_artifact(question, libraries, digests).map_err(|error| {
        CommandError::new(exit_code::VERIFY, format!("the binary of host `{}` cannot be verified", host.name))
            .because(error)
            .hint("see that the program and its libraries are whole and can be read; then build again")
    })
}

/// Whether the plan has told this of the host already; what was accepted has its reason behind it.
fn is_told(finding: &Finding, told: &[Finding]) -> bool {
    told.iter().any(|other| {
        (&other.code, &other.place.host) == (&finding.code, &finding.place.host)
            && other.message.starts_with(&finding.message)
    })
}

/// The finding with its host, and with the binary called by the place that it is going to have.
fn on_host(finding: &Finding, host: &HostBuild, looked_at: &Binary, binary: &Binary) -> Finding {
    let rename = |text: &str| text.replace(looked_at.file.as_str(), binary.place.as_str());
    let mut own = finding.clone();
    own.place.host = Some(host.name.clone());
    own.place.file = own.place.file.map(|file| rename(&file));
    own.message = rename(&own.message);
    own.remedy = own.remedy.map(|remedy| rename(&remedy));
    own
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
