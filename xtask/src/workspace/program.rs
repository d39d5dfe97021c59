//! Which program of the workspace a job means.
//!
//! Pure. Every way to be unclear is a finding of its own, which lists what is there.

use torchlift_schema::{Finding, Place};

use super::{PackageFacts, WorkspaceFacts};
use crate::cluster::{ArtifactName, Job};

/// How alike two names must be for one to be offered for the other, by Jaro distance; clap offers from 0.7 on.
const NEAR: f64 = 0.7;

/// A program of the workspace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Program {
    /// Its package.
    pub package: String,
    /// Which cargo target.
    pub kind: ArtifactKind,
    /// The cargo target's name, which is the file's name as well.
    pub name: String,
}

/// What kind of cargo target a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactKind {
    /// `--bin`.
    Bin,
    /// `--example`.
    Example,
}

impl ArtifactKind {
    /// The word for it on cargo's command line, without dashes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bin => "bin",
            Self::Example => "example",
        }
    }

    fn names(self, package: &PackageFacts) -> &[String] {
        match self {
            Self::Bin => &package.bins,
            Self::Example => &package.examples,
        }
    }
}

/// The program that `job` means; `file` is the cluster file, for the finding's place.
///
/// # Errors
/// One finding: `package-unknown`, `program-unknown`, `program-missing` or `program-ambiguous`.
pub fn resolve(job: &Job, workspace: &WorkspaceFacts, file: &str) -> Result<Program, Box<Finding>> {
    let place = |key: &str| {
        let place = job.places.at(key);
        if place.file.is_some() { place } else { Place::file(file).key(format!("job.{}.{key}", job.name)) }
    };
    let (kind, wanted) = match &job.artifact {
        ArtifactName::Bin(name) => (ArtifactKind::Bin, name.as_deref()),
        ArtifactName::Example(name) => (ArtifactKind::Example, Some(name.as_str())),
    };
    let candidates: Vec<&PackageFacts> = match &job.package {
        None => workspace.packages.iter().collect(),
        Some(name) => {
            let found: Vec<_> = workspace.packages.iter().filter(|package| package.name == *name).collect();
            if found.is_empty() {
                let names: Vec<_> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
                let message = format!("there is no package `{name}` in the workspace `{}`", workspace.root);
                let finding = Finding::error("package-unknown", place("package"), message);
                return Err(Box::new(finding.remedy(offer("packages", name, &names))));
            }
            found
        }
    };
    let found = match wanted {
        Some(name) => named(kind, name, &candidates),
        None => unnamed(kind, &candidates, workspace),
    };
    let word = kind.word();
    let all: Vec<&str> = candidates.iter().flat_map(|package| kind.names(package)).map(String::as_str).collect();
    match (found.as_slice(), wanted) {
        ([(package, name)], _) => Ok(Program { package: package.name.clone(), kind, name: (*name).to_owned() }),
        ([], Some(name)) => {
            let within = job.package.as_ref().map_or_else(
                || format!("the workspace `{}`", workspace.root),
                |package| format!("package `{package}`"),
            );
            let message = format!("there is no {word} `{name}` in {within}");
            let remedy = other_kind(kind, name, &candidates).unwrap_or_else(|| offer(&format!("{word}s"), name, &all));
            Err(Box::new(Finding::error("program-unknown", place(word), message).remedy(remedy)))
        }
        ([], None) => {
            let message = format!("job `{}` has no program to build: no package here has a bin", job.name);
            let remedy = "add a `src/main.rs`, or name an `example`";
            Err(Box::new(Finding::error("program-missing", place("bin"), message).remedy(remedy)))
        }
        (several, _) => {
            let list: Vec<String> =
                several.iter().map(|(package, name)| format!("`{name}` of `{}`", package.name)).collect();
            let message = format!("job `{}` could mean more than one program: {}", job.name, list.join(", "));
            let is_one_package = several.iter().all(|(package, _)| package.name == several[0].0.name);
            let remedy = if is_one_package { "name one with `bin`" } else { "name one with `package` and `bin`" };
            let key = if is_one_package { "bin" } else { "package" };
            Err(Box::new(Finding::error("program-ambiguous", place(key), message).remedy(remedy)))
        }
    }
}

fn named<'a>(kind: ArtifactKind, name: &'a str, candidates: &[&'a PackageFacts]) -> Vec<(&'a PackageFacts, &'a str)> {
    let has_it = |package: &&&PackageFacts| kind.names(package).iter().any(|own| own == name);
    candidates.iter().filter(has_it).map(|package| (*package, name)).collect()
}

/// What cargo itself would run: `default-run`, else the only bin, of the default members before the others.
fn unnamed<'a>(
    kind: ArtifactKind,
    candidates: &[&'a PackageFacts],
    workspace: &WorkspaceFacts,
) -> Vec<(&'a PackageFacts, &'a str)> {
    let of = |packages: &[&'a PackageFacts]| -> Vec<(&'a PackageFacts, &'a str)> {
        packages
            .iter()
            .flat_map(|package| -> Vec<(&'a PackageFacts, &'a str)> {
                let names: &'a [String] = kind.names(package);
                match &package.default_run {
                    Some(default) if names.contains(default) => vec![(*package, default.as_str())],
                    _ => names.iter().map(|name| (*package, name.as_str())).collect(),
                }
            })
            .collect()
    };
    let all = of(candidates);
    if all.len() < 2 {
        return all;
    }
    let is_default = |package: &PackageFacts| workspace.default_packages.contains(&package.name);
    let defaults: Vec<&PackageFacts> = candidates.iter().copied().filter(|package| is_default(package)).collect();
    let of_defaults = of(&defaults);
    if of_defaults.len() == 1 { of_defaults } else { all }
}

