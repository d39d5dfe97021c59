//! Where the sockets of runs lie: a folder that nobody but their user can enter.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::{env_vars, folder};

/// What stands behind a run's id in the name of its socket.
pub(super) const ENDING: &str = "sock";
/// Bytes that the path of a socket may have, without its NUL.
const MOST_PATH: usize = 107;
/// Bytes of a run's id with the rest of its socket's name.
const MOST_NAME: usize = 48;

/// The folder of sockets: `$XDG_RUNTIME_DIR/torchlift/runs`, and one below `/tmp` where there is no such variable, or its value
/// is too long for a socket.
pub(super) fn of(env: &BTreeMap<OsString, OsString>) -> PathBuf {
    let runtime = env.get(OsStr::new(env_vars::XDG_RUNTIME_DIR)).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = runtime.map(|path| path.join("torchlift/runs"));
    let is_short = |path: &PathBuf| path.as_os_str().as_bytes().len() + MOST_NAME <= MOST_PATH;
    runtime.filter(is_short).unwrap_or_else(|| PathBuf::from(format!("/tmp/torchlift-{}/runs", geteuid())))
}

/// Where the socket of a run lies in it.
pub(super) fn socket(folder: &Path, run_id: &str) -> PathBuf {
    folder.join(format!("{run_id}.{ENDING}"))
}

/// Makes such a folder.
///
/// # Errors
/// When it cannot be made, or is not this user's alone.
pub(super) fn make(path: &Path) -> io::Result<()> {
    folder::make_private(path)?;
    path.parent().map_or(Ok(()), folder::trust)?;
    folder::trust(path)
}
