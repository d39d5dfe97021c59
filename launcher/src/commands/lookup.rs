//! Where a program lies that was named without a folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The folders that a `PATH` names; an empty element is the working directory.
fn folders<'a>(path: Option<&'a OsStr>, cwd: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    // What `execvp` takes when there is no PATH.
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    path.as_bytes().split(|byte| *byte == b':').map(|element| cwd.join(OsStr::from_bytes(element)))
}

/// The first executable file of that name in the folders of `path`.
pub(in crate::commands) fn find(name: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    folders(path, cwd)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}
