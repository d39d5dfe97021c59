//! An examination as JSON, and what holds for all of them.

use std::process::Command;

use serde_json::Value;
use torchlift_schema::exit_code;

use crate::support::{Project, Ran};

/// What `doctor --format json` found.
pub(crate) struct Examination {
    pub(crate) json: Value,
}

/// One look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) section: String,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) found: String,
    pub(crate) remedy: String,
    pub(crate) place: Value,
}

impl Examination {
    pub(crate) fn of(project: &Project, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = project.command(&[&["doctor", "--format", "json"], args].concat());
        Self::by(command.envs(env.iter().copied()))
    }

    /// Runs a command that is made already, and checks what holds for every examination.
    pub(crate) fn by(command: &mut Command) -> Self {
        let ran = Ran::of(&command.output().unwrap());
        let json: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {} {}", ran.stdout, ran.stderr));
        assert_eq!(ran.stderr, "");
        assert_eq!(json["version"], 1);
        assert_eq!(json["exit_code"], ran.code);
        let this = Self { json };
        let ids: Vec<&str> =
            this.json["sections"].as_array().unwrap().iter().map(|section| section["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["machine", "tools", "environment", "store", "project", "cluster", "build", "leftovers"]);
        let looks = this.looks();
        for state in ["right", "doubtful", "wrong", "unchecked"] {
            let count = looks.iter().filter(|look| look.state == state).count();
            assert_eq!(this.json["counts"][state], count, "{state}");
        }
        for look in &looks {
            assert!(!look.found.is_empty() && !look.id.is_empty(), "{look:?}");
            assert_eq!(look.remedy.is_empty(), look.state == "right", "{look:?}");
        }
        assert_eq!(ran.code == 0, looks.iter().all(|look| look.state != "wrong"), "{:#}", this.json);
        this
    }

    pub(crate) fn code(&self) -> u8 {
        u8::try_from(self.json["exit_code"].as_u64().unwrap()).unwrap()
    }

    pub(crate) fn looks(&self) -> Vec<Look> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sections = self.json["sections"].as_array().unwrap();
        sections
            .iter()
            .flat_map(|section| {
                section["checks"].as_array().unwrap().iter().map(move |check| Look {
                    section: text(&section["id"]),
                    id: text(&check["id"]),
                    state: text(&check["state"]),
                    found: text(&check["found"]),
                    remedy: text(&check["remedy"]),
                    place: check["place"].clone(),
                })
            })
            .collect()
    }

    /// All looks of a section at this.
    pub(crate) fn all(&self, section: &str, id: &str) -> Vec<Look> {
        self.looks().into_iter().filter(|look| look.section == section && look.id == id).collect()
    }

    /// The only look of a section at this.
    #[track_caller]
    pub(crate) fn only(&self, section: &str, id: &str) -> Look {
        let found = self.all(section, id);
        assert_eq!(found.len(), 1, "`{id}` in {:#}", self.json);
        found[0].clone()
    }

    /// The state of the only look of a section at this.
    #[track_caller]
    pub(crate) fn state(&self, section: &str, id: &str) -> String {
        self.only(section, id).state
    }
}

#[test]
fn a_machine_and_a_project_that_are_right_are_told_line_by_line() {
    let project = Project::linked();
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.code(), exit_code::OK, "{:#}", found.json);
    for (section, ids) in [
        ("machine", &["system", "cpu", "cores", "memory", "libc", "limits", "store-folder", "temporary-folder"][..]),
        ("tools", &["cargo", "rustc", "linker", "c++-compiler"]),
        ("store", &["variant"]),
        ("project", &["workspace", "cargo-lock", "torch-version", "cluster-file", "job"]),
        ("cluster", &["kind", "host", "fit"]),
        ("build", &["plan"]),
        ("leftovers", &["build-lock"]),
    ] {
        ids.iter().for_each(|id| assert_eq!(found.state(section, id), "right", "{section} {id}: {:#}", found.json));
    }
    assert!(found.only("cluster", "kind").found.contains("`test/cpu`, torch 2.9.0+cpu, as the cluster file says"));
    assert!(found.only("cluster", "host").found.starts_with("`node-1`, `node-2`: this machine, read now"));
    assert_eq!(found.state("build", "envelope-missing"), "doubtful", "a project that was never built is nothing wrong");
}

#[test]
fn the_text_says_every_state_in_a_word_and_each_remedy_below() {
    let project = Project::linked();
    let ran = project.run_with(&["doctor"], &[("CXX", "/no/such compiler")]).fails(1);
    assert!(!ran.stdout.contains('\x1b'), "a pipe gets no colours: {}", ran.stdout);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("  wrong     c++-compiler"))
        .unwrap_or_else(|| panic!("{}", ran.stdout));
    assert!(
        lines[at + 1].starts_with("            = help: ") && lines[at + 1].contains("apt-get install g++"),
        "{}",
        ran.stdout
    );
    for heading in
        ["this machine", "tools", "environment", "libtorch stores", "project", "cluster", "builds and envelopes"]
    {
        assert!(lines.contains(&heading), "{heading}");
    }
    assert!(lines.iter().any(|line| line.starts_with("  right     rustc ")), "{}", ran.stdout);
    assert!(lines.last().unwrap().contains(", 1 wrong, "), "{}", ran.stdout);
    assert_eq!(ran.stderr, "");
}

/// Every file and folder below some folders, with its last change.
fn tree(folders: &[std::path::PathBuf]) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let entries = folders.iter().flat_map(walkdir::WalkDir::new).map(Result::unwrap);
    let mut tree: Vec<_> =
        entries.map(|entry| (entry.path().to_owned(), entry.metadata().unwrap().modified().unwrap())).collect();
    tree.sort();
    tree
}

#[test]
fn nothing_is_changed_and_no_temporary_file_is_left() {
    let project = Project::linked();
    let folders = [project.root.clone(), project.beside("home"), project.beside("temporary")];
    let before = tree(&folders);
    let found = Examination::of(&project, &[], &[("TMPDIR", folders[2].to_str().unwrap())]);
    assert_eq!(found.code(), 0, "{:#}", found.json);
    let after: Vec<_> = tree(&folders).into_iter().map(|(path, _)| path).collect();
    assert_eq!(before.into_iter().map(|(path, _)| path).collect::<Vec<_>>(), after);
}
