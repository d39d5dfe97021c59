//! Reading a zip archive of somebody else's making: wheels and the official libtorch archives.
//!
//! Owns what may leave such an archive: no entry that would be written outside the folder given, no link that points
//! out of it, no byte that differs from the digest the archive states. Must not know what the entries mean.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Component;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use zip::ZipArchive;

/// Symbolic link, in the type bits of a Unix mode.
const MODE_LINK: u32 = 0o120_000;
/// The type bits of a Unix mode.
const MODE_TYPE: u32 = 0o170_000;
/// Read and written at once; large enough that a file of 0.5 GB is not a million calls.
const CHUNK: usize = 256 * 1024;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is damaged, or no zip archive: what a broken download looks like.
    #[error("`{archive}` is no whole zip archive")]
    Damaged {
        /// The archive.
        archive: Utf8PathBuf,
        /// Why.
        #[source]
        source: zip::result::ZipError,
    },
    /// An entry would be written outside the folder.
    #[error("`{archive}` holds `{entry}`, which would leave the folder it is unpacked into")]
    Escapes {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name as it stands there.
        entry: String,
    },
    /// An entry is there twice, so that two readers could see two contents.
    #[error("`{archive}` holds `{entry}` twice")]
    Twice {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// An entry that is needed is not there.
    #[error("`{archive}` holds no `{entry}`")]
    Absent {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// The archive's own list of digests does not name an entry.
    #[error("`{entry}` of `{archive}` has no digest in the archive's `RECORD`")]
    Unrecorded {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// The bytes are not those that the list of digests names.
    #[error("`{entry}` of `{archive}` has sha256 {found}, and the archive's `RECORD` says {expected}")]
    Digest {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// What `RECORD` says, lower-case hex.
        expected: String,
        /// What was read, lower-case hex.
        found: String,
    },
    /// An entry could not be decompressed, or fails its check sum.
    #[error("`{entry}` of `{archive}` cannot be unpacked")]
    Entry {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be read or written on this machine's side.
    #[error("`{file}` could not be read or written")]
    File {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ArchiveError {
    /// Whether the disk is full, or a quota is.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full_disk(source))
    }

    /// Whether a new copy of the archive may help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Digest { .. } | Self::Entry { .. } | Self::Absent { .. })
    }
}

/// Whether an error means that the disk is full, or a quota is.
pub(super) fn is_full_disk(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An open archive whose entry names were all looked at.
pub(super) struct Archive {
    path: Utf8PathBuf,
    zip: ZipArchive<BufReader<fs_err::File>>,
    sizes: BTreeMap<String, u64>,
    digests: Option<BTreeMap<String, [u8; 32]>>,
}

impl Archive {
    /// Opens an archive and refuses it as a whole when one name in it would leave the folder, needed or not.
    pub(super) fn open(path: &Utf8Path) -> Result<Self, ArchiveError> {
        let file = |source| ArchiveError::File { file: path.to_owned(), source };
        let damaged = |source| ArchiveError::Damaged { archive: path.to_owned(), source };
        let reader = BufReader::with_capacity(CHUNK, fs_err::File::open(path).map_err(file)?);
        let mut zip = ZipArchive::new(reader).map_err(damaged)?;
        let mut sizes = BTreeMap::new();
        for index in 0..zip.len() {
            let entry = zip.by_index_raw(index).map_err(damaged)?;
            let name = entry.name().to_owned();
            if !is_inside(&name) {
                return Err(ArchiveError::Escapes { archive: path.to_owned(), entry: name });
            }
            if let Some(_earlier) = sizes.insert(name.clone(), entry.size()) {
                return Err(ArchiveError::Twice { archive: path.to_owned(), entry: name });
            }
        }
        Ok(Self { path: path.to_owned(), zip, sizes, digests: None })
    }

    /// From now on every file that is read must have the digest given for it here.
    pub(super) fn require(&mut self, digests: BTreeMap<String, [u8; 32]>) {
        self.digests = Some(digests);
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// The files in it (no folders) with their size when unpacked, in bytes; sorted by name.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sizes.iter().filter(|(name, _)| !name.ends_with('/')).map(|(name, size)| (name.as_str(), *size))
    }

    /// Whether it holds a file of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.sizes.contains_key(name)
    }

    /// The whole of a small entry; held against its digest once [`Self::require`] was called.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let index = self.index(name)?;
        let mut entry = self.zip.by_index(index).map_err(|source| damaged(&self.path, source))?;
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|source| ArchiveError::Entry {
            archive: self.path.clone(),
            entry: name.to_owned(),
            source,
        })?;
        Ok(content)
    }

    /// Writes one file to `to`, with its mode, or as the link that it is; gives its size in bytes.
    ///
    /// `root` is the folder that a link must stay in. `on_bytes` hears of progress.
    pub(super) fn extract(
        &mut self,
        name: &str,
        root: &Utf8Path,
        to: &Utf8Path,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<u64, ArchiveError> {
        let index = self.index(name)?;
        let archive = &self.path;
        let in_entry = |source| ArchiveError::Entry { archive: archive.clone(), entry: name.to_owned(), source };
        let in_file = |source| ArchiveError::File { file: to.to_owned(), source };
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent).map_err(in_file)?;
        }
        let mut entry = self.zip.by_index(index).map_err(|source| damaged(archive, source))?;
        let mode = entry.unix_mode().unwrap_or(0o644);
        let mut digest = Sha256::new();
        let mut written = 0;
        if mode & MODE_TYPE == MODE_LINK {
            let mut target = String::new();
            entry.read_to_string(&mut target).map_err(in_entry)?;
            if !stays_inside(root, to, &target) {
                return Err(ArchiveError::Escapes { archive: archive.clone(), entry: format!("{name} -> {target}") });
            }
            digest.update(&target);
            fs_err::os::unix::fs::symlink(&target, to).map_err(in_file)?;
        } else {
            // `create_new`: an entry must never be written through a link that an earlier entry made.
            let file = fs_err::OpenOptions::new().write(true).create_new(true).open(to).map_err(in_file)?;
            let mut file = BufWriter::with_capacity(CHUNK, file);
            let mut chunk = vec![0; CHUNK];
            loop {
                let count = entry.read(&mut chunk).map_err(in_entry)?;
                if count == 0 {
                    break;
                }
                digest.update(&chunk[..count]);
                file.write_all(&chunk[..count]).map_err(in_file)?;
                written += count as u64;
                on_bytes(count as u64);
            }
            let file = file.into_inner().map_err(|error| in_file(error.into_error()))?;
            // Owner bits are added so that the tree can be read and deleted; set-id bits have no business here.
            let mode = (mode & 0o777) | 0o600;
            file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(in_file)?;
        }
        drop(entry);
        self.check(name, &digest.finalize().into())?;
        Ok(written)
    }

    fn check(&self, name: &str, found: &[u8; 32]) -> Result<(), ArchiveError> {
        let Some(digests) = &self.digests else { return Ok(()) };
        match digests.get(name) {
            None => Err(ArchiveError::Unrecorded { archive: self.path.clone(), entry: name.to_owned() }),
            Some(expected) if expected == found => Ok(()),
            Some(expected) => Err(ArchiveError::Digest {
                archive: self.path.clone(),
                entry: name.to_owned(),
                expected: hex(expected),
                found: hex(found),
            }),
        }
    }

    fn index(&self, name: &str) -> Result<usize, ArchiveError> {
        self.zip
            .index_for_name(name)
            .ok_or_else(|| ArchiveError::Absent { archive: self.path.clone(), entry: name.to_owned() })
    }
}

