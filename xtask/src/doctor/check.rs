//! One thing that was looked at, and what was found. Types only.
//!
//! When you change these: they are the JSON of `docs/doctor.md`, whose readers pass over keys that they do not know.

use torchlift_schema::{Finding, Place, Severity, exit_code};

use crate::commands::CHECK_FAILED;

/// What became of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Right,
    /// Could not be looked at, or says nothing as things are.
    Unchecked,
    /// It may be meant so; it stops nothing by itself.
    Doubtful,
    /// A build or a launch fails by it.
    Wrong,
}

impl State {
    /// The state in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Unchecked => "unchecked",
            Self::Doubtful => "doubtful",
            Self::Wrong => "wrong",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What: a stable kebab-case name; of a finding its code.
    pub id: String,
    /// What became of it.
    pub state: State,
    /// What was found: a lower-case fragment, literals in backticks.
    pub found: String,
    /// Where, as far as that is known.
    #[serde(skip_serializing_if = "is_nowhere")]
    pub place: Place,
    /// What to do next; there for everything that is not right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

fn is_nowhere(place: &Place) -> bool {
    *place == Place::default()
}

impl Check {
    /// It is as it should be.
    pub(super) fn right(id: &str, found: impl Into<String>) -> Self {
        Self { id: id.to_owned(), state: State::Right, found: found.into(), place: Place::default(), remedy: None }
    }

    /// It may be meant so.
    pub(super) fn doubtful(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Doubtful, remedy: Some(remedy.into()), ..Self::right(id, found) }
    }

    /// Something fails by it.
    pub(super) fn wrong(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Wrong, remedy: Some(remedy.into()), ..Self::right(id, found) }
    }

    /// It could not be looked at.
    pub(super) fn unchecked(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Unchecked, remedy: Some(remedy.into()), ..Self::right(id, found) }
    }

    /// The same, on a host.
    #[must_use]
    pub(super) fn on(mut self, host: &str) -> Self {
        self.place.host = Some(host.to_owned());
        self
    }

    /// What another room found.
    pub(super) fn of_finding(finding: Finding) -> Self {
        let Finding { code, severity, place, message, remedy, .. } = finding;
        let state = match severity {
            Severity::Error => State::Wrong,
            Severity::Warning => State::Doubtful,
        };
        Self { id: code, state, found: message, place, remedy }
    }
}

/// Which part is looked at, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SectionId {
    /// This machine.
    Machine,
    /// Compilers and other tools.
    Tools,
    /// Variables.
    Environment,
    /// Libtorch stores.
    Store,
    /// The workspace and its cluster file.
    Project,
    /// Kinds and hosts.
    Cluster,
    /// Builds and envelopes.
    Build,
    /// What earlier commands left.
    Leftovers,
}

/// All of them.
pub const SECTIONS: [SectionId; 8] = [
    SectionId::Machine,
    SectionId::Tools,
    SectionId::Environment,
    SectionId::Store,
    SectionId::Project,
    SectionId::Cluster,
    SectionId::Build,
    SectionId::Leftovers,
];

impl SectionId {
    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Machine => "this machine",
            Self::Tools => "tools",
            Self::Environment => "environment",
            Self::Store => "libtorch stores",
            Self::Project => "project",
            Self::Cluster => "cluster",
            Self::Build => "builds and envelopes",
            Self::Leftovers => "left by earlier commands",
        }
    }
}

/// One part with all that was looked at in it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Section {
    /// Which.
    pub id: SectionId,
    /// What was looked at, in a fixed order.
    pub checks: Vec<Check>,
}

impl Section {
    /// A part in which nothing was looked at yet.
    pub(super) fn new(id: SectionId) -> Self {
        Self { id, checks: Vec::new() }
    }

    /// Adds what was looked at.
    pub(super) fn push(&mut self, check: Check) {
        self.checks.push(check);
    }
}

/// How often each state was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// As it should be.
    pub right: usize,
    /// May be meant so.
    pub doubtful: usize,
    /// Fails.
    pub wrong: usize,
    /// Could not be looked at.
    pub unchecked: usize,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Examination {
    /// A reader refuses a higher one.
    pub version: u32,
    /// The version of the tool.
    pub torchlift: &'static str,
    /// What the command ends with.
    pub exit_code: u8,
    /// How often each state was found.
    pub counts: Counts,
    /// The parts.
    pub sections: Vec<Section>,
}

impl Examination {
    pub(super) fn new(sections: Vec<Section>) -> Self {
        let checks = || sections.iter().flat_map(|section| &section.checks);
        let count = |state| checks().filter(|check| check.state == state).count();
        let counts = Counts {
            right: count(State::Right),
            doubtful: count(State::Doubtful),
            wrong: count(State::Wrong),
            unchecked: count(State::Unchecked),
        };
        let exit_code = exit_code(&sections);
        Self { version: 1, torchlift: env!("CARGO_PKG_VERSION"), exit_code, counts, sections }
    }
}

/// 201 when all that is wrong is in the cluster file or in what it asks for, 1 when anything else is.
fn exit_code(sections: &[Section]) -> u8 {
    let is_wrong = |section: &&Section| section.checks.iter().any(|check| check.state == State::Wrong);
    let mut wrong = sections.iter().filter(is_wrong).map(|section| section.id).peekable();
    if wrong.peek().is_none() {
        return exit_code::OK;
    }
    let is_of_file = |id: SectionId| matches!(id, SectionId::Project | SectionId::Cluster);
    if wrong.all(is_of_file) { exit_code::CLUSTER_FILE } else { CHECK_FAILED }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: SectionId, state: State) -> Section {
        Section { id, checks: vec![Check { state, ..Check::right("x", "y") }] }
    }

    #[test]
    fn the_exit_code_is_that_of_the_cluster_file_only_when_nothing_else_is_wrong() {
        let of = |parts: &[(SectionId, State)]| {
            Examination::new(parts.iter().map(|(id, state)| section(*id, *state)).collect()).exit_code
        };
        use SectionId::{Cluster, Machine, Project, Tools};
        use State::{Doubtful, Right, Unchecked, Wrong};
        assert_eq!(of(&[(Machine, Right), (Tools, Doubtful), (Project, Unchecked)]), exit_code::OK);
        assert_eq!(of(&[(Machine, Right), (Project, Wrong), (Cluster, Wrong)]), exit_code::CLUSTER_FILE);
        assert_eq!(of(&[(Machine, Wrong)]), CHECK_FAILED);
        assert_eq!(of(&[(Tools, Wrong), (Cluster, Wrong)]), CHECK_FAILED);
    }
}
