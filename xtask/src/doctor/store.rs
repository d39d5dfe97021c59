//! The libtorch stores: what is in them, whole or not, which one a pointer names.

use std::thread;

use camino::Utf8Path;
use torchlift_schema::{Accelerator, Finding, Place};

use super::{Check, Scene, Section, SectionId, State, counted, quoted};
use crate::libtorch::add::lacking;
use crate::libtorch::arch::{ArchFile, gpu_codes};
use crate::libtorch::event::human_size;
use crate::libtorch::hold::lock_holders;
use crate::libtorch::store::{Stray, strays};
use crate::libtorch::verify::{Outcome, glance};
use crate::libtorch::{Places, Stored, Stores, VariantFacts, active, inspect, stage};

/// Looks at the store of the workspace in `root`, where there is one, and at this user's.
pub(super) fn look(scene: &Scene, root: Option<&Utf8Path>) -> Section {
    let mut section = Section::new(SectionId::Store);
    let stores = match &scene.places {
        Ok(places) => Stores::new(root, places),
        Err(_) => Stores { roots: root.map(|root| root.join("libtorch")).into_iter().collect() },
    };
    let all = stores.list();
    for store in &stores.roots {
        section.push(of_store(store, &all));
        strays(store).into_iter().for_each(|stray| section.push(of_stray(stray, store)));
    }
    let active = pointer(scene, &stores, &mut section);
    let places = scene.places.as_ref().ok();
    let checks: Vec<Vec<Check>> = thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|stored| scope.spawn(|| of_variant(stored, places))).collect();
        running.into_iter().map(|look| look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    for (stored, mut checks) in all.iter().zip(checks) {
        if let Some(first) = checks.first_mut().filter(|_| active.as_ref() == Some(&stored.root)) {
            first.found.push_str(", active");
        }
        checks.into_iter().for_each(|check| section.push(check));
    }
    if all.is_empty() {
        let remedy = format!(
            "{} gets the one that the program pins, {} takes one from this machine",
            scene.typed("libtorch fetch"),
            scene.typed("libtorch add DIR")
        );
        section.push(Check::doubtful("no-variant", "no libtorch is in any store", remedy));
    }
    section
}

fn of_store(store: &Utf8Path, all: &[Stored]) -> Check {
    let count = all.iter().filter(|stored| stored.root.starts_with(store)).count();
    if fs_err::symlink_metadata(store).is_err() {
        return Check::right("store", format!("{}, not there yet", quoted(store)));
    }
    match store.read_dir_utf8() {
        Ok(_) => Check::right("store", format!("{} with {}", quoted(store), counted(count, "variant"))),
        Err(error) => Check::wrong(
            "store",
            format!("{} cannot be listed: {}", quoted(store), error.kind()),
            "let this user read it, move away what lies there, or name another with `TORCHLIFT_HOME`",
        ),
    }
}

fn of_stray(stray: Stray, store: &Utf8Path) -> Check {
    let found = format!("{} {}", quoted(&stray.path), stray.what);
    if !stray.is_swept {
        return Check::doubtful("stray", found, format!("see what it is, and remove it: `rm -r '{}'`", stray.path));
    }
    match lock_holders(&stage::lock_file(store)).first() {
        Some(holder) => Check::right("stray", format!("{} is at work in {}", holder, quoted(stray.path))),
        None => Check::doubtful(
            "stray",
            found,
            format!("the next command that changes the store takes it away; or `rm -r '{}'`", stray.path),
        ),
    }
}

/// What the pointer that counts names; gives the folder of that variant.
fn pointer(scene: &Scene, stores: &Stores, section: &mut Section) -> Option<camino::Utf8PathBuf> {
    let read = active::case(&scene.env).and_then(|case| active::read(stores, case.as_deref()));
    let pointer = match read {
        Ok(pointer) => pointer?,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            let (found, remedy) = (format!("{error}{cause}"), error.hint(&scene.context.invocation));
            // A plain pointer is passed over; a case that is named stops.
            section.push(match error {
                active::ActiveError::Case { .. } | active::ActiveError::NoCase { .. } => {
                    Check::wrong("pointer", found, remedy)
                }
                _ => Check::doubtful("pointer", found, remedy),
            });
            return None;
        }
    };
    let root = stores.resolve(&pointer.id);
    let found = format!("{} names `{}`", quoted(&pointer.file), pointer.id);
    section.push(match &root {
        Some(_) => Check::right("pointer", found),
        None => Check::doubtful(
            "pointer",
            format!("{found}, which no store has, so that it is passed over"),
            format!("point to another with {}, or delete it", scene.typed("libtorch use ID")),
        ),
    });
    root
}

/// One variant: what it is first, then what is wrong with it.
fn of_variant(stored: &Stored, places: Option<&Places>) -> Vec<Check> {
    let facts = match inspect(&stored.root, places.map(Places::facts).as_deref()) {
        Ok(facts) => facts,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            let again = format!("get it again: `rm -r '{}'`, then fetch or add it", stored.root);
            return vec![Check::doubtful("variant", format!("`{}` cannot be used: {error}{cause}", stored.id), again)];
        }
    };
    let verified = glance(stored);
    let whole = match &verified.outcome {
        Outcome::Same { files, .. } => format!(", all of its {} there", counted(*files, "file")),
        _ => String::new(),
    };
    let mut checks = vec![Check::right("variant", format!("`{}`: {}{whole}", stored.id, described(&facts)))];
    let mut findings = verified.findings(false);
    findings.extend(said(stored, &facts));
    findings.extend(lacking(&stored.root, &stored.root));
    for finding in findings {
        let mut check = Check::of_finding(finding);
        if verified.outcome == Outcome::Unrecorded && check.id == "libtorch-unrecorded" {
            // Trees that other tools put there are meant to be used as they are.
            check.state = State::Unchecked;
        }
        checks.push(check);
    }
    checks
}

fn described(facts: &VariantFacts) -> String {
    let named = |name: &str, version: &str| format!("{name} {version}").trim_end().to_owned();
    let accelerator = match &facts.accelerator {
        Accelerator::Cuda(version) => named("CUDA", version),
        Accelerator::Rocm(version) => named("ROCm", version),
        _ => "CPU".to_owned(),
    };
    let archs = facts.archs();
    let archs = if archs.is_empty() { String::new() } else { format!(" ({})", archs.join(" ")) };
    let size = human_size(facts.size);
    format!("torch {}, {accelerator}{archs}, {}, {size}", facts.version, facts.cpu_arch)
}

/// What its `.arch` says, and its libraries do not.
fn said(stored: &Stored, facts: &VariantFacts) -> Vec<Finding> {
    match ArchFile::read(&stored.root) {
        Ok(Some(arch)) => {
            let codes = gpu_codes(facts);
            arch.disagreements(&stored.root, Some(&stored.id), facts, codes.as_ref())
        }
        Ok(None) => Vec::new(),
        Err(error) => {
            let message = format!("its `.arch` cannot be read: {error}");
            let finding = Finding::warning("libtorch-arch-file", Place::file(stored.root.as_str()), message);
            vec![finding.remedy("correct or delete its `.arch`: the libraries count")]
        }
    }
}
