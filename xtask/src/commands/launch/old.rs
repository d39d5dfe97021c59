//! `--no-build`: the envelopes that are there, and what of them is old.

use std::collections::BTreeMap;

use torchlift::commands::run::read_envelopes;
use torchlift::plan::Program;
use torchlift_schema::{Envelope, Finding, Place, exit_code};

use super::request::envelope_place;
use crate::error::CommandError;
use crate::execute::envelope_file;
use crate::facts::Facts;
use crate::plan::HostBuild;
use crate::workspace::SourceId;

/// The chosen hosts' envelopes, and a warning for each that a build now would write otherwise.
///
/// # Errors
/// With every envelope that is missing, damaged or not what was sealed.
pub(super) fn read(facts: &Facts) -> Result<(BTreeMap<String, Envelope>, Vec<Finding>), CommandError> {
    let mut envelopes = BTreeMap::new();
    let mut findings = Vec::new();
    let mut warnings = Vec::new();
    let mut code = exit_code::VERIFY;
    for host in &facts.plan.hosts {
        let file = envelope_file(&facts.workspace.root, &host.name);
        let place = || envelope_place(&file, &host.name);
        if !file.exists() {
            let message = format!("host `{}` has no envelope", host.name);
            findings.push(Finding::error("envelope-missing", place(), message).remedy("leave `--no-build` out"));
            continue;
        }
        match read_envelopes(file.as_std_path()) {
            Err(CommandError::Findings { findings: own, exit_code: own_code, .. }) => {
                findings.extend(own.into_iter().map(|mut finding| {
                    finding.place.host = Some(host.name.clone());
                    finding
                }));
                if own_code == exit_code::INTEGRITY {
                    code = own_code;
                }
            }
            Err(error) => return Err(error),
            Ok(programs) => {
                let own = programs.into_iter().find_map(|(_, program)| match program {
                    Program::Envelope(envelope) => Some(*envelope),
                    Program::PerHost(_) | Program::Plain { .. } => None,
                });
                match own {
                    Some(envelope) if envelope.host == host.name => {
                        warnings.extend(old(&envelope, host, facts, place()));
                        envelopes.insert(host.name.clone(), envelope);
                    }
                    _ => {
                        let message = format!("is no envelope of host `{}`", host.name);
                        findings
                            .push(Finding::error("envelope-host", place(), message).remedy("leave `--no-build` out"));
                    }
                }
            }
        }
    }
    if findings.is_empty() {
        return Ok((envelopes, warnings));
    }
    let summary = format!("job `{}` cannot be launched as it was built; nothing was started", facts.plan.job);
    Err(CommandError::findings(code, summary, findings))
}

/// What makes an envelope another one than a build now would write.
fn old(envelope: &Envelope, host: &HostBuild, facts: &Facts, place: Place) -> Option<Finding> {
    let mut words = Vec::new();
    if let Some(now) = &facts.source {
        words.extend(SourceId::parse(&envelope.artifact.source_id).difference(now));
    }
    if envelope.artifact.build_key != host.build.as_str() {
        words.push("how it is built (target, profile, features, flags, compiler or libtorch)".to_owned());
    }
    if envelope.bin != host.bin {
        words.push(format!("the program (`{}`, now `{}`)", envelope.bin, host.bin));
    }
    if envelope.ld_library_path != host.ld_library_path {
        words.push("the library path".to_owned());
    }
    if envelope.cwd_subpath != host.cwd_subpath {
        words.push("the working folder".to_owned());
    }
    let message = format!("host `{}` starts what was built before: since then changed {}", host.name, words.join(", "));
    (!words.is_empty())
        .then(|| Finding::warning("build-old", place, message).remedy("leave `--no-build` out to build it"))
}
