//! The guard: the small process that is the parent of the ranks.
//!
//! It is this same program, started through /proc/self/exe, in a session of its own so that a terminal's signals reach neither
//! it nor the ranks. It has one thread and every signal blocked: only SIGKILL ends it early, and the ranks with it.
//! When its socket closes, the launcher is gone or done: it kills every descendant until there is none, then exits.
//!
//! Must not print, log, or hold any descriptor of the launcher but its socket: whoever reads the launcher's output waits for all
//! holders of it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, SockType, getsockopt, sockopt};
use nix::unistd::Pid;

use super::channel::{Channel, Received};
use super::message::{Report, Request};
use super::spawn::{Image, SpawnFailure, Spawner};
use super::{signal, tree};
use crate::env_vars;
use crate::event::StartStep;

/// The descriptor that a guard finds its socket on.
pub(super) const SOCKET: i32 = 0;
/// Exit code of a process that has the variable but not the socket: nobody meant it to be a guard.
const NO_GUARD: i32 = 200;
/// Milliseconds between two looks for children while killing: a signal that says so wakes the guard sooner.
const KILL_POLL_MS: u16 = 20;
/// The same, in the end.
const LONGEST_PAUSE_MS: u16 = 1000;

/// Becomes a guard when this process was started as one, and then never returns; else returns at once.
///
/// Both binaries call it first in `main`, before any thread or allocation of note.
pub fn enter() {
    if std::env::var_os(env_vars::TORCHLIFT_INTERNAL_GUARD).is_none() {
        return;
    }
    let code = match Guard::new() {
        Ok(mut guard) => {
            guard.serve();
            guard.end()
        }
        Err(_) => NO_GUARD,
    };
    signal::exit_now(code)
}

struct Guard {
    channel: Channel,
    children: SignalFd,
    spawner: Spawner,
    /// Ranks that were not waited for yet: their ids cannot be recycled.
    alive: BTreeMap<i32, u32>,
    /// Ranks that ended: their process groups may still have members.
    ended: Vec<i32>,
    /// Whether a rank was started since the last time that nothing was left.
    is_occupied: bool,
    /// Whether everything is being killed.
    is_killing: bool,
    /// Whether the launcher cannot be told anything any more.
    is_alone: bool,
}

impl Guard {
    fn new() -> nix::Result<Self> {
        let channel = Channel::over(take_socket()?);
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
        signal::reset_all();
        // Already so when the launcher asked for it at the spawn.
        let _ = nix::unistd::setsid();
        let _ = nix::sys::prctl::set_name(c"torchlift-guard");
        nix::sys::prctl::set_child_subreaper(true)?;
        let mut wanted = SigSet::empty();
        wanted.add(Signal::SIGCHLD);
        let children = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let null = signal::null_stdio()?;
        Ok(Self {
            channel,
            children,
            spawner: Spawner::new(null),
            alive: BTreeMap::new(),
            ended: Vec::new(),
            is_occupied: false,
            is_killing: false,
            is_alone: false,
        })
    }

