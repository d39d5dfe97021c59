//! The build key: what makes two builds share a target folder.
//!
//! Sources, `Cargo.lock` and library bytes are not in it: cargo follows the first two, and new library bytes with an
//! equal ABI digest need verifying again, not building. What is in it, cargo would not notice, or would answer by
//! building everything again in the same folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::env_vars::{CARGO_ENCODED_RUSTFLAGS, RUSTFLAGS};
use crate::toolchain::Env;
use torchlift::env_vars::{CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES};
use torchlift::preflight::digest::hex;

/// Hex digits that name a folder: 64 bits, since builds of one workspace are told apart by it and nothing else.
const DIGITS: usize = 16;
/// Characters of a part that a plan shows.
const MOST_SHOWN: usize = 60;

/// Variables that compilers, linkers and build scripts read, by how their name begins; `CC_<target>` and its like too.
///
/// What cargo follows by itself is not here: a build script that asks for another variable says so to cargo.
const PREFIXES: &[&str] =
    &["AR_", "ARFLAGS", "CC_", "CFLAGS", "CUDA_", "CXXFLAGS", "CXX_", "HIP_", "LDFLAGS", "LIBTORCH", "ROCM_", "TORCH_"];

/// The same, whole names.
const NAMES: &[&str] = &["AR", "CC", "CXX", CARGO_ENCODED_RUSTFLAGS, "RUSTC", RUSTFLAGS];

/// Beginnings and ends of the variables that stand for entries of cargo's configuration.
const CONFIG: &[(&str, &str)] =
    &[("CARGO_BUILD_", "RUSTFLAGS"), ("CARGO_TARGET_", "_RUSTFLAGS"), ("CARGO_TARGET_", "_LINKER")];

/// These hold for the running of a program and not for its building.
const NOT_FOR_BUILDS: &[&str] = &[
    "CUDA_CACHE_PATH",
    CUDA_DEVICE_ORDER,
    "CUDA_LAUNCH_BLOCKING",
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
];

/// A build's key: lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct BuildKey(String);

impl BuildKey {
    /// Whether a folder of this name could be a build's.
    pub fn is_one(name: &str) -> bool {
        name.len() == DIGITS && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The key as text: the name of its folder.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BuildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a key is made of: facts by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyParts(BTreeMap<String, Vec<u8>>);

impl KeyParts {
    /// The labels of facts that are not the same in both, with what each has; in the order of the labels.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let labels: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let value = |parts: &Self, label: &str| parts.0.get(label).map(|value| shown(value));
        labels
            .into_iter()
            .filter(|label| self.0.get(*label) != other.0.get(*label))
            .map(|label| Difference { part: label.clone(), here: value(self, label), there: value(other, label) })
            .collect()
    }
}

/// A part in which two keys differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// What it is.
    pub part: String,
    /// What this build has, cut short; none where it has nothing of the kind.
    pub here: Option<String>,
    /// What the other one has.
    pub there: Option<String>,
}

/// A value for people: the first line, cut short, its elements apart.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value).replace(['\0', '\u{1f}'], " ");
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MOST_SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Collects what a key is made of.
#[derive(Default)]
pub(super) struct KeyMaker {
    digest: Sha256,
    parts: KeyParts,
}

impl KeyMaker {
    /// Adds a fact. Lengths keep neighbouring facts apart.
    pub(super) fn add(&mut self, label: &str, value: &[u8]) {
        for part in [label.as_bytes(), value] {
            self.digest.update((part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
        self.parts.0.insert(label.to_owned(), value.to_owned());
    }

    /// Adds every variable of `env` that a build depends on.
    pub(super) fn add_env(&mut self, env: &Env) {
        for (name, value) in env {
            if name.to_str().is_some_and(is_for_builds) {
                self.add(&name.to_string_lossy(), value.as_encoded_bytes());
            }
        }
    }

    pub(super) fn finish(self) -> (BuildKey, KeyParts) {
        (BuildKey(hex(&self.digest.finalize())[..DIGITS].to_owned()), self.parts)
    }
}

/// Whether compilers, linkers or build scripts read this variable.
pub(super) fn is_for_builds(name: &str) -> bool {
    if NOT_FOR_BUILDS.contains(&name) {
        return false;
    }
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || CONFIG.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end))
}
