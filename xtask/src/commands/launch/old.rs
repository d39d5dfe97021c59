//! `--no-build`: the envelopes that are there, and what of them is old.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::time::SystemTime;

use camino::Utf8Path;
use torchlift::commands::run::read_envelopes;
use torchlift::plan::Program;
use torchlift_schema::{Envelope, Finding, Place, exit_code};

use crate::error::CommandError;
use crate::execute::envelope_file;
use crate::facts::Facts;
use crate::file::in_words;
use crate::plan::HostBuild;
use crate::workspace::{SourceId, source_times};

/// Names of edited files that a warning has; who edited more knows it.
const MOST_NAMED: usize = 3;
/// The code for a host that was never built for.
pub(crate) const ENVELOPE_MISSING: &str = "envelope-missing";

/// The chosen hosts' envelopes, and a warning for each that a build now would write otherwise.
///
/// # Errors
/// With every envelope that is missing, damaged or not what was sealed.
pub(super) fn read(facts: &Facts) -> Result<(BTreeMap<String, Envelope>, Vec<Finding>), CommandError> {
    let mut envelopes = BTreeMap::new();
    let mut findings = Vec::new();
    let mut warnings = Vec::new();
    let mut code = exit_code::VERIFY;
    let times = times(facts);
    for host in &facts.plan.hosts {
        match of_host(facts, host, &times) {
            Ok((envelope, warning)) => {
                envelopes.insert(host.name.clone(), envelope);
                warnings.extend(warning);
            }
            Err(own) => {
                findings.extend(own.findings);
                if own.exit_code == exit_code::INTEGRITY {
                    code = own.exit_code;
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

/// When the sources were last written; read when it is asked for.
pub(crate) type Times<'a> =
    LazyCell<BTreeMap<String, SystemTime>, Box<dyn FnOnce() -> BTreeMap<String, SystemTime> + 'a>>;

/// Those of a workspace.
pub(crate) fn times(facts: &Facts) -> Times<'_> {
    LazyCell::new(Box::new(|| source_times(&facts.workspace.root, &facts.env)))
}

/// Why a host has no envelope that can be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// Everything that is wrong with it.
    pub(crate) findings: Vec<Finding>,
    /// What a launch ends with.
    pub(crate) exit_code: u8,
}

/// The envelope of one host, with a warning where a build now would write another.
pub(crate) fn of_host(
    facts: &Facts,
    host: &HostBuild,
    times: &Times<'_>,
) -> Result<(Envelope, Option<Finding>), Unusable> {
    let file = envelope_file(&facts.workspace.root, &host.name);
    let place = || Place::file(file.as_str()).on(&host.name);
    let unusable = |finding: Finding| Unusable { findings: vec![finding], exit_code: exit_code::VERIFY };
    let kind = fs_err::metadata(&file).map(|metadata| metadata.file_type());
    if let Ok(kind) = &kind
        && !kind.is_file()
    {
        let message = format!("`{file}` is a {}, and not a file", in_words(*kind));
        let remedy = "move it away, and leave `--no-build` out";
        return Err(unusable(Finding::error("envelope-unreadable", place(), message).remedy(remedy)));
    }
    if kind.is_err() {
        let message = format!("host `{}` has no envelope", host.name);
        return Err(unusable(Finding::error(ENVELOPE_MISSING, place(), message).remedy("leave `--no-build` out")));
    }
    let programs = match read_envelopes(file.as_std_path()) {
        Ok(programs) => programs,
        Err(CommandError::Findings { mut findings, exit_code, .. }) => {
            findings.iter_mut().for_each(|finding| finding.place.host = Some(host.name.clone()));
            return Err(Unusable { findings, exit_code });
        }
        Err(error) => {
            let finding = Finding::error("envelope-unreadable", place(), error.to_string());
            return Err(unusable(finding.remedy("leave `--no-build` out")));
        }
    };
    let own = programs.into_iter().find_map(|(_, program)| match program {
        Program::Envelope(envelope) => Some(*envelope),
        Program::PerHost(_) | Program::Plain { .. } => None,
    });
    match own {
        Some(envelope) if envelope.host == host.name => {
            let words = old(&envelope, host, facts, || edited(times, &file));
            let warning = words.map(|words| finding(host, place(), &words));
            Ok((envelope, warning))
        }
        _ => {
            let message = format!("is no envelope of host `{}`", host.name);
            Err(unusable(Finding::error("envelope-host", place(), message).remedy("leave `--no-build` out")))
        }
    }
}

/// What makes an envelope another one than a build now would write, in words; none when nothing does.
fn old(envelope: &Envelope, host: &HostBuild, facts: &Facts, edited: impl Fn() -> Option<String>) -> Option<String> {
    let mut words = Vec::new();
    let source = SourceId::parse(&envelope.artifact.source_id);
    let now = facts.source.as_ref();
    words.extend(now.into_iter().flat_map(|now| source.difference(now)));
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
    if words.is_empty() {
        return None;
    }
    let edited = now.filter(|now| source.has_other_sources(now)).and_then(|_| edited());
    Some(format!("{}{}", words.join(", "), edited.map(|names| format!("; edited: {names}")).unwrap_or_default()))
}

/// The source files that were written after the envelope in `file`.
///
/// Clocks of file systems tick every few milliseconds: an edit right after a build may have the envelope's own time.
fn edited(times: &BTreeMap<String, SystemTime>, file: &Utf8Path) -> Option<String> {
    let built = fs_err::metadata(file).and_then(|metadata| metadata.modified()).ok()?;
    let newer: Vec<String> =
        times.iter().filter(|(_, written)| **written >= built).map(|(name, _)| format!("`{name}`")).collect();
    let named = newer.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match newer.len() {
        // A deleted file is not there to be named.
        0 => None,
        count if count > MOST_NAMED => Some(format!("{named} and {} more", count - MOST_NAMED)),
        _ => Some(named),
    }
}

fn finding(host: &HostBuild, place: Place, words: &str) -> Finding {
    let message = format!("host `{}` starts what was built before; changed since: {words}", host.name);
    Finding::warning("build-old", place, message).remedy("leave `--no-build` out to build it")
}