fn damaged(archive: &Utf8Path, source: zip::result::ZipError) -> ArchiveError {
    ArchiveError::Damaged { archive: archive.to_owned(), source }
}

/// Whether a name, taken below a folder, stays below it on every file system: relative, `/` only, no `..`, no NUL.
fn is_inside(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && Utf8Path::new(name).as_std_path().components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a link at `from` with this text leads to a place below `root`, by its text alone.
fn stays_inside(root: &Utf8Path, from: &Utf8Path, target: &str) -> bool {
    if target.is_empty() || target.contains('\0') || target.starts_with('/') {
        return false;
    }
    let Some(below) = from.parent().and_then(|folder| folder.strip_prefix(root).ok()) else { return false };
    let mut depth = below.components().count();
    for part in Utf8Path::new(target).as_std_path().components() {
        match part {
            Component::ParentDir if depth == 0 => return false,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    true
}

/// The SHA-256 of a file, lower-case hex.
pub(super) fn file_digest(path: &Utf8Path) -> Result<String, ArchiveError> {
    let in_file = |source| ArchiveError::File { file: path.to_owned(), source };
    let mut file = fs_err::File::open(path).map_err(in_file)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = file.read(&mut chunk).map_err(in_file)?;
        if count == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&chunk[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_folder_are_known_by_their_text() {
        for name in ["torch/lib/libc10.so", "a b/ü.h", "torch/include/"] {
            assert!(is_inside(name), "{name}");
        }
        for name in ["../x", "torch/../../x", "/etc/passwd", "a\\..\\b", "a\0b", "", "."] {
            assert!(!is_inside(name), "{name:?}");
        }
    }

    #[test]
    fn a_link_may_point_beside_itself_and_never_out() {
        let root = Utf8Path::new("/store/x");
        let from = Utf8Path::new("/store/x/lib/libgomp.so");
        for target in ["libgomp.so.1", "../include/a", "./b"] {
            assert!(stays_inside(root, from, target), "{target}");
        }
        for target in ["/etc/passwd", "../../etc", "a/../../../b", ""] {
            assert!(!stays_inside(root, from, target), "{target}");
        }
    }
}
