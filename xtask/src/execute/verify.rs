//! Each host's binary held against what its loader would do, and the envelope that says what was found.

use std::collections::BTreeMap;
use std::path::Path;

use camino::Utf8PathBuf;
use torchlift::preflight::verify::{ArtifactQuestion, Inspection, inspect_artifact};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code};
use torchlift_schema::{Envelope, Finding, exit_code, write};

use super::Execution;
use super::publish::Staged;
use crate::error::CommandError;
use crate::plan::{Build, BuildKey, HostBuild, accept};
use crate::workspace::SourceId;

/// Binaries that hold.
#[derive(Debug)]
pub(super) struct Verified {
    /// An envelope a host, in the plan's order, sealed.
    pub(super) envelopes: Vec<Envelope>,
    /// What is doubtful, and what was accepted.
    pub(super) warnings: Vec<Finding>,
}

/// Verifies the staged binary of every host.
///
/// # Errors
/// With all findings of all hosts, when one of them stops.
pub(super) fn verify(
    execution: &Execution<'_>,
    staged: &[Staged],
    source: &SourceId,
    digests: &mut DigestCache,
) -> Result<Verified, CommandError> {
    let plan = execution.plan;
    let libraries = HostLibraries::of_this_host();
    // Hosts of one kind have the same bytes and the same path: one look serves them all.
    let mut seen: BTreeMap<(&BuildKey, &str, Utf8PathBuf), (Inspection, &Staged)> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut envelopes = Vec::new();
    for (host, staged) in plan.hosts.iter().zip(staged) {
        let Some(build) = plan.build_of(host) else { continue };
        let path = execution.paths.get(&host.name).unwrap_or(&plan.workspace);
        let cwd = path.join(&host.cwd_subpath);
        let key = (&host.build, host.ld_library_path.as_str(), cwd.clone());
        if !seen.contains_key(&key) {
            let inspection = inspect(host, staged, &cwd, &libraries, digests)?;
            seen.insert(key.clone(), (inspection, staged));
        }
        let (inspection, looked_at) = &seen[&key];
        let own = inspection.findings.iter().map(|finding| on_host(finding, host, looked_at, staged)).collect();
        let own = accept(own, execution.accept, |code| !code::INTEGRITY.contains(&code));
        envelopes.push(envelope(host, build, inspection, &own, source));
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
    staged: &Staged,
    cwd: &camino::Utf8Path,
    libraries: &HostLibraries,
    digests: &mut DigestCache,
) -> Result<Inspection, CommandError> {
    let library_path = LibraryPath::parse(host.ld_library_path.as_ref());
    let variant_lib = host.libtorch.as_ref().map(|libtorch| libtorch.root.join("lib"));
    let question = ArtifactQuestion {
        binary: staged.file().as_std_path(),
        library_path: &library_path,
        variant_lib: variant_lib.as_deref().map(|lib| -> &Path { lib.as_std_path() }),
        cwd: cwd.as_std_path(),
    };
    inspect_artifact(question, libraries, digests).map_err(|error| {
        CommandError::new(exit_code::VERIFY, format!("the binary of host `{}` cannot be verified", host.name))
            .because(error)
    })
}

/// The finding with its host, and with the binary called by the place that it is going to have.
fn on_host(finding: &Finding, host: &HostBuild, looked_at: &Staged, staged: &Staged) -> Finding {
    let rename = |text: &str| text.replace(looked_at.file().as_str(), staged.place.as_str());
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
    let artifact = inspection.artifact(&build.target, build.key.as_str(), source.to_string());
    let mut envelope = host.envelope(artifact);
    if let Some(record) = &mut envelope.libtorch {
        record.libraries = inspection.libraries.clone();
    }
    envelope.findings = findings.to_vec();
    write::seal(envelope)
}
