//! Signals of this process: those that a run answers to, and the launcher's own death by one.
//!
//! Handlers and no signalfd in the launcher: a signalfd needs the signals blocked in every thread, and a program that embeds
//! the launcher has threads of its own. The guard, which has one thread, blocks all.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::signal::{
    SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, raise, sigaction, sigprocmask,
};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, pipe2, read};

use crate::clock;

/// The signals that end a run. Others (USR1, USR2, WINCH, CONT, TSTP) would be added here and forwarded by `state`.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that are written to the pipe; with one more the handler ends the process itself,
/// because then the dispatcher is stuck, for instance in a write to a console that nobody reads.
const ANSWERED: u32 = 3;

/// Milliseconds until a signal of this process to itself has been taken, whatever the machine does beside it.
const TAKEN_MS: u32 = 200;

/// Where the handler writes; -1 when no run listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// How many signals came since the run began.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Whether a run listens.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether this signal asks a process to end.
pub(crate) fn ends(signal: i32) -> bool {
    ENDING.iter().any(|ending| *ending as i32 == signal)
}

/// Sends SIGTERM to this process so many times, as others would. Of two that are pending the system keeps one: each is waited for,
/// for a bounded time, until the handler has taken it.
pub(crate) fn terminate_self(times: u32) {
    for _ in 0..times {
        let before = COUNT.load(Ordering::SeqCst);
        if kill(Pid::this(), Signal::SIGTERM).is_err() {
            return;
        }
        for _ in 0..TAKEN_MS {
            if COUNT.load(Ordering::SeqCst) != before {
                break;
            }
            clock::pause(Duration::from_millis(1));
        }
    }
}

/// The ending signals of this process, as numbers that can be waited for.
#[derive(Debug)]
pub(crate) struct Signals {
    reader: OwnedFd,
    _writer: OwnedFd,
    before: Vec<(Signal, SigAction)>,
    mask: SigSet,
}

impl Signals {
    /// Begins to listen. None when another run in this process listens already.
    ///
    /// INT, HUP and QUIT stay ignored when they were on entry: `nohup` and a shell's background jobs mean it.
    pub(crate) fn listen() -> nix::Result<Option<Self>> {
        if IS_TAKEN.swap(true, Ordering::SeqCst) {
            return Ok(None);
        }
        let listening = Self::install();
        if listening.is_err() {
            IS_TAKEN.store(false, Ordering::SeqCst);
        }
        listening.map(Some)
    }

    #[expect(unsafe_code, reason = "a signal handler is installed")]
    fn install() -> nix::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        COUNT.store(0, Ordering::SeqCst);
        PIPE.store(writer.as_raw_fd(), Ordering::SeqCst);
        let ours = SigAction::new(SigHandler::Handler(handle), SaFlags::SA_RESTART, SigSet::all());
        let mut before = Vec::new();
        let mut unblock = SigSet::empty();
        for signal in ENDING {
            // SAFETY: `handle` only uses atomics, `write`, `signal` and `kill`, all of which a handler may call.
            let old = unsafe { sigaction(signal, &ours) }?;
            if matches!(old.handler(), SigHandler::SigIgn) && signal != Signal::SIGTERM {
                // SAFETY: puts back what was there.
                unsafe { sigaction(signal, &old) }?;
                continue;
            }
            before.push((signal, old));
            unblock.add(signal);
        }
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&unblock), Some(&mut mask))?;
        Ok(Self { reader, _writer: writer, before, mask })
    }

    /// The next signal that came; none when there is none now.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut byte = [0];
        match read(&self.reader, &mut byte) {
            Ok(1) => Some(i32::from(byte[0])),
            _ => None,
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Signals {
    #[expect(unsafe_code, reason = "the handlers of before are put back")]
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: puts back what was there before.
            let _ = unsafe { sigaction(*signal, old) };
        }
        PIPE.store(-1, Ordering::SeqCst);
        let late: Vec<i32> = std::iter::from_fn(|| self.next()).collect();
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None);
        IS_TAKEN.store(false, Ordering::SeqCst);
        // A signal that came after the last look at the pipe was meant for this process: it must not get lost.
        for signal in late.into_iter().filter_map(|number| Signal::try_from(number).ok()) {
            let _ = raise(signal);
        }
    }
}

