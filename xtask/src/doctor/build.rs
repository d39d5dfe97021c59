//! Builds and envelopes: what was built already, whether it is of today's plan, and what a launch of it would meet.

use std::collections::BTreeMap;
use std::io;

use torchlift_schema::{Envelope, Finding};

use super::cluster::joined;
use super::{Check, Scene, Section, SectionId, counted, quoted, rank};
use crate::commands::launch::old;
use crate::error::CommandError;
use crate::execute::check_places;
use crate::facts::{Facts, Overview};
use crate::plan::{Build, BuildPlan};
use crate::workspace::{SourceId, WorkspaceFacts};

pub(super) fn look(
    scene: &Scene,
    overview: Overview,
    workspace: WorkspaceFacts,
    source: io::Result<SourceId>,
) -> Section {
    let mut section = Section::new(SectionId::Build);
    let Ok(facts) = overview.into_facts(scene.env.clone(), scene.cargo.clone(), workspace, Some(source)) else {
        section.push(Check::unchecked(
            "plan",
            "nothing can be planned yet",
            "mend what is wrong above; then run this again",
        ));
        return section;
    };
    let plan = &facts.plan;
    let builds = counted(plan.builds.len(), "cargo run");
    section.push(Check::right("plan", format!("{builds} for {}", counted(plan.hosts.len(), "host"))));
    plan.builds.iter().for_each(|build| section.push(of_build(scene, build)));
    if let Err(CommandError::Findings { findings, .. }) = check_places(plan) {
        findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
    }
    let envelopes = of_envelopes(scene, &facts, &mut section);
    if !envelopes.is_empty() {
        rank::look(scene, &facts, envelopes, &mut section);
    }
    section
}

fn of_build(scene: &Scene, build: &Build) -> Check {
    let found = format!("`{}` for {} ({})", build.key, build.concerns(), counted(build.hosts.len(), "host"));
    if build.dir.is_dir() {
        return Check::right("build", format!("{found}: in {}", quoted(&build.dir)));
    }
    Check::doubtful("build", format!("{found}: never built, or its folder is gone"), scene.typed("build"))
}

/// The envelopes that can be used.
fn of_envelopes(scene: &Scene, facts: &Facts, section: &mut Section) -> BTreeMap<String, Envelope> {
    let mut envelopes = BTreeMap::new();
    let mut checks: Vec<(&str, Check)> = Vec::new();
    let times = old::times(facts);
    for host in &facts.plan.hosts {
        match old::of_host(facts, host, &times) {
            Ok((envelope, None)) => {
                checks.push((&host.name, Check::right("envelope", "is of the present plan and sources")));
                envelopes.insert(host.name.clone(), envelope);
            }
            Ok((envelope, Some(finding))) => {
                checks.push((&host.name, again(scene, finding)));
                envelopes.insert(host.name.clone(), envelope);
            }
            Err(unusable) => {
                checks.extend(unusable.findings.into_iter().map(|finding| (host.name.as_str(), again(scene, finding))));
            }
        }
    }
    joined(checks).into_iter().for_each(|check| section.push(check));
    let orphans = others(&facts.plan);
    if !orphans.is_empty() {
        let found = format!("{} are of hosts that the cluster file does not have", orphans.join(", "));
        let remedy =
            "`torchlift run --envelopes target/cluster` starts them too: remove their folders, unless you mean it";
        section.push(Check::doubtful("envelope", found, remedy));
    }
    envelopes
}

/// What `launch --no-build` would refuse, a build mends; one that is not there or old is nothing wrong.
fn again(scene: &Scene, finding: Finding) -> Check {
    let is_missing = finding.code == old::ENVELOPE_MISSING;
    let mut check = Check::of_finding(finding);
    // The host stands before it.
    check.place.host = None;
    if is_missing {
        check = Check::doubtful(old::ENVELOPE_MISSING, "nothing was built for it yet", "");
    }
    check.remedy = Some(scene.typed("build"));
    check
}

/// Envelopes of hosts that the cluster file does not have, by their folders.
fn others(plan: &BuildPlan) -> Vec<String> {
    let folder = plan.workspace.join(crate::plan::PUBLISHED);
    let entries = folder.read_dir_utf8().into_iter().flatten().flatten();
    let is_other = |name: &str| plan.hosts.iter().all(|host| host.name != name);
    let has_one = |folder: &camino::Utf8Path| folder.join(torchlift_schema::envelope::FILE_NAME).is_file();
    let mut found: Vec<String> = entries
        .filter(|entry| is_other(entry.file_name()) && has_one(entry.path()))
        .map(|entry| quoted(entry.path().strip_prefix(&plan.workspace).unwrap_or(entry.path())))
        .collect();
    found.sort();
    found
}
