//! One check, who made it, and what came of it.
//!
//! Owns the words: a check that was not made says why, has no result, and never makes a host one that holds.

use torchlift_schema::{Finding, Severity};

use torchlift::preflight::code;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Program and libraries are those that the envelope names.
    Bytes,
    /// The loader finds every library of the program and its variant.
    Libraries,
    /// It finds those of the system.
    SystemLibraries,
    /// Every symbol that is referred to is offered.
    Symbols,
    /// Libraries offer the versions that are needed of their symbols.
    SymbolVersions,
    /// The host's C library, libstdc++ and libgcc are new enough, by its facts.
    SystemVersions,
    /// The program and the libtorch have one `std::string`.
    CxxAbi,
    /// The program uses the C++ library that its libtorch uses.
    CxxLibrary,
    /// The program needs no newer glibc than its toolchain allows.
    GlibcFloor,
    /// The variant's GPU library is loaded.
    Accelerator,
    /// What is loaded by its name is there.
    LoadedByName,
    /// The CPU runs the code.
    Cpu,
    /// The cards run the code.
    Gpu,
    /// All hosts of the run have one NCCL or RCCL.
    Nccl,
}

impl Subject {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Libraries => "libraries",
            Self::SystemLibraries => "system libraries",
            Self::Symbols => "symbols",
            Self::SymbolVersions => "symbol versions",
            Self::SystemVersions => "system versions",
            Self::CxxAbi => "C++ ABI",
            Self::CxxLibrary => "C++ library",
            Self::GlibcFloor => "glibc floor",
            Self::Accelerator => "GPU library",
            Self::LoadedByName => "loaded by name",
            Self::Cpu => "CPU",
            Self::Gpu => "GPU code",
            Self::Nccl => "NCCL",
        }
    }

    /// What a finding of the loader's search is about.
    pub(super) fn of(finding: &Finding) -> Self {
        match finding.code.as_str() {
            code::SYMBOL_MISSING => Self::Symbols,
            code::VERSION_MISSING => Self::SymbolVersions,
            code::CXX_ABI_DIFFERS => Self::CxxAbi,
            code::ACCELERATOR_NOT_LINKED => Self::Accelerator,
            code::WRONG_ARCHITECTURE => Self::Cpu,
            code::PROGRAM_CHANGED | code::LIBRARY_CHANGED => Self::Bytes,
            _ => Self::Libraries,
        }
    }
}

/// Who made a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Label {
    /// This machine, in the files themselves.
    #[serde(rename = "checked here")]
    Here,
    /// It was held against what the host said of itself, there.
    #[serde(rename = "checked on host")]
    OnHost,
    /// Nobody.
    #[serde(rename = "not checked")]
    Not,
}

impl Label {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Here => "checked here",
            Self::OnHost => "checked on host",
            Self::Not => "not checked",
        }
    }
}

/// What came of a check that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing is wrong.
    Holds,
    /// There is a warning, or something that was accepted.
    Doubtful,
    /// There is an error.
    Fails,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was checked.
    pub check: Subject,
    /// By whom.
    pub label: Label,
    /// What came of it; none where it was not made.
    pub outcome: Option<Outcome>,
    /// Against what it was held, or why it was not made.
    pub how: String,
}

impl Check {
    /// A check that was made, with what it found.
    pub(super) fn made(check: Subject, label: Label, how: impl Into<String>, findings: &[Finding]) -> Self {
        let worst = findings.iter().map(|finding| match finding.severity {
            Severity::Error => Outcome::Fails,
            Severity::Warning => Outcome::Doubtful,
        });
        Self { check, label, outcome: Some(worst.max().unwrap_or(Outcome::Holds)), how: how.into() }
    }

    /// A check that was not made.
    pub(super) fn not(check: Subject, why: impl Into<String>) -> Self {
        Self { check, label: Label::Not, outcome: None, how: why.into() }
    }
}

/// What can be said of a host, or of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every check was made, and none fails.
    Holds,
    /// None fails, and not every one was made.
    Unproven,
    /// One fails.
    Fails,
}

impl Verdict {
    /// That of all of these checks.
    pub fn of<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Self {
        let one = |check: &Check| match check.outcome {
            Some(Outcome::Fails) => Self::Fails,
            Some(_) => Self::Holds,
            None => Self::Unproven,
        };
        checks.into_iter().map(one).max().unwrap_or(Self::Unproven)
    }
}

#[cfg(test)]
mod tests {
    use torchlift_schema::Place;

    use super::*;

    #[test]
    fn what_was_not_checked_never_counts_as_good() {
        let good = Check::made(Subject::Symbols, Label::Here, "", &[]);
        let accepted = [Finding::warning(code::SYMBOL_MISSING, Place::default(), "x")];
        let doubtful = Check::made(Subject::Symbols, Label::Here, "", &accepted);
        let bad =
            Check::made(Subject::Cpu, Label::OnHost, "", &[Finding::error(code::CPU_LACKS, Place::default(), "x")]);
        let not = Check::not(Subject::Gpu, "nobody asked");
        assert_eq!(Verdict::of([&good, &doubtful]), Verdict::Holds);
        assert_eq!(Verdict::of([&good, &not]), Verdict::Unproven);
        assert_eq!(Verdict::of([&not, &bad, &good]), Verdict::Fails);
        assert_eq!(Verdict::of([]), Verdict::Unproven, "nothing was checked at all");
    }
}
