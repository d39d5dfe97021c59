//! Digests of files: SHA-256 over all bytes, in parallel over cores, and remembered by what the file system says.
//!
//! Purpose: a library of a gigabyte is checked before every start for the price of one `stat`.
//! Must not decide whether a digest is right ([`super::verify`] does), and never answers from a record whose file
//! could have changed since without a change of its time stamps.
//!
//! Bytes are hashed where the kernel has them, through windows (`preflight::map`), and not copied first: of a core's time for a
//! file in memory, a copy takes a quarter. Where a file system or a sandbox has no maps, they are read.

mod cache;

use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fs_err::File;
use sha2::{Digest, Sha256};

use super::map;

pub use cache::DigestCache;

/// Bytes read at a time, where they are: large enough for a disk's read-ahead, small enough for a core's second-level cache.
const CHUNK: usize = 256 * 1024;
/// Bytes mapped at a time. Smaller ones cost more to map, and of larger ones a core waits until a disk has given all of them
/// where it could already hash the first.
const WINDOW: usize = 2 * 1024 * 1024;
/// Bytes hashed between two requests for what comes later.
const STEP: usize = 512;
/// How far ahead that is, in bytes: as long as it takes from memory to the core, some hundred nanoseconds, with some to spare.
const AHEAD: usize = 2048;

/// The size and digest of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDigest {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
}

/// Why a file has no digest.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// It is not there or cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a folder, a device, a pipe.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Another file was put into its place while it was read, or it was removed.
    #[error("`{}` was replaced or removed while it was read", path.display())]
    Replaced {
        /// The path.
        path: PathBuf,
    },
    /// It changed while it was read.
    #[error("`{}` changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

/// What the file system says of a file: as long as none of it changes, neither do the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl FileState {
    fn of(metadata: &std::fs::Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// The digest of the file at `path`, from its bytes.
///
/// # Errors
/// When it cannot be read, is no regular file, or changes meanwhile.
pub fn digest(path: &Path) -> Result<FileDigest, DigestError> {
    let (mut file, state) = open(path)?;
    read(&mut file, state, path)
}

/// Opens a regular file and says what it is now. A handle that the server of a network file system has forgotten
/// (ESTALE, after the file was replaced there) is opened anew once.
fn open(path: &Path) -> Result<(File, FileState), DigestError> {
    let unreadable = |source| DigestError::Unreadable { path: path.to_owned(), source };
    let attempt = || File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let is_stale = |error: &io::Error| error.raw_os_error() == Some(nix::errno::Errno::ESTALE as i32);
    // A pipe would wait for its writer, so that the kind is asked before the file is opened.
    let kind = fs_err::metadata(path).map_err(unreadable)?;
    if !kind.is_file() {
        return Err(DigestError::NotAFile { path: path.to_owned() });
    }
    let (file, metadata) = match attempt() {
        Err(error) if is_stale(&error) => attempt(),
        other => other,
    }
    .map_err(unreadable)?;
    Ok((file, FileState::of(&metadata)))
}

/// Reads `file` to its end, and makes sure that it stayed what it was at `state` and that it is still the one at `path`: the
/// digest of a file that is no longer there says nothing about the one that would be started.
fn read(file: &mut File, state: FileState, path: &Path) -> Result<FileDigest, DigestError> {
    let mut sha = Sha256::new();
    let read = match look_through(file, state.size, &mut sha) {
        // What could not be mapped, and what was written behind the end since it was opened.
        Seen::To(offset) => copy_from(file, offset, &mut sha).map(|length| offset + length),
        Seen::Damaged => Err(nix::errno::Errno::EIO.into()),
    };
    let size = judged(read, file, state, path)?;
    Ok(FileDigest { size, sha256: hex(&sha.finalize()) })
}

/// The size of what was read, if it is worth anything: the file is still what it was at `state`, and still there.
fn judged(read: io::Result<u64>, file: &File, state: FileState, path: &Path) -> Result<u64, DigestError> {
    let unreadable = |source| DigestError::Unreadable { path: path.to_owned(), source };
    let after = FileState::of(&file.metadata().map_err(unreadable)?);
    let at_path = fs_err::metadata(path).map(|metadata| FileState::of(&metadata));
    // Asked first: a file that is renamed over changes its time stamps too, and that is not what happened to the path.
    if !at_path.is_ok_and(|there| (there.device, there.inode) == (state.device, state.inode)) {
        return Err(DigestError::Replaced { path: path.to_owned() });
    }
    // Asked before it counts what could not be read: a file that was cut short is no failing disk.
    if after != state || read.as_ref().is_ok_and(|size| *size != state.size) {
        return Err(DigestError::Changed { path: path.to_owned() });
    }
    read.map_err(unreadable)
}

/// What was seen of a file.
enum Seen {
    /// All up to here, in bytes.
    To(u64),
    /// Some of it could not be read.
    Damaged,
}

/// Hashes the first `size` bytes of `file` where they lie, as far as they can be mapped.
fn look_through(file: &File, size: u64, sha: &mut Sha256) -> Seen {
    let mut offset = 0;
    while offset < size {
        let length = usize::try_from(size - offset).unwrap_or(WINDOW).min(WINDOW);
        match map::through(file, offset, length, |bytes| hash(sha, bytes)) {
            Ok(Some(())) => offset += length as u64,
            Ok(None) => return Seen::Damaged,
            // Nothing of this window is hashed yet.
            Err(_) => break,
        }
    }
    Seen::To(offset)
}

/// Hashes bytes that come from memory rather than from a cache.
fn hash(sha: &mut Sha256, bytes: &[u8]) {
    let end = bytes.len();
    for start in (0..end).step_by(STEP) {
        map::fetch(&bytes[(start + AHEAD).min(end)..(start + AHEAD + STEP).min(end)]);
        sha.update(&bytes[start..(start + STEP).min(end)]);
    }
}

/// Reads `file` from `offset` to its end; gives how much that was, in bytes.
fn copy_from(file: &mut File, offset: u64, sha: &mut Sha256) -> io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    let mut chunk = vec![0; CHUNK];
    let mut length = 0;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(length),
            Ok(count) => {
                sha.update(&chunk[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
