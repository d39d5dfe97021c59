//! What a variant in the store was made of: `torchlift.json` in its folder.
//!
//! Machine-written: a reader tolerates unknown keys, and a higher `version` is not for it.

use std::collections::BTreeMap;

use camino::Utf8Path;
use torchlift_schema::VariantId;

use super::arch::Making;
use super::small;

/// The file's name in the variant's folder.
pub const FILE: &str = "torchlift.json";
/// A reader refuses a higher one.
pub const VERSION: u32 = 1;
/// Raised when a key is added: 1 has `making`, `links` and `listing_sha256`.
pub const REVISION: u32 = 1;
/// Bytes: one line for each link of a variant, and a few for each archive.
const LIMIT: u64 = 16 << 20;

/// The record of one variant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FetchRecord {
    /// Of this format.
    pub version: u32,
    /// What was added to it since.
    #[serde(default)]
    pub revision: u32,
    /// The variant's id.
    pub id: VariantId,
    /// Torch version with its local part.
    pub torch: String,
    /// Whether GPU libraries were left out, so that `libtorch.so` is Torchlift's own.
    pub is_cut: bool,
    /// When it was put into the store, in seconds since 1970.
    pub fetched_at: u64,
    /// Which release of Torchlift made it.
    pub torchlift: String,
    /// What it was made of.
    pub sources: Vec<Source>,
    /// Whether it came as binaries or was built here.
    #[serde(default = "precompiled")]
    pub making: Making,
    /// Its links, by their paths: what each says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// Digest of the list of its files, lower-case hex; none in what older releases made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing_sha256: Option<String>,
}

/// One archive or folder that a variant was made of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Source {
    /// The archive's file name; the path of a folder.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// Lower-case hex; empty for a folder.
    pub sha256: String,
    /// How it came here: `pip`, an address, `kept download`, `added`, `folder`.
    pub origin: String,
}

fn precompiled() -> Making {
    Making::Precompiled
}

/// The record of the variant in `root`, if it has one that this version can read.
pub fn read(root: &Utf8Path) -> Option<FetchRecord> {
    let record: FetchRecord = serde_json::from_slice(&small::read(&root.join(FILE), LIMIT).ok()??).ok()?;
    (record.version <= VERSION).then_some(record)
}
