//! The cluster: which libtorch each kind gets and why, what is known of each host, and how its cards are served.

use torchlift_schema::{Accelerator, Finding};

use super::{Check, Section, SectionId, State, counted};
use crate::cluster::{Host, Kind, LibtorchChoice, Reach};
use crate::facts::{KnownHost, Origin, Overview};
use crate::libtorch::Variant;
use crate::libtorch::auto::{Machine, Wish, choose};
use crate::toolchain::RustcFacts;
use torchlift::preflight::code::HOST_FACT_UNREAD;

/// Hosts that are named where many have the same; the rest is counted.
const MOST_NAMED: usize = 8;

/// Whether a finding is about hosts, kinds and what they get, and not about how the file is written.
pub(super) fn is_about(finding: &Finding) -> bool {
    let starts = ["libtorch-", "facts-", "host-", "gpu-", "driver-", "gfx-", "device-"];
    let ends = "-not-yet";
    finding.place.host.is_some()
        || starts.iter().any(|start| finding.code.starts_with(start))
        || finding.code.ends_with(ends)
}

pub(super) fn look(overview: &Overview, rustc: &RustcFacts, findings: Vec<Finding>) -> Section {
    let mut section = Section::new(SectionId::Cluster);
    for (index, kind) in overview.cluster.kinds.iter().enumerate() {
        if overview.machines.contains_key(&index) {
            section.push(of_kind(overview, index, kind, rustc));
        }
    }
    let mut hosts = Vec::new();
    for host in &overview.hosts {
        hosts.push((host.name.as_str(), known(overview, host)));
    }
    for host in &overview.hosts {
        hosts.extend(served(overview, host, rustc).map(|check| (host.name.as_str(), check)));
    }
    for host in &overview.hosts {
        let problems = problems(overview.known_hosts.get(&host.name));
        hosts.extend(problems.into_iter().map(|check| (host.name.as_str(), check)));
    }
    joined(hosts).into_iter().for_each(|check| section.push(check));
    findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
    if overview.hosts.is_empty() {
        section.push(Check::unchecked(
            "hosts",
            "the cluster file leaves none to look at",
            "mend what stands under `project`",
        ));
    }
    section
}

/// One check for all hosts of which the same is to be said.
pub(super) fn joined(of_hosts: Vec<(&str, Check)>) -> Vec<Check> {
    let mut joined: Vec<(Vec<&str>, Check)> = Vec::new();
    for (host, check) in of_hosts {
        match joined.iter_mut().find(|(_, other)| *other == check) {
            Some((hosts, _)) => hosts.push(host),
            None => joined.push((vec![host], check)),
        }
    }
    let told = |(hosts, mut check): (Vec<&str>, Check)| {
        let names = hosts.iter().take(MOST_NAMED).map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ");
        let more = hosts.len().saturating_sub(MOST_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        check.found = format!("{names}{more}: {}", check.found);
        if let [only] = hosts.as_slice() { check.on(only) } else { check }
    };
    joined.into_iter().map(told).collect()
}

fn of_kind(overview: &Overview, index: usize, kind: &Kind, rustc: &RustcFacts) -> Check {
    let name = if kind.name.is_empty() { "every host".to_owned() } else { format!("`{}`", kind.name) };
    let target = kind.target.as_deref().unwrap_or(&rustc.host);
    let name = format!("{name} for {target}");
    let chosen = overview.plan.iter().flat_map(|plan| &plan.chosen).find(|choice| choice.kind == kind.name);
    match overview.variants.get(&index) {
        None if kind.libtorch == LibtorchChoice::None => Check::right("kind", format!("{name}: without a libtorch")),
        Some(Ok(variant)) => {
            let version = &variant.facts.version;
            let why = match chosen {
                Some(choice) => format!(", by `auto`: {}", choice.reason),
                None if kind.libtorch == LibtorchChoice::Auto => ", by `auto`".to_owned(),
                None => ", as the cluster file says".to_owned(),
            };
            Check::right("kind", format!("{name}: `{}`, torch {version}{why}", variant.name()))
        }
        // What is wrong with it is a finding of its own.
        _ => Check::unchecked(
            "kind",
            format!("{name}: it has no libtorch yet"),
            "mend what is told of its libtorch below",
        ),
    }
}

/// How a host is reached, how old is what is known of it, and what it has.
fn known(overview: &Overview, host: &Host) -> Check {
    let reach = match &host.reach {
        Reach::Local => "this machine".to_owned(),
        Reach::Ssh(to) => format!("by ssh to `{to}`"),
        Reach::Agent(to) => format!("by an agent at `{to}`"),
        Reach::Slurm => "by Slurm".to_owned(),
    };
    let Some(known) = overview.known_hosts.get(&host.name) else {
        let remedy = format!("on that host, in the project: `torchlift probe --save --host {}`", host.name);
        return Check::doubtful("host", format!("{reach}, of which nothing is known"), remedy);
    };
    let read = match &known.origin {
        Origin::Probed => "read now".to_owned(),
        Origin::Saved { age_days: Some(0), .. } => "read today".to_owned(),
        Origin::Saved { age_days: Some(days), .. } => {
            format!("read {} ago", counted(usize::try_from(*days).unwrap_or(usize::MAX), "day"))
        }
        Origin::Saved { age_days: None, .. } => "read at a time to come".to_owned(),
    };
    let has = machine(overview, host).map(|machine| format!("; {}", machine.equipment())).unwrap_or_default();
    Check::right("host", format!("{reach}, {read}{has}"))
}

/// What a host is for a libtorch.
fn machine<'o>(overview: &'o Overview, host: &Host) -> Option<&'o Machine> {
    overview.machines.get(&host.kind)?.iter().find(|machine| machine.name == host.name)
}

