//! What a fetched variant was made of: `torchlift.json` in its folder.
//!
//! Machine-written: a reader tolerates unknown keys, and a higher `version` is not for it.

use camino::Utf8Path;
use torchlift_schema::VariantId;

/// The file's name in the variant's folder.
pub const FILE: &str = "torchlift.json";
/// A reader refuses a higher one.
pub const VERSION: u32 = 1;

/// The record of one fetched variant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FetchRecord {
    /// Of this format.
    pub version: u32,
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
}

/// One archive that a variant was made of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Source {
    /// The archive's file name.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// How it came here: `pip`, an address, or `kept download`.
    pub origin: String,
}

/// The record of the variant in `root`, if it has one that this version can read.
pub fn read(root: &Utf8Path) -> Option<FetchRecord> {
    let record: FetchRecord = serde_json::from_slice(&crate::file::read(&root.join(FILE)).ok()?).ok()?;
    (record.version <= VERSION).then_some(record)
}
