//! One build at a time in a workspace: two would publish over each other.

use std::fs::TryLockError;
use std::io::{self, Read as _, Seek as _, Write as _};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars::TORCHLIFT_INTERNAL_BUILD_LOCK;
use torchlift_schema::exit_code;

use crate::error::CommandError;
use crate::file::{NotAFile, in_words};
use crate::plan::PUBLISHED;
use crate::report::progress::Console;
use crate::toolchain::Env;

/// Held until it is dropped, or the process is gone.
#[derive(Debug)]
pub struct WorkspaceLock {
    file: Utf8PathBuf,
    _open: fs_err::File,
}

/// Why a workspace cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be made.
    #[error("the lock file `{file}` cannot be made")]
    NoFile {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This very build was started by the one that holds the lock.
    #[error("this build was started by a build of the same workspace, and would wait for it for ever")]
    Inside,
}

impl WorkspaceLock {
    /// Takes the lock of the workspace in `root`; says so when it has to wait.
    ///
    /// # Errors
    /// When the file cannot be made, or the build that holds it is what started us.
    pub fn take(root: &Utf8Path, env: &Env, console: Console) -> Result<Self, CommandError> {
        let file = lock_file(root);
        Self::of(&file, env, console).map_err(|error| {
            let is_inside = matches!(error, LockError::Inside);
            let failure = CommandError::new(exit_code::BUILD, format!("cannot build in `{root}`")).because(error);
            failure.hint(if is_inside {
                "do not call this tool from a build script of the same workspace"
            } else {
                "move what is in its way elsewhere, and make its folder writable"
            })
        })
    }

    fn of(file: &Utf8Path, env: &Env, console: Console) -> Result<Self, LockError> {
        if env.get(std::ffi::OsStr::new(TORCHLIFT_INTERNAL_BUILD_LOCK)).is_some_and(|held| held == file.as_str()) {
            return Err(LockError::Inside);
        }
        let no_file = |source| LockError::NoFile { file: file.to_owned(), source };
        if let Some(folder) = file.parent() {
            fs_err::create_dir_all(folder).map_err(no_file)?;
        }
        if let Ok(metadata) = fs_err::metadata(file)
            && !metadata.is_file()
        {
            let source = NotAFile { path: file.to_owned(), what: in_words(metadata.file_type()) };
            return Err(no_file(io::Error::other(source)));
        }
        let mut options = fs_err::OpenOptions::new();
        let mut open = options.read(true).write(true).create(true).truncate(false).open(file).map_err(no_file)?;
        match open.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only words; what cannot be read is left out.
                let _ = open.read_to_string(&mut holder);
                let holder =
                    if holder.trim().is_empty() { String::new() } else { format!(" (process {})", holder.trim()) };
                console.note(&format!("another build in this workspace{holder} is at work; waiting for it"));
                open.file().lock().map_err(no_file)?;
            }
            // A file system without locks: two builds at once are then the user's to avoid.
            Err(TryLockError::Error(_)) => console.note("this file system has no locks: run one build at a time"),
        }
        // Only words for whoever waits; the lock itself is what counts.
        let words = format!("{}\n", std::process::id());
        let _ = open.file().set_len(0).and_then(|()| open.rewind()).and_then(|()| open.write_all(words.as_bytes()));
        Ok(Self { file: file.to_owned(), _open: open })
    }

    /// The lock file.
    pub fn file(&self) -> &Utf8Path {
        &self.file
    }
}

/// The lock file of the workspace in `root`.
pub fn lock_file(root: &Utf8Path) -> Utf8PathBuf {
    root.join(PUBLISHED).join(".lock")
}
