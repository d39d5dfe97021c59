//! `cluster.facts.json`: the facts of a cluster's hosts, written by `torchlift probe` and checked in beside the cluster file.
//!
//! Owns the format around [`crate::host`], its reader and its writer. The order of the file is canonical (hosts by name, keys
//! as the types have them), so that a change of one host is a change of its lines alone. Unknown keys are tolerated and are
//! lost when the file is written again, which a version that does not know them refuses to do where it matters: see
//! [`VERSION`]. Must not open a file.
//!
//! When you change this, or a type of [`crate::host`]: the list in [`crate::version`] holds here too, with [`VERSION`] and
//! [`REVISION`] of this module and fixtures below `fixtures/facts`.
//!
//! # Changelog
//!
//! - 1.0: `version`, `revision`, `hosts`.

mod validity;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::EnvelopeError;
use crate::finding::{Finding, Place, in_file};
use crate::host::HostFacts;
use crate::tree::Node;
use crate::{limit, read, rule, shape};

/// The version that this crate writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// The revision that this crate writes.
pub const REVISION: u32 = 0;
/// Bytes that a file of facts may have: one host has some 10 kB.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The facts of hosts, by their names in the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ClusterFacts {
    /// Refuses: a reader takes no newer one.
    #[schemars(range(min = VERSION, max = VERSION))]
    pub version: u32,
    /// Informs: grows with every added field.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub revision: u32,
    /// One entry a host.
    #[schemars(extend("propertyNames" = serde_json::json!({ "pattern": rule::HOST_LABEL })))]
    pub hosts: BTreeMap<String, HostFacts>,
}

impl Default for ClusterFacts {
    fn default() -> Self {
        Self { version: VERSION, revision: REVISION, hosts: BTreeMap::new() }
    }
}

impl ClusterFacts {
    /// The facts of one host.
    pub fn of(host: impl Into<String>, facts: HostFacts) -> Self {
        Self { hosts: BTreeMap::from([(host.into(), facts)]), ..Self::default() }
    }

    /// Whether it was written by a later torchlift, whose additions this one does not know and would lose.
    pub fn has_newer_revision(&self) -> bool {
        self.revision > REVISION
    }

    /// Every value that breaks a rule of the format; empty when all hold.
    pub fn validate(&self) -> Vec<Finding> {
        validity::check(self)
    }
}

/// Why a file of facts was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactsError {
    /// More bytes than [`MAX_BYTES`]; nothing of it was parsed.
    #[error("{size} bytes, and a file of facts has at most {limit}")]
    TooLarge {
        /// Bytes that were given.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// Of a newer version than this crate reads.
    #[error("of facts version {version}, and this `torchlift` reads up to {supported}")]
    Newer {
        /// The version that the file states.
        version: u64,
        /// The newest that is read: [`VERSION`].
        supported: u32,
    },
    /// No JSON, or not in the form of facts.
    #[error("{0}")]
    Form(EnvelopeError),
    /// Values that break a rule of the format: all of them. `Display` has the first and how many more there are.
    #[error("{}", crate::error::first_of(.findings))]
    Values {
        /// One a broken rule, with the path of the key in its place.
        findings: Vec<Finding>,
    },
}

impl FactsError {
    /// A stable kebab-case name of the variant, as in a finding.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "facts-too-large",
            Self::Newer { .. } => "facts-newer",
            Self::Form(_) => "facts-form",
            Self::Values { .. } => "facts-values",
        }
    }

    /// Path of the key that is wrong, where one is; [`FactsError::Values`] has one in each finding.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Newer { .. } => Some("version"),
            Self::Form(error) => error.path(),
            _ => None,
        }
    }

    /// What to do next: a lower-case fragment.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Newer { .. } => {
                "install a newer `torchlift` here, or remove the file and run `torchlift probe --save` on each host again"
            }
            _ => {
                "the file is written by `torchlift probe --save`: bring it back from version control, or remove it and save again"
            }
        }
    }

    /// The same as findings, each in `place` with its key: those of [`FactsError::Values`], else a single one.
    pub fn into_findings(self, place: &Place) -> Vec<Finding> {
        let hint = self.hint();
        match self {
            Self::Values { findings } => in_file(findings, place, hint),
            other => {
                let mut place = place.clone();
                place.key = other.path().map(str::to_owned);
                vec![Finding::error(other.code(), place, other.to_string()).remedy(hint)]
            }
        }
    }
}

/// Reads a file of facts of this version, of any revision.
///
/// # Errors
/// One kind for each thing a person can mend; broken values all at once.
pub fn read(bytes: &[u8]) -> Result<ClusterFacts, FactsError> {
    let text = limit::within(bytes, MAX_BYTES).map_err(|error| match error {
        EnvelopeError::TooLarge { size, limit } => FactsError::TooLarge { size, limit },
        other => FactsError::Form(other),
    })?;
    if let Some(version) = read::version_of(text).filter(|version| *version > u64::from(VERSION)) {
        return Err(FactsError::Newer { version, supported: VERSION });
    }
    let node = Node::parse(text).map_err(FactsError::Form)?;
    let facts: ClusterFacts = shape::read(&node).map_err(FactsError::Form)?;
    let findings = facts.validate();
    if findings.is_empty() { Ok(facts) } else { Err(FactsError::Values { findings }) }
}

/// The text of the file, with this crate's version and revision and a final newline.
pub fn to_text(facts: &ClusterFacts) -> String {
    let facts = ClusterFacts { version: VERSION, revision: REVISION, hosts: facts.hosts.clone() };
    crate::write::pretty(&facts)
}
