//! The launcher's side of a guard: bringing it up, talking to it, and cleaning up after it when it dies.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::MsgFlags;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::channel::{Channel, Received};
use super::guard::SOCKET;
use super::message::{Report, Request};
use super::tree;
use crate::clock::Clock;
use crate::env_vars;

/// How long a guard whose socket was closed may take to end before it is left to itself: it has nothing alive then and needs
/// under a millisecond; only something that SIGKILL does not end can hold it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the leftovers of a dead guard may take to die of SIGKILL.
const STRAYS_PATIENCE: Duration = Duration::from_secs(5);
/// Milliseconds between two looks at them.
const STRAYS_POLL_MS: u16 = 2;

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The system refused a step on the way to it.
    #[error("cannot {step}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why not.
        #[source]
        source: Errno,
    },
    /// This process is a guard's process itself, and did not become one.
    #[error(
        "this program does not call `torchlift::process::guard::enter()` first in its `main`, so it cannot start ranks"
    )]
    NotEntered,
}

fn system(step: &'static str) -> impl FnOnce(Errno) -> GuardError {
    move |source| GuardError::System { step, source }
}

/// A running guard. Dropping it closes its socket, at which it kills all that it started.
#[derive(Debug)]
pub(crate) struct Guard {
    /// None once it is closed.
    channel: Option<Channel>,
    pid: i32,
    pidfd: OwnedFd,
    is_waited_for: bool,
}

impl Guard {
    /// Starts this same program again as a guard. `run_id` marks it in /proc like its ranks.
    pub(crate) fn start(run_id: &str) -> Result<Self, GuardError> {
        if std::env::var_os(env_vars::TORCHLIFT_INTERNAL_GUARD).is_some() {
            return Err(GuardError::NotEntered);
        }
        let (ours, theirs) = Channel::pair().map_err(system("make a socket pair for the guard"))?;
        let pid = execute(&theirs, run_id).map_err(system("start the guard through `/proc/self/exe`"))?;
        let pidfd = tree::open_pidfd(pid).map_err(system("open a pidfd of the guard"))?;
        Ok(Self { channel: Some(ours), pid, pidfd, is_waited_for: false })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it lives, as far as can be known without asking it.
    pub(crate) fn is_alive(&self) -> bool {
        // The pidfd of a process that has ended is readable.
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        self.channel.is_some() && poll(&mut fds, 0_u8) == Ok(0)
    }

    /// Sends a request without waiting; `EAGAIN` and `ETOOMANYREFS` mean later, anything else that it is gone.
    pub(crate) fn send(&self, request: Request, letter: &[u8], fds: &[BorrowedFd<'_>]) -> nix::Result<()> {
        let channel = self.channel.as_ref().ok_or(Errno::EPIPE)?;
        channel.send(request.encode(), letter, fds, MsgFlags::MSG_DONTWAIT)
    }

    /// The next report: `Ok(None)` when there is none now, an error when the guard is gone.
    pub(crate) fn receive(&self) -> nix::Result<Option<Report>> {
        match self.channel.as_ref().ok_or(Errno::EPIPE)?.receive()? {
            Received::Frame(frame, ..) => Report::decode(frame).map(Some).ok_or(Errno::EPROTO),
            Received::Nothing => Ok(None),
            Received::Closed => Err(Errno::EPIPE),
        }
    }

    /// The socket, for an epoll.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Closes the socket; the guard kills what is left and ends.
    pub(crate) fn close(&mut self) {
        self.channel = None;
    }

    /// Waits for the guard's own end, for a bounded time.
    fn wait(&mut self) {
        if std::mem::replace(&mut self.is_waited_for, true) {
            return;
        }
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let timeout = u16::try_from(LAST_WORDS.as_millis()).unwrap_or(u16::MAX);
        while poll(&mut fds, timeout) == Err(Errno::EINTR) {}
        let _ = waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG));
    }

    /// Makes sure that a guard that no longer answers is dead: then its ranks get SIGKILL from the kernel.
    pub(crate) fn put_down(&mut self) {
        self.close();
        if !self.is_waited_for {
            // A child of ours that was not waited for: its id is still its own.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
        self.wait();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
        self.wait();
    }
}

/// What was below this process before the run: it is never touched.
#[derive(Debug)]
pub(crate) struct Household {
    before: Vec<i32>,
    session: i32,
    was_subreaper: bool,
}

impl Household {
    /// Makes this process a subreaper, so that what a dead guard leaves behind comes to it and not to init.
    pub(crate) fn take_over() -> Self {
        let was_subreaper = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let session = nix::unistd::getsid(None).map_or(0, Pid::as_raw);
        // A look through all of /proc takes milliseconds, and a launcher rarely has children.
        let before = if has_children() { tree::children() } else { Vec::new() };
        Self { before: before.iter().map(|child| child.pid).collect(), session, was_subreaper }
    }