    /// Serves the launcher until it is gone.
    fn serve(&mut self) {
        self.report(Report::Ready);
        while !self.is_alone {
            let mut fds = [
                PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.channel.as_fd(), PollFlags::POLLIN),
            ];
            let timeout =
                if self.is_killing && self.is_occupied { PollTimeout::from(KILL_POLL_MS) } else { PollTimeout::NONE };
            if poll(&mut fds, timeout).is_err() {
                continue;
            }
            let [children, channel] = fds.map(|fd| fd.any().unwrap_or(false));
            if children {
                // One SIGCHLD at most is pending, however many have ended.
                let _ = self.children.read_signal();
                self.reap();
            }
            if self.is_killing && self.is_occupied {
                tree::kill_children(|_| true);
                self.reap();
            }
            // One request a turn, so that the end of a rank is told while others are still being started.
            if channel {
                self.take_request();
            }
        }
    }

    /// Ends: kills until no descendant is left.
    fn end(&mut self) -> i32 {
        let mut pause = KILL_POLL_MS;
        // Looked at before the first kill: in most runs nothing is left, and a look through /proc takes milliseconds.
        while self.reap() {
            let kills = tree::kill_children(|_| true);
            if kills.sent == 0 && kills.refused > 0 {
                break;
            }
            let mut fds = [PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, pause);
            // Only what hangs inside the kernel is still there after the first few: do not keep a core busy with it.
            pause = (pause * 2).min(LONGEST_PAUSE_MS);
            let _ = self.children.read_signal();
        }
        0
    }

    fn take_request(&mut self) {
        match self.channel.receive() {
            Ok(Received::Frame(frame, letter, fds)) => match Request::decode(frame) {
                Some(Request::Spawn { rank }) => self.spawn(rank, letter, fds),
                Some(Request::SignalRanks { signal }) => self.signal_ranks(signal),
                Some(Request::SignalAll { signal }) => {
                    tree::signal_descendants(signal, |_| true);
                    if signal::ends(signal) {
                        tree::signal_descendants(libc::SIGCONT, |_| true);
                    }
                }
                Some(Request::Kill) => {
                    self.is_killing = true;
                    tree::kill_children(|_| true);
                }
                None => {}
            },
            Ok(Received::Nothing) => {}
            Ok(Received::Closed) | Err(_) => self.is_alone = true,
        }
    }

    fn spawn(&mut self, rank: u32, letter: Vec<u8>, fds: Vec<OwnedFd>) {
        match self.try_spawn(letter, fds) {
            Ok(pid) => {
                self.alive.insert(pid, rank);
                self.is_occupied = true;
                self.report(Report::Started { rank, pid: pid.cast_unsigned() });
            }
            Err(failure) => {
                self.report(Report::NotStarted { rank, step: failure.step, errno: failure.errno as i32 });
            }
        }
    }

    fn try_spawn(&mut self, letter: Vec<u8>, mut fds: Vec<OwnedFd>) -> Result<i32, SpawnFailure> {
        let fork = |errno| SpawnFailure { step: StartStep::Fork, errno };
        if self.is_killing {
            return Err(fork(Errno::ECANCELED));
        }
        let image = if letter.is_empty() {
            // Descriptors are missing when this process has no room for them.
            let memfd = if fds.is_empty() { Err(fork(Errno::EMFILE)) } else { Ok(fds.remove(0)) };
            Image::read(memfd?)
        } else {
            Image::parse(letter)
        };
        let image = image.map_err(|error| fork(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
        let [stdout, stderr] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| fork(Errno::EMFILE))?;
        self.spawner.spawn(&image, &stdout, &stderr)
    }

    fn signal_ranks(&self, number: i32) {
        let follow_up = signal::ends(number).then_some(libc::SIGCONT);
        for number in [Some(number), follow_up].into_iter().flatten() {
            let Ok(named) = Signal::try_from(number) else { continue };
            for pid in self.alive.keys() {
                let _ = killpg(Pid::from_raw(*pid), named);
            }
            // A group whose first process was waited for may be gone and its number with a stranger:
            // its members are found among the descendants.
            if !self.ended.is_empty() {
                tree::signal_descendants(number, |process| self.ended.contains(&process.group));
            }
        }
    }

    /// Waits for everything that has ended; says whether any child is left.
    fn reap(&mut self) -> bool {
        loop {
            match signal::wait_any() {
                Ok(Some((pid, status))) => {
                    if let Some(rank) = self.alive.remove(&pid) {
                        self.ended.push(pid);
                        self.report(Report::Ended { rank, status });
                    }
                }
                Ok(None) => return true,
                Err(_) => {
                    if std::mem::take(&mut self.is_occupied) {
                        self.ended.clear();
                        self.report(Report::Empty);
                    }
                    return false;
                }
            }
        }
    }

    fn report(&mut self, report: Report) {
        // Blocks when the launcher is slow, for instance stopped; fails only when it is gone.
        if !self.is_alone && self.channel.send(report.encode(), &[], &[], MsgFlags::empty()).is_err() {
            self.is_alone = true;
        }
    }
}

/// The socket, moved away from the standard descriptors; everything else that the launcher left open is closed.
#[expect(unsafe_code, reason = "the socket is known by its number only")]
fn take_socket() -> nix::Result<OwnedFd> {
    // SAFETY: whoever started this process as a guard gave it this descriptor, and nothing in this process has used it yet.
    let inherited = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    if getsockopt(&inherited, sockopt::SockType)? != SockType::SeqPacket {
        return Err(Errno::ENOTSOCK);
    }
    signal::close_from(3);
    // Duplicated and not moved: the original is overwritten by /dev/null next, and must stay taken until then.
    let socket = nix::fcntl::fcntl(&inherited, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(3))?;
    std::mem::forget(inherited);
    // SAFETY: the kernel has just made this descriptor for this process; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}
