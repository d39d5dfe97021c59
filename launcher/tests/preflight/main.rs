//! `preflight` against real files: libraries compiled here, the machine's own programs, and the machine's own loader.

#![expect(clippy::unwrap_used, reason = "what surrounds a test may fail as the test itself may")]

#[path = "../support/stand_in.rs"]
mod stand_in;

mod elf;
mod hostile;
mod loader;
mod real_loader;
mod start;
mod symbols;
mod verify;

use std::path::{Path, PathBuf};

/// A temporary folder whose path has a space and letters beyond ASCII.
struct Room {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Room {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Its real path, so that what the loader prints can be compared.
        let root = folder.path().canonicalize().unwrap().join("röom 1");
        fs_err::create_dir(&root).unwrap();
        Self { _folder: folder, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A folder in it, made when it is not there.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs_err::create_dir_all(&path).unwrap();
        path
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
