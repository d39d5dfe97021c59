//! Folders that nobody but their user can enter: of sockets, keys, and what ranks wrote.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use nix::unistd::geteuid;

/// Makes a folder of mode 0700, and those above it; one that is there stays as it is.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Makes sure that a folder is one, of this user alone.
///
/// # Errors
/// When somebody else may enter it, or could have made what is in it.
pub(crate) fn trust(folder: &Path) -> io::Result<()> {
    let metadata = fs_err::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        let message = format!("`{}` is not a folder of this user alone (mode 0700)", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}
