//! Builds that no envelope names any more: found, and taken out.
//!
//! Owns what may go. A folder that is not named as a build is nobody's here, and an envelope that cannot be read keeps
//! everything: what it names is not known. Whoever calls holds the workspace's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::envelope::FILE_NAME;
use torchlift_schema::{Finding, Place, read};

use crate::plan::{BuildKey, PUBLISHED};

/// How a folder is called while it is taken out: what is left of one after a crash goes with the next.
const GOING: &str = ".going-";

/// A build's folder.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OldBuild {
    /// Its name, which is its key.
    pub key: String,
    /// The folder.
    pub dir: Utf8PathBuf,
    /// Bytes on disk that are freed with it.
    pub size: u64,
    /// Days since something in it was written last; none where the clocks do not agree.
    pub idle_days: Option<u64>,
}

/// The builds in `builds_dir` that no envelope of the workspace names, and how many are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stale {
    /// Those that may go.
    pub builds: Vec<OldBuild>,
    /// Number of those that stay.
    pub kept: usize,
}

/// Finds them; `now` is the time since 1970.
///
/// # Errors
/// With a finding for each envelope that cannot be read.
pub fn find(workspace: &Utf8Path, builds_dir: &Utf8Path, now: Duration) -> Result<Stale, Vec<Finding>> {
    let named = named(workspace)?;
    let mut stale = Stale::default();
    let mut folders: Vec<(String, Utf8PathBuf)> = entries(builds_dir);
    folders.sort();
    for (name, dir) in folders {
        let key = name.strip_prefix(GOING).unwrap_or(&name);
        // A link leads elsewhere, and elsewhere nothing is taken out.
        let is_folder = fs_err::symlink_metadata(&dir).is_ok_and(|metadata| metadata.is_dir());
        if !is_folder || !BuildKey::is_one(key) {
            continue;
        }
        if key.len() == name.len() && named.contains(key) {
            stale.kept += 1;
            continue;
        }
        let (size, last) = measure(&dir);
        let last = last.and_then(|last| last.duration_since(SystemTime::UNIX_EPOCH).ok());
        let idle = last.and_then(|last| now.checked_sub(last));
        let idle_days = idle.map(|idle| idle.as_secs() / 86_400);
        stale.builds.push(OldBuild { key: key.to_owned(), dir, size, idle_days });
    }
    Ok(stale)
}

/// Takes a build out: renamed first, so that no build finds half of it.
///
/// # Errors
/// When it cannot be removed, whole or in part.
pub fn remove(build: &OldBuild) -> std::io::Result<()> {
    let parent = build.dir.parent().unwrap_or(Utf8Path::new("/"));
    let going = parent.join(format!("{GOING}{}", build.key));
    if going != build.dir {
        if going.is_dir() {
            fs_err::remove_dir_all(&going)?;
        }
        fs_err::rename(&build.dir, &going)?;
    }
    fs_err::remove_dir_all(&going)
}

/// The keys that the envelopes of the workspace name.
fn named(workspace: &Utf8Path) -> Result<BTreeSet<String>, Vec<Finding>> {
    let mut keys = BTreeSet::new();
    let mut findings = Vec::new();
    for (_, folder) in entries(&workspace.join(PUBLISHED)) {
        let file = folder.join(FILE_NAME);
        if fs_err::symlink_metadata(&file).is_err() {
            continue;
        }
        let why = match crate::file::read(&file) {
            Err(error) => error.to_string(),
            Ok(bytes) => match read::envelope(&bytes) {
                Ok(envelope) => {
                    keys.insert(envelope.artifact.build_key);
                    continue;
                }
                Err(error) => error.to_string(),
            },
        };
        findings.push(
            Finding::error(
                "clean-envelope",
                Place::file(file.as_str()),
                format!("which build it names is not known: {why}"),
            )
            .remedy("build again, or remove the envelope; nothing is taken out until then"),
        );
    }
    if findings.is_empty() { Ok(keys) } else { Err(findings) }
}

fn entries(folder: &Utf8Path) -> Vec<(String, Utf8PathBuf)> {
    let entries = folder.read_dir_utf8().into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_owned(), entry.into_path())).collect()
}

/// Bytes on disk, a file with several names once, and the time of the last change.
fn measure(folder: &Utf8Path) -> (u64, Option<SystemTime>) {
    let mut sizes: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut last = None;
    for entry in walkdir::WalkDir::new(folder).follow_links(false).into_iter().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        sizes.insert((metadata.dev(), metadata.ino()), metadata.blocks() * 512);
        last = last.max(metadata.modified().ok());
    }
    (sizes.values().sum(), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_as_a_build_is_nobodys_and_a_link_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        let builds = base.join("builds");
        for name in ["0123456789abcdef", "notes", "0123456789ABCDEF", "0123456789abcde", ".going-00000000000000ff"] {
            fs_err::create_dir_all(builds.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(base, builds.join("fedcba9876543210")).unwrap();
        fs_err::write(builds.join("0000000000000000"), "a file").unwrap();
        let stale = find(base, &builds, torchlift::clock::wall()).unwrap();
        let keys: Vec<&str> = stale.builds.iter().map(|build| build.key.as_str()).collect();
        assert_eq!(keys, ["00000000000000ff", "0123456789abcdef"]);
        stale.builds.iter().for_each(|build| remove(build).unwrap());
        let mut left: Vec<String> = entries(&builds).into_iter().map(|(name, _)| name).collect();
        left.sort();
        assert_eq!(left, ["0000000000000000", "0123456789ABCDEF", "0123456789abcde", "fedcba9876543210", "notes"]);
    }
}
