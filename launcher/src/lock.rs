//! A lock file that one process at a time holds, and that is waited for with a limit.
//!
//! Owns that nobody waits for ever and that no lock stays: the file is gone again when its holder is, since the folder is a
//! person's. What is read and written meanwhile is its holders' own.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use fs_err::File;

/// How often a lock that was removed while it was waited for is taken anew.
const TRIES: u32 = 1000;

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another one holds it, and does not come to its end.
    #[error("another process has held `{}` for {} s", path.display(), .patience.as_secs())]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Its file cannot be made or locked.
    #[error("`{}` cannot be locked", path.display())]
    Unusable {
        /// The lock.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Held as long as this lives.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the lock whose file is `path`, and makes that file.
    ///
    /// # Errors
    /// When it is still held after `patience`, or its file cannot be made.
    pub(crate) fn take(path: &Path, patience: Duration) -> Result<Self, LockError> {
        let unusable = |source| LockError::Unusable { path: path.to_owned(), source };
        for _ in 0..TRIES {
            let mut options = fs_err::OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(unusable)?;
            let (sender, receiver) = mpsc::channel();
            // The call that waits has no time limit: it waits in a thread that may be left behind.
            let wait = move || {
                let locked = file.file().lock();
                let _ = sender.send((file, locked));
            };
            std::thread::Builder::new().spawn(wait).map_err(unusable)?;
            let (file, locked) =
                receiver.recv_timeout(patience).map_err(|_| LockError::Busy { path: path.to_owned(), patience })?;
            match locked {
                Ok(()) => {}
                // A file system without locks: then it is the user's to change one after the other.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(error) => return Err(unusable(error)),
            }
            // Whoever held it before has removed it: then it keeps nobody else out any more.
            let is_still_there = fs_err::metadata(path).is_ok_and(|there| {
                file.metadata().is_ok_and(|held| (there.dev(), there.ino()) == (held.dev(), held.ino()))
            });
            if is_still_there {
                return Ok(Self { path: path.to_owned(), file });
            }
        }
        Err(LockError::Busy { path: path.to_owned(), patience })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is held: whoever waits for it sees that and makes a new one.
        let _ = fs_err::remove_file(&self.path);
        let _ = self.file.file().unlock();
    }
}