/// Writes the signal's number to the pipe. Runs as a signal handler.
#[expect(unsafe_code, reason = "runs as a signal handler, on bare system calls")]
extern "C" fn handle(signal: libc::c_int) {
    let saved = Errno::last_raw();
    if COUNT.fetch_add(1, Ordering::SeqCst) >= ANSWERED {
        // SAFETY: both may be called in a handler. The signal is delivered when this handler returns;
        // the guards then see their sockets close.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
    }
    let pipe = PIPE.load(Ordering::SeqCst);
    let byte = signal as u8;
    if pipe >= 0 {
        // SAFETY: one byte from this stack; the pipe does not block, and a full one has enough signals in it.
        unsafe { libc::write(pipe, (&raw const byte).cast(), 1) };
    }
    Errno::set_raw(saved);
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail with EFBIG, as one to a full disk fails with ENOSPC: its
/// signal would end this process without a word, and the ranks with it.
///
/// A handler that does nothing, because what is ignored stays ignored over `execve`: cargo and whatever else this process
/// starts is to have what this process was started with. Ranks have the default whatever that was, see `reset_all`.
#[expect(unsafe_code, reason = "a signal handler is installed")]
pub fn outlive_file_limit() {
    let ours = SigAction::new(SigHandler::Handler(pass_over), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: `pass_over` does nothing at all.
    if let Ok(old) = unsafe { sigaction(Signal::SIGXFSZ, &ours) }
        && matches!(old.handler(), SigHandler::SigIgn)
    {
        // SAFETY: puts back what was there.
        let _ = unsafe { sigaction(Signal::SIGXFSZ, &old) };
    }
}

/// Runs as a signal handler.
extern "C" fn pass_over(_: libc::c_int) {}

/// Ends this process by `signal`, so that whoever waits for it sees that death: a shell's loop ends at Ctrl-C only then.
///
/// Leaves no core file: what dumps core is the program that failed, not its launcher. When the signal is none that ends
/// a process, the exit code is 128 + signal.
pub fn die_by(signal: i32) -> ! {
    if let Ok(named) = Signal::try_from(signal) {
        let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
        reset(signal);
        let mut only = SigSet::empty();
        only.add(named);
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&only), None);
        let _ = raise(named);
    }
    exit_now(128 + signal)
}

/// Ends this process without running anything more.
#[expect(unsafe_code, reason = "ends the process at once")]
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Gives every signal its default disposition, the C library's own two (32 and 33) too: a parent may have ignored those,
/// and the C library refuses to touch them.
pub(super) fn reset_all() {
    for signal in 1..=64 {
        reset(signal);
    }
}

#[expect(unsafe_code, reason = "nix knows neither real-time signals nor the C library's own")]
fn reset(signal: i32) {
    /// The kernel's `struct sigaction` on both CPUs that this builds for: handler, flags, restorer, mask. All zero is SIG_DFL.
    const DEFAULT: [usize; 4] = [0; 4];
    /// Bytes of the kernel's signal set.
    const SET_SIZE: usize = 8;
    let none = std::ptr::null_mut::<usize>();
    // SAFETY: the kernel reads `DEFAULT` and writes nothing; SIG_DFL runs no code of ours. KILL and STOP are refused.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), none, SET_SIZE) };
}

/// Takes the status of one child that has ended: none when none has, an error when there is no child at all.
#[expect(unsafe_code, reason = "nix loses the wait status of real-time signals")]
pub(super) fn wait_any() -> nix::Result<Option<(i32, i32)>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is ours and outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
        match Errno::result(pid) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((pid, status))),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Points all three standard descriptors at /dev/null; gives one more, for ranks.
#[expect(unsafe_code, reason = "standard descriptors are known by their numbers only")]
pub(super) fn null_stdio() -> nix::Result<OwnedFd> {
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for standard in 0..3 {
        // SAFETY: replaces a standard descriptor, which no `OwnedFd` holds.
        Errno::result(unsafe { libc::dup2(null.as_raw_fd(), standard) })?;
    }
    Ok(null)
}

/// Closes every descriptor from `first` on.
#[expect(unsafe_code, reason = "descriptors that this process never opened are closed by number")]
pub(super) fn close_from(first: u32) {
    // SAFETY: called before anything in this process has opened a descriptor of that range.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 {
        return;
    }
    // Kernels before 5.9. The list is complete before the first is closed.
    let open: Vec<i32> = fs_err::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd >= first.cast_signed())
        .collect();
    for fd in open {
        // SAFETY: as above; the descriptor of the listing itself is closed already, which is refused.
        unsafe { libc::close(fd) };
    }
}
