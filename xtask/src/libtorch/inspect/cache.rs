//! Facts read earlier, one small file a variant.
//!
//! A cache: whatever is wrong with it means that the facts are read again, and nothing is ever reported.

use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};

use super::VariantFacts;
use torchlift::preflight::digest::hex;

#[derive(serde::Serialize, serde::Deserialize)]
struct Cached {
    /// Raised when facts gain a field or change their meaning, so that older entries are read as absent.
    revision: u32,
    root: Utf8PathBuf,
    fingerprint: String,
    facts: VariantFacts,
}

const REVISION: u32 = 2;

/// The facts of `root`, if they were read from files with this fingerprint.
pub(super) fn load(folder: &Utf8Path, root: &Utf8Path, fingerprint: &str) -> Option<VariantFacts> {
    let text = crate::file::read(&file(folder, root)).ok()?;
    let cached: Cached = serde_json::from_slice(&text).ok()?;
    (cached.revision == REVISION && cached.root == root && cached.fingerprint == fingerprint).then_some(cached.facts)
}

/// Keeps facts for the next time; renamed in, so that a reader never sees half of it.
pub(super) fn store(folder: &Utf8Path, root: &Utf8Path, fingerprint: &str, facts: &VariantFacts) {
    let cached =
        Cached { revision: REVISION, root: root.to_owned(), fingerprint: fingerprint.to_owned(), facts: facts.clone() };
    let write = || -> std::io::Result<()> {
        fs_err::create_dir_all(folder)?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        temporary.write_all(&serde_json::to_vec(&cached)?)?;
        temporary.persist(file(folder, root))?;
        Ok(())
    };
    // Nothing depends on it: a read-only home only means that facts are read every time.
    let _ = write();
}

fn file(folder: &Utf8Path, root: &Utf8Path) -> Utf8PathBuf {
    let name = hex(&Sha256::digest(root.as_str()));
    folder.join(format!("{}.json", &name[..32]))
}
