//! The processes below this one, as /proc shows them.
//!
//! Nothing that is not ours is ever signalled. A direct child keeps its process id until it is waited for, so it may be
//! signalled by number; anything deeper only through a pidfd, opened before its ancestry is read.
//! `/proc/<pid>/task/<tid>/children` would be quicker, but kernels without CONFIG_PROC_CHILDREN do not have it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// Links from a process up to its ancestor that are followed, at most: more is a loop made by recycled ids.
const MAX_DEPTH: usize = 4096;

/// What is needed of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Process id.
    pub(crate) pid: i32,
    /// Whether it has ended and waits to be waited for.
    pub(crate) is_zombie: bool,
    /// Its parent's process id.
    pub(crate) parent: i32,
    /// Its process group.
    pub(crate) group: i32,
    /// Its session.
    pub(crate) session: i32,
}

/// One process; none when it is gone.
pub(crate) fn process(pid: i32) -> Option<Process> {
    parse(pid, &fs_err::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    // The second field is the program's name in parentheses and may hold anything, parentheses too.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, is_zombie, parent: number()?, group: number()?, session: number()? })
}

/// Every process that /proc shows.
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = fs_err::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(process).collect()
}

/// The direct children of this process, those included that have ended but were not waited for.
pub(crate) fn children() -> Vec<Process> {
    let own = std::process::id().cast_signed();
    all().into_iter().filter(|process| process.parent == own).collect()
}

/// Everything below this process.
pub(crate) fn descendants() -> Vec<Process> {
    let mut below: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all() {
        below.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![std::process::id().cast_signed()];
    while let Some(parent) = open.pop() {
        for process in below.remove(&parent).unwrap_or_default() {
            if seen.insert(process.pid) {
                open.push(process.pid);
                found.push(process);
            }
        }
    }
    found
}

/// Sends `signal` to every living descendant that `wants` it.
///
/// Between a look at /proc and a signal the process may end and its id go to a stranger.
/// So the pidfd is opened first and the ancestry read again after that: as long as the pidfd's process was not waited for,
/// what /proc says under its id is about it.
pub(crate) fn signal_descendants(signal: i32, wants: impl Fn(&Process) -> bool) {
    for candidate in descendants() {
        if candidate.is_zombie || !wants(&candidate) {
            continue;
        }
        let Ok(fd) = open_pidfd(candidate.pid) else { continue };
        if is_descendant(candidate.pid) {
            let _ = signal_pidfd(&fd, signal);
        }
    }
}

fn is_descendant(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let mut current = pid;
    for _ in 0..MAX_DEPTH {
        match process(current) {
            Some(process) if process.parent == own => return true,
            Some(process) if process.parent > 1 => current = process.parent,
            _ => return false,
        }
    }
    false
}

/// Sends SIGKILL to each direct child that `is_ours` says yes to. What they leave behind becomes a direct child in turn, because
/// this process is a subreaper: calling this again after each wait gets everything, and only ever signals ids that
/// cannot have been recycled.
///
/// Gives the children that live on because this user may not signal them.
pub(crate) fn kill_children(is_ours: impl Fn(&Process) -> bool) -> Kills {
    let mut kills = Kills::default();
    for child in children() {
        if child.is_zombie || !is_ours(&child) {
            continue;
        }
        match nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.pid), nix::sys::signal::Signal::SIGKILL) {
            Ok(()) => kills.sent += 1,
            Err(Errno::EPERM) => kills.refused += 1,
            Err(_) => {}
        }
    }
    kills
}

/// What [`kill_children`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kills {
    /// Children that got the signal.
    pub(crate) sent: usize,
    /// Children of another user, which this one may not signal.
    pub(crate) refused: usize,
}

/// A descriptor for a process that lasts beyond its id.
#[expect(unsafe_code, reason = "nix has no pidfd_open")]
pub(crate) fn open_pidfd(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(result)? as i32;
    // SAFETY: the kernel has just made this descriptor (CLOEXEC) for this process; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "nix has no pidfd_send_signal")]
fn signal_pidfd(fd: &OwnedFd, signal: i32) -> nix::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: with a null siginfo the kernel reads no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, no_info, 0) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let found = parse(7, b"7 (a) R 1 (b) S 42 43 44 0 -1 4194304").unwrap();
        assert_eq!(found, Process { pid: 7, is_zombie: false, parent: 42, group: 43, session: 44 });
        assert!(parse(7, b"7 (x) Z 1 1 1").unwrap().is_zombie);
        assert_eq!(parse(7, b"7 (x"), None);
    }

    #[test]
    fn a_grandchild_is_a_descendant_and_a_stranger_is_none() {
        let mut child = Command::new("/bin/sh").args(["-c", "cat; :"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let deadline = crate::clock::Clock::start();
        let grandchild = loop {
            if let Some(found) = descendants().into_iter().find(|process| process.parent == pid) {
                break found;
            }
            assert!(deadline.now().since(crate::clock::Moment::after_zero(std::time::Duration::ZERO)).as_secs() < 20);
            std::thread::yield_now();
        };
        assert!(is_descendant(grandchild.pid));
        assert!(!is_descendant(1));
        assert!(children().iter().any(|process| process.pid == pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!is_descendant(pid));
    }

    #[test]
    fn a_signal_reaches_only_the_wanted_descendants() {
        let mut wanted = Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let mut other = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = wanted.id().cast_signed();
        signal_descendants(libc::SIGTERM, |process| process.pid == pid);
        let status = wanted.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
        assert_eq!(other.try_wait().unwrap(), None);
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
    }
}