fn other_kind(kind: ArtifactKind, name: &str, candidates: &[&PackageFacts]) -> Option<String> {
    let other = match kind {
        ArtifactKind::Bin => ArtifactKind::Example,
        ArtifactKind::Example => ArtifactKind::Bin,
    };
    let has_it = candidates.iter().any(|package| other.names(package).iter().any(|own| own == name));
    has_it.then(|| format!("`{name}` is {} there: write `{} = \"{name}\"`", article(other), other.word()))
}

fn article(kind: ArtifactKind) -> &'static str {
    match kind {
        ArtifactKind::Bin => "a bin",
        ArtifactKind::Example => "an example",
    }
}

/// What to write instead: the nearest name first, then the whole list.
pub(crate) fn offer(what: &str, wanted: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return format!("it has no {what}");
    }
    let list: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let nearest = names
        .iter()
        .map(|name| (strsim::jaro(wanted, name), name))
        .filter(|(likeness, _)| *likeness > NEAR)
        .max_by(|(left, _), (right, _)| left.total_cmp(right));
    match nearest {
        Some((_, name)) => format!("did you mean `{name}`? its {what}: {}", list.join(", ")),
        None => format!("its {what}: {}", list.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn package(name: &str, bins: &[&str], examples: &[&str]) -> PackageFacts {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        PackageFacts {
            name: name.to_owned(),
            folder: format!("/w/{name}").into(),
            bins: own(bins),
            examples: own(examples),
            default_run: None,
            features: Vec::new(),
        }
    }

    fn workspace(packages: Vec<PackageFacts>) -> WorkspaceFacts {
        WorkspaceFacts {
            root: "/w".into(),
            target_directory: "/w/target".into(),
            default_packages: packages.iter().map(|package| package.name.clone()).collect(),
            packages,
            profiles: Vec::new(),
            lock: None,
        }
    }

    fn job(package: Option<&str>, artifact: ArtifactName) -> Job {
        Job {
            name: "train".to_owned(),
            package: package.map(str::to_owned),
            artifact,
            profile: "release".to_owned(),
            cwd: String::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            push: Vec::new(),
            require: Vec::new(),
            places: Default::default(),
        }
    }

    fn bin(name: &str) -> ArtifactName {
        ArtifactName::Bin(Some(name.to_owned()))
    }

    fn shown(job: &Job, workspace: &WorkspaceFacts) -> String {
        match resolve(job, workspace, "cluster.toml") {
            Ok(program) => format!("{} {} of {}", program.kind.word(), program.name, program.package),
            Err(finding) => {
                format!("{}: {}; {}", finding.code, finding.message, finding.remedy.as_deref().unwrap_or_default())
            }
        }
    }

    #[test]
    fn a_name_is_found_in_whatever_package_has_it() {
        let facts = workspace(vec![package("lib", &[], &[]), package("trainer", &["train", "eval"], &["small"])]);
        assert_eq!(shown(&job(None, bin("train")), &facts), "bin train of trainer");
        assert_eq!(shown(&job(None, ArtifactName::Example("small".to_owned())), &facts), "example small of trainer");
    }

    #[test]
    fn without_a_name_the_only_bin_is_meant() {
        let facts = workspace(vec![package("lib", &[], &["e"]), package("trainer", &["train"], &[])]);
        assert_eq!(shown(&job(None, ArtifactName::Bin(None)), &facts), "bin train of trainer");
    }

    #[test]
    fn without_a_name_default_run_and_default_members_decide_as_in_cargo() {
        let mut facts = workspace(vec![package("a", &["one", "two"], &[]), package("b", &["three"], &[])]);
        facts.packages[0].default_run = Some("two".to_owned());
        assert_eq!(shown(&job(Some("a"), ArtifactName::Bin(None)), &facts), "bin two of a");
        facts.default_packages = vec!["b".to_owned()];
        assert_eq!(shown(&job(None, ArtifactName::Bin(None)), &facts), "bin three of b");
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_and_the_list() {
        let facts = workspace(vec![package("trainer", &["train", "eval"], &["small"])]);
        assert_eq!(
            shown(&job(None, bin("trian")), &facts),
            "program-unknown: there is no bin `trian` in the workspace `/w`; did you mean `train`? its bins: `train`, `eval`"
        );
        assert_eq!(
            shown(&job(Some("trianer"), bin("train")), &facts),
            "package-unknown: there is no package `trianer` in the workspace `/w`; did you mean `trainer`? its packages: `trainer`"
        );
        assert_eq!(
            shown(&job(Some("trainer"), bin("small")), &facts),
            "program-unknown: there is no bin `small` in package `trainer`; `small` is an example there: write `example = \"small\"`"
        );
    }

    #[test]
    fn two_that_could_be_meant_are_both_named() {
        let facts = workspace(vec![package("a", &["train"], &[]), package("b", &["train"], &[])]);
        assert_eq!(
            shown(&job(None, bin("train")), &facts),
            "program-ambiguous: job `train` could mean more than one program: `train` of `a`, `train` of `b`; \
             name one with `package` and `bin`"
        );
        assert_eq!(
            shown(&job(None, ArtifactName::Bin(None)), &workspace(vec![package("a", &[], &[])])),
            "program-missing: job `train` has no program to build: no package here has a bin; \
             add a `src/main.rs`, or name an `example`"
        );
    }
}