    /// Kills what a dead guard left behind, until nothing of it is left. `guards` are those that live.
    ///
    /// Ours is each child that is no guard, was not there before the run, and is in another session than this process: a guard
    /// has its own session, and a process cannot go into a session that exists.
    pub(crate) fn kill_strays(&self, guards: &[i32]) {
        let clock = Clock::start();
        let limit = clock.now().plus(STRAYS_PATIENCE);
        let is_ours = |process: &tree::Process| {
            process.session != self.session && !self.before.contains(&process.pid) && !guards.contains(&process.pid)
        };
        while clock.now() < limit {
            let strays: Vec<_> = tree::children().into_iter().filter(is_ours).collect();
            if strays.is_empty() {
                return;
            }
            let kills = tree::kill_children(is_ours);
            let mut is_any_reaped = false;
            for stray in &strays {
                let waited = waitpid(Pid::from_raw(stray.pid), Some(WaitPidFlag::WNOHANG));
                is_any_reaped |= !matches!(waited, Ok(WaitStatus::StillAlive));
            }
            if !is_any_reaped {
                if kills.sent == 0 && kills.refused == strays.len() {
                    return;
                }
                let _ = poll(&mut [], STRAYS_POLL_MS);
            }
        }
    }
}

/// Whether this process has any child, dead or alive. Waits for none.
fn has_children() -> bool {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED;
    waitid(Id::All, flags) != Err(Errno::ECHILD)
}

impl Drop for Household {
    fn drop(&mut self) {
        if !self.was_subreaper {
            let _ = nix::sys::prctl::set_child_subreaper(false);
        }
    }
}

/// `posix_spawn` of /proc/self/exe in a new session, with the socket as its stdin and nothing else.
#[expect(unsafe_code, reason = "nix does not have POSIX_SPAWN_SETSID")]
fn execute(socket: &Channel, run_id: &str) -> nix::Result<i32> {
    let strings = |list: Vec<OsString>| -> Vec<CString> {
        list.into_iter().filter_map(|string| CString::new(string.into_vec()).ok()).collect()
    };
    // The guard is this program and may need what this program needed to load, so it gets this environment.
    let env = std::env::vars_os()
        .filter(|(name, _)| name != env_vars::TORCHLIFT_RUN_ID)
        .chain([
            (env_vars::TORCHLIFT_RUN_ID.into(), run_id.into()),
            (env_vars::TORCHLIFT_INTERNAL_GUARD.into(), SOCKET.to_string().into()),
        ])
        .map(|(mut pair, value)| {
            pair.push("=");
            pair.push(value);
            pair
        });
    let env = strings(env.collect());
    let pointers = |list: &[CString]| -> Vec<*mut libc::c_char> {
        list.iter().map(|string| string.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    };
    let argv = [c"torchlift-guard".as_ptr().cast_mut(), std::ptr::null_mut()];
    let envp = pointers(&env);
    let null = c"/dev/null".as_ptr();
    let check = |errno: libc::c_int| if errno == 0 { Ok(()) } else { Err(Errno::from_raw(errno)) };
    // SAFETY: both objects are initialised before use and destroyed after it; all strings and arrays outlive the call.
    unsafe {
        let mut actions = std::mem::zeroed();
        check(libc::posix_spawn_file_actions_init(&raw mut actions))?;
        let mut attributes = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&raw mut attributes))?;
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let mut pid = 0;
        // Signals stay blocked from the first instruction on, and the session is new: nothing can end the guard before it is up.
        let flags = libc::POSIX_SPAWN_SETSIGMASK as libc::c_short | libc::POSIX_SPAWN_SETSID;
        let result =
            check(libc::posix_spawn_file_actions_adddup2(&raw mut actions, socket.as_fd().as_raw_fd(), SOCKET))
                .and_then(|()| {
                    check(libc::posix_spawn_file_actions_addopen(&raw mut actions, 1, null, libc::O_RDWR, 0))
                })
                .and_then(|()| {
                    check(libc::posix_spawn_file_actions_addopen(&raw mut actions, 2, null, libc::O_RDWR, 0))
                })
                .and_then(|()| check(libc::posix_spawnattr_setflags(&raw mut attributes, flags)))
                .and_then(|()| check(libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const all)))
                .and_then(|()| {
                    let program = c"/proc/self/exe".as_ptr();
                    check(libc::posix_spawn(
                        &raw mut pid,
                        program,
                        &raw const actions,
                        &raw const attributes,
                        argv.as_ptr(),
                        envp.as_ptr(),
                    ))
                });
        libc::posix_spawnattr_destroy(&raw mut attributes);
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        result.map(|()| pid)
    }
}
