//! Signals that end a build, taken as values instead of a sudden death.
//!
//! While one of these lives, INT, TERM, HUP and QUIT wait in a descriptor, but for those that the process ignores.
//! Threads inherit that, and children do not: the standard library gives every child an empty mask.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that a person or a system ends a program with.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Holds the ending signals back from this thread, and from threads that it starts.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    before: SigSet,
    /// All that came, in their order.
    came: Mutex<Vec<Signal>>,
}

/// How many of the signals someone has heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard(usize);

impl Signals {
    /// Begins to hold them back.
    ///
    /// Must come before any other thread is started: a signal goes to whichever thread takes it.
    pub fn hold() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        let ignored = ignored();
        // `nohup` and a shell's background jobs mean it. A signal that is held back comes even where it is ignored.
        ENDING.into_iter().filter(|signal| !is_among(*signal, ignored)).for_each(|signal| set.add(signal));
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self { fd, before, came: Mutex::default() })
    }

    /// The one that came, if any.
    pub fn take(&self) -> Option<Signal> {
        let info = self.fd.read_signal().ok()??;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }

    /// The next one for somebody who is not alone in hearing them.
    pub(super) fn next(&self, heard: &mut Heard) -> Option<Signal> {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.extend(self.take());
        let next = came.get(heard.0).copied();
        heard.0 += usize::from(next.is_some());
        next
    }
}

/// The signals that this process ignores, a bit each, from signal 1 on; none where that cannot be told.
fn ignored() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_among(signal: Signal, mask: u64) -> bool {
    mask >> (signal as u64 - 1) & 1 == 1
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What is still waiting is delivered now, and ends the program as it would have at first.
        let _ = self.before.thread_set_mask();
    }
}
