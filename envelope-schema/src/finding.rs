//! A finding: one thing wrong or doubtful, with a code, a place and a remedy.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule;

/// Findings of values in one file: each keeps its key and gets the file's place and the one hint.
pub(crate) fn in_file(findings: Vec<Finding>, place: &Place, hint: &str) -> Vec<Finding> {
    let in_place = |mut finding: Finding| {
        finding.place = Place { key: finding.place.key.take(), ..place.clone() };
        finding.remedy(hint)
    };
    findings.into_iter().map(in_place).collect()
}

/// How much a finding weighs. Errors stop; a warning is told and recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is started or written while one stands.
    Error,
    /// Told, recorded, and passed over.
    Warning,
}

/// Where a finding is: any part may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Place {
    /// A file, as the user named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in `file`, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u32::MAX))]
    pub line: Option<u32>,
    /// Column in `file`, from 1, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u32::MAX))]
    pub column: Option<u32>,
    /// Path of a key, such as `host[1].name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A host of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Place {
    /// A place in a file.
    pub fn file(file: impl Into<String>) -> Self {
        Self { file: Some(file.into()), ..Self::default() }
    }

    /// A place that is a host as a whole.
    pub fn host(host: impl Into<String>) -> Self {
        Self { host: Some(host.into()), ..Self::default() }
    }

    /// The same place, at a line and column (from 1).
    #[must_use]
    pub fn at(mut self, line: u32, column: u32) -> Self {
        self.line = Some(line);
        self.column = Some(column);
        self
    }

    /// The same place, at a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same place, on a host.
    #[must_use]
    pub fn on(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(file) = &self.file {
            parts.push(match (self.line, self.column) {
                (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
                (Some(line), None) => format!("{file}:{line}"),
                _ => file.clone(),
            });
        }
        if let Some(host) = &self.host {
            parts.push(format!("host `{host}`"));
        }
        if let Some(key) = &self.key {
            parts.push(format!("`{key}`"));
        }
        f.write_str(&parts.join(", "))
    }
}

/// One thing wrong or doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Finding {
    /// A stable kebab-case name, such as `library-missing`; what `--accept` takes.
    #[schemars(regex(pattern = rule::CODE))]
    pub code: String,
    /// Whether it stops.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// What is wrong: a lower-case fragment without a full stop, literals in backticks.
    #[schemars(regex(pattern = rule::TEXT))]
    pub message: String,
    /// What to do next, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// An error.
    pub fn error(code: impl Into<String>, place: Place, message: impl Into<String>) -> Self {
        Self { code: code.into(), severity: Severity::Error, place, message: message.into(), remedy: None }
    }

    /// A warning.
    pub fn warning(code: impl Into<String>, place: Place, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, place, message) }
    }

    /// The same finding with what to do next.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Whether it stops.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