/// How a host is served by the libtorch of its kind; what does not serve it is a finding of the plan.
fn served(overview: &Overview, host: &Host, rustc: &RustcFacts) -> Option<Check> {
    let variant: &Variant = overview.variants.get(&host.kind)?.as_ref().ok()?;
    let machine = machine(overview, host)?;
    let target = overview.cluster.kind_of(host).target.as_ref().unwrap_or(&rustc.host);
    let wish = Wish {
        version: None,
        cpu_arch: target.split('-').next().unwrap_or_default(),
        machines: std::slice::from_ref(machine),
    };
    let name = variant.name();
    match choose(&wish, &[variant.candidate()]) {
        Ok(chosen)
            if overview.known_hosts.get(&host.name).is_none() && variant.facts.accelerator != Accelerator::Cpu =>
        {
            let remedy = format!("on that host, in the project: `torchlift probe --save --host {}`", host.name);
            Some(Check::unchecked("fit", format!("`{name}`: {}", chosen.reason), remedy))
        }
        Ok(chosen) => Some(Check::right("fit", format!("`{name}`: {}", chosen.reason))),
        Err(none) => {
            let reasons: Vec<String> = none.refused.iter().map(ToString::to_string).collect();
            // `auto` looks at what nothing works without, and a plan does too: what only this finds is told here alone.
            let is_told = overview
                .findings
                .iter()
                .any(|finding| finding.is_error() && finding.place.host.as_deref() == Some(&host.name));
            let remedy = format!(
                "choose another libtorch for the kind, or leave the cards out with `devices` ({})",
                reasons.join("; ")
            );
            let found = format!("`{name}` does not serve it");
            Some(if is_told {
                Check::unchecked("fit", found, "see what is told of this host below")
            } else {
                Check::doubtful("fit", found, remedy)
            })
        }
    }
}

/// What saved facts tell to be broken on their host; this machine's own is told with this machine.
fn problems(known: Option<&KnownHost>) -> Vec<Check> {
    let Some(known) = known.filter(|known| known.origin != Origin::Probed) else { return Vec::new() };
    let problems = known.facts.problems.iter().filter(|problem| problem.code != HOST_FACT_UNREAD);
    let told = |problem: &Finding| {
        let mut check = Check::of_finding(problem.clone());
        // It was so when it was read.
        check.state = State::Doubtful;
        check
    };
    problems.map(told).collect()
}
