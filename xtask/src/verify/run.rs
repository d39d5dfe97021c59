//! What the hosts of one run have to have alike: NCCL or RCCL.
//!
//! Ranks of two versions start and then wait for each other, or end with an error of the network's. A file that all hosts
//! share is one version, and is not read for that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use torchlift::preflight::nccl::{self, Collectives};
use torchlift::preflight::{Closure, code};
use torchlift_schema::{Accelerator, Finding, Place};

use super::check::{Check, Label, Subject};
use super::{Question, Verified, listed};
use crate::plan::accept;

/// How the file of a library with collectives begins; the later ones have it only where none of the first is loaded.
const LIBRARIES: [&str; 4] = ["libnccl.so", "librccl.so", "libtorch_cuda.so", "libtorch_hip.so"];
/// Hosts that are named of one version; more are counted.
const MOST_NAMED: usize = 4;

/// Adds what is to be said of the run.
pub(super) fn check(question: &Question, verified: &mut Verified) {
    let is_gpu = |accelerator: &Accelerator| matches!(accelerator, Accelerator::Cuda(_) | Accelerator::Rocm(_));
    let mut files: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    let mut without: Vec<&str> = Vec::new();
    let mut hosts = 0;
    for (built, looked) in question.hosts.iter().zip(&verified.hosts) {
        if !built.host.libtorch.as_ref().is_some_and(|libtorch| is_gpu(&libtorch.accelerator)) {
            continue;
        }
        hosts += 1;
        match looked.inspection.as_ref().and_then(|inspection| library(&inspection.closure)) {
            Some(file) => files.entry(file).or_default().push(&built.host.name),
            None => without.push(&built.host.name),
        }
    }
    if hosts < 2 {
        return;
    }
    let versions = if files.len() > 1 { versions(&files) } else { Versions::default() };
    let findings: Vec<Finding> = difference(&versions.known).into_iter().collect();
    let findings = accept(findings, &question.accept, |code| !code::INTEGRITY.contains(&code));
    let unknown: Vec<&str> = without.into_iter().chain(versions.unknown).collect();
    verified.run.push(match (files.len(), versions.known.len()) {
        _ if findings.is_empty() && !unknown.is_empty() => {
            Check::not(Subject::Nccl, format!("which version {} would load is not known", named(&unknown)))
        }
        (1, _) => {
            let file = files.keys().next().map(|file| file.display().to_string()).unwrap_or_default();
            Check::made(Subject::Nccl, Label::Here, format!("all {hosts} hosts load `{file}`"), &findings)
        }
        _ => {
            let all: Vec<String> = versions.known.keys().map(ToString::to_string).collect();
            Check::made(Subject::Nccl, Label::Here, all.join(", "), &findings)
        }
    });
    verified.findings.extend(findings);
}

/// The file with the collectives that a program would load, links followed.
fn library(closure: &Closure) -> Option<PathBuf> {
    let is_one = |path: &Path, start: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
    };
    LIBRARIES.iter().find_map(|start| {
        let object = closure.objects.iter().find(|object| is_one(&object.path, start))?;
        Some(fs_err::canonicalize(&object.path).unwrap_or_else(|_| object.path.clone()))
    })
}

/// Versions with their hosts.
#[derive(Debug, Default)]
struct Versions<'a> {
    known: BTreeMap<Collectives, Vec<&'a str>>,
    /// Hosts of files that do not say.
    unknown: Vec<&'a str>,
}

fn versions<'a>(files: &BTreeMap<PathBuf, Vec<&'a str>>) -> Versions<'a> {
    let mut versions = Versions::default();
    for (file, hosts) in files {
        match nccl::read(file) {
            Ok(Some(version)) => versions.known.entry(version).or_default().extend(hosts),
            // A file that cannot be read is the loader's to tell of.
            Ok(None) | Err(_) => versions.unknown.extend(hosts),
        }
    }
    versions
}

/// One error when there are two of them.
fn difference(versions: &BTreeMap<Collectives, Vec<&str>>) -> Option<Finding> {
    if versions.len() < 2 {
        return None;
    }
    let each: Vec<String> = versions.iter().map(|(version, hosts)| format!("{version} on {}", named(hosts))).collect();
    let message = format!("the hosts of one run would load different collectives: {}", each.join(", "));
    Some(Finding::error(code::NCCL_DIFFERS, Place::default(), message).remedy(
        "give all of them variants of one torch build, or put one NCCL into each library path; ranks of two versions do not find each other",
    ))
}

fn named(hosts: &[&str]) -> String {
    let hosts: BTreeSet<&str> = hosts.iter().copied().collect();
    listed(hosts.into_iter(), MOST_NAMED)
}
