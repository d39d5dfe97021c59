//! The folder of an allocator's spool: where its ranks' output is kept, and that nothing of it stays.
//!
//! Owns the lock by which an allocator that was killed is told from one that lives: the next one on the same machine takes its
//! folder away. What is in it is the engines' own.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err::File;

use crate::folder;

/// The file in a spool that its allocator holds a lock on, with the name of its machine in it.
const LOCK: &str = "torchlift-serve.lock";

/// Where the kernel says what this machine is called.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// A spool, which goes with its allocator.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    /// Held until the folder is gone.
    _lock: File,
}

impl Spool {
    /// Makes the folder, for this user alone, and takes away those beside it whose allocators were killed.
    ///
    /// # Errors
    /// When it cannot be made or locked.
    pub(super) fn make(folder: PathBuf) -> io::Result<Self> {
        let beside = folder.parent().unwrap_or(Path::new("/"));
        folder::make_private(beside)?;
        let host = host();
        remove_left(beside, &host);
        // It has its name once it has its lock: nobody can take it for one that was left.
        let unready = tempfile::Builder::new().prefix(".").tempdir_in(beside)?;
        let mut lock = File::create_new(unready.path().join(LOCK))?;
        lock.write_all(host.as_bytes())?;
        lock.file().lock()?;
        fs_err::rename(unready.keep(), &folder)?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Records end with the allocator, and what they point to with them.
        let _ = fs_err::remove_dir_all(&self.folder);
    }
}

/// Takes away the spools of allocators of this machine that live no more. What cannot be removed does no harm.
fn remove_left(beside: &Path, host: &str) {
    let Ok(entries) = fs_err::read_dir(beside) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let path = folder.join(LOCK);
        // On a folder that machines share, a lock of another one may not be seen here.
        let is_ours = fs_err::read_to_string(&path).is_ok_and(|text| text == host);
        let is_left = is_ours && File::open(&path).is_ok_and(|file| file.file().try_lock().is_ok());
        if is_left {
            let _ = fs_err::remove_dir_all(&folder);
        }
    }
}

/// The name of this machine.
fn host() -> String {
    fs_err::read_to_string(HOSTNAME).unwrap_or_default()
}
