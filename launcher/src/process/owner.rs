//! Processes that are no children of this one: who they are, and when they end.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::tree;

/// A process, also when its number is another's by now.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// The process with this number.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn of(pid: u32) -> nix::Result<Self> {
        tree::open_pidfd(pid.cast_signed()).map(Self)
    }

    /// Waits for its end.
    pub(crate) fn wait(&self) {
        while poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) == Err(Errno::EINTR) {}
    }
}

/// ``process 4711 (`python3` of user 1000)``; the number alone where /proc does not show it here.
pub(crate) fn shown(pid: u32) -> String {
    let folder = format!("/proc/{pid}");
    let name = fs_err::read_to_string(format!("{folder}/comm")).ok();
    match (name, fs_err::metadata(&folder)) {
        (Some(name), Ok(metadata)) => {
            format!("process {pid} (`{}` of user {})", name.trim_end().escape_debug(), metadata.uid())
        }
        _ => format!("process {pid}"),
    }
}
