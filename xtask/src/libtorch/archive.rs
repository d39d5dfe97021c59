//! Reading a zip archive of somebody else's making: wheels and the official libtorch archives.
//!
//! Owns what may leave such an archive: no entry that would be written outside the folder given, no link that points
//! out of it, no byte that differs from the digest the archive states. Must not know what the entries mean.

mod central;
mod error;
mod name;
mod tar;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use zip::ZipArchive;

pub(super) use error::{ArchiveError, is_full_disk};
pub(super) use name::{MAX_BYTES, MAX_ENTRIES, SLACK};
use name::{MAX_LINK, MAX_LIST, is_inside, stays_inside};
pub(super) use tar::{Packing, unpack as unpack_tar};

/// Symbolic link, in the type bits of a Unix mode.
const MODE_LINK: u32 = 0o120_000;
/// The type bits of a Unix mode.
const MODE_TYPE: u32 = 0o170_000;
/// Regular file, folder.
const MODE_PLAIN: [u32; 3] = [0o100_000, 0o040_000, 0];
/// Read and written at once; large enough that a file of 0.5 GB is not a million calls.
const CHUNK: usize = 256 * 1024;

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
        regular(path)?;
        let reader = BufReader::with_capacity(CHUNK, fs_err::File::open(path).map_err(file)?);
        let mut zip = ZipArchive::new(reader).map_err(damaged)?;
        let names = central::names(path, zip.central_directory_start()).map_err(file)?;
        if names.len() > MAX_ENTRIES || zip.len() > MAX_ENTRIES {
            return Err(ArchiveError::TooMany { archive: path.to_owned(), limit: MAX_ENTRIES });
        }
        if let Some(entry) = central::repeated(&names) {
            return Err(ArchiveError::Twice { archive: path.to_owned(), entry });
        }
        let sizes = sizes(path, &mut zip)?;
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
        if entry.size() > MAX_LIST {
            return Err(ArchiveError::TooLarge { archive: self.path.clone(), limit: MAX_LIST });
        }
        (&mut entry).take(MAX_LIST).read_to_end(&mut content).map_err(|source| ArchiveError::Entry {
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
            (&mut entry).take(MAX_LINK).read_to_string(&mut target).map_err(in_entry)?;
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
            let stated = entry.size();
            loop {
                let count = entry.read(&mut chunk).map_err(in_entry)?;
                if count == 0 {
                    break;
                }
                digest.update(&chunk[..count]);
                file.write_all(&chunk[..count]).map_err(in_file)?;
                written += count as u64;
                if written > stated {
                    return Err(ArchiveError::Grows { archive: archive.clone(), entry: name.to_owned(), stated });
                }
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

/// The names of an archive, all of them looked at, with the sizes that it states.
fn sizes(
    path: &Utf8Path,
    zip: &mut ZipArchive<BufReader<fs_err::File>>,
) -> Result<BTreeMap<String, u64>, ArchiveError> {
    let archive = || path.to_owned();
    let mut sizes = BTreeMap::new();
    let mut links = BTreeSet::new();
    // As the file system sees them: `a/b`, `a//b` and the folder `a/b/` are one place.
    let mut places = BTreeSet::new();
    let mut sum: u64 = 0;
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).map_err(|source| damaged(path, source))?;
        let name = entry.name().to_owned();
        if !is_inside(&name) {
            return Err(ArchiveError::Escapes { archive: archive(), entry: name });
        }
        let kind = entry.unix_mode().unwrap_or_default() & MODE_TYPE;
        let place = Utf8Path::new(&name).components().collect::<Utf8PathBuf>().into_string();
        if kind == MODE_LINK {
            links.insert(place.clone());
        } else if !MODE_PLAIN.contains(&kind) {
            return Err(ArchiveError::Special {
                archive: archive(),
                entry: name,
                what: "a device, a pipe or a socket",
            });
        }
        if !places.insert(place) {
            return Err(ArchiveError::Twice { archive: archive(), entry: name });
        }
        sum = sum.saturating_add(entry.size());
        sizes.insert(name, entry.size());
    }
    if sum > MAX_BYTES {
        return Err(ArchiveError::TooLarge { archive: archive(), limit: MAX_BYTES });
    }
    match through_link(sizes.keys(), &links) {
        Some((entry, link)) => Err(ArchiveError::ThroughLink { archive: archive(), entry, link }),
        None => Ok(sizes),
    }
}

/// A pipe would wait for its writer, so that the kind is asked before a file is opened.
pub(super) fn regular(path: &Utf8Path) -> Result<std::fs::Metadata, ArchiveError> {
    let metadata = fs_err::metadata(path).map_err(|source| ArchiveError::File { file: path.to_owned(), source })?;
    if metadata.is_file() {
        return Ok(metadata);
    }
    let what = crate::file::in_words(metadata.file_type());
    Err(ArchiveError::NotAFile { archive: path.to_owned(), what })
}

/// The first name that lies below a link, and the link.
fn through_link<'a>(names: impl Iterator<Item = &'a String>, links: &BTreeSet<String>) -> Option<(String, String)> {
    if links.is_empty() {
        return None;
    }
    names.into_iter().find_map(|name| {
        let above = Utf8Path::new(name).ancestors().skip(1).find(|above| links.contains(above.as_str()))?;
        Some((name.clone(), above.to_string()))
    })
}

/// The SHA-256 of a file, lower-case hex.
pub(super) fn file_digest(path: &Utf8Path) -> Result<String, ArchiveError> {
    regular(path)?;
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
