//! Starting one rank from the guard.
//!
//! A rank's command reaches the guard as bytes (`Command::to_bytes`): most fit into a message, but an environment may be 2 MB, and
//! such a one goes through a memfd.
//! The guard starts it by `clone(CLONE_VM | CLONE_VFORK)`, as `posix_spawn` does: nothing is copied, and the failure of a step
//! comes back in shared memory with its `errno`. `posix_spawn` itself cannot set the parent-death signal.

use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::clock::Clock;
use crate::event::StartStep;

/// Bytes of stack for the moment between clone and exec. The child calls a dozen system calls; a page would do.
const STACK_SIZE: usize = 64 * 1024;

/// What one rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command<'a> {
    /// The program, absolute.
    pub(crate) program: &'a Path,
    /// Its arguments, without its own name.
    pub(crate) args: &'a [OsString],
    /// Its whole environment: borrowed where it can be, because a host may have hundreds of ranks.
    pub(crate) env: Vec<(&'a OsStr, Cow<'a, OsStr>)>,
    /// Its working folder, absolute.
    pub(crate) cwd: &'a Path,
    /// Its soft limit of open files.
    pub(crate) open_files: u64,
}

/// A command in the form that `execve` wants: one run of NUL-terminated strings, and where they begin.
#[derive(Debug)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    cwd: usize,
    args: Vec<usize>,
    env: Vec<usize>,
    open_files: u64,
}

/// A rank that could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    /// What failed.
    pub(crate) step: StartStep,
    /// Why.
    pub(crate) errno: Errno,
}

impl Command<'_> {
    /// The command as bytes. A NUL inside a string is `EINVAL`.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.extend(self.open_files.to_ne_bytes());
        bytes.extend((self.args.len() as u64).to_ne_bytes());
        bytes.extend((self.env.len() as u64).to_ne_bytes());
        push(&mut bytes, &[self.cwd.as_os_str()])?;
        push(&mut bytes, &[self.program.as_os_str()])?;
        for arg in self.args {
            push(&mut bytes, &[arg])?;
        }
        for (name, value) in &self.env {
            push(&mut bytes, &[name, OsStr::new("="), value])?;
        }
        Ok(bytes)
    }
}

/// Puts a command's bytes, which may be more than a message can have, into a memfd.
pub(crate) fn to_memfd(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"torchlift-rank", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

fn push(bytes: &mut Vec<u8>, parts: &[&OsStr]) -> io::Result<()> {
    for part in parts {
        if part.as_bytes().contains(&0) {
            return Err(Errno::EINVAL.into());
        }
        bytes.extend(part.as_bytes());
    }
    bytes.push(0);
    Ok(())
}

impl Image {
    /// Reads what [`to_memfd`] wrote.
    pub(crate) fn read(memfd: OwnedFd) -> io::Result<Self> {
        let file = File::from(memfd);
        // Its length is known, so that one read does; this is done once a rank.
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Self::parse(bytes)
    }

    /// Takes apart what [`Command::to_bytes`] gave.
    pub(crate) fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        Self::take_apart(bytes).ok_or_else(|| Errno::EINVAL.into())
    }

    fn take_apart(bytes: Vec<u8>) -> Option<Self> {
        let mut at = 0;
        let mut number = || {
            let word = bytes.get(at..at + 8)?;
            at += 8;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        };
        let (open_files, args, env) = (number()?, number()?, number()?);
        let mut string = || {
            let start = at;
            at += bytes.get(start..)?.iter().position(|byte| *byte == 0)? + 1;
            Some(start)
        };
        let cwd = string()?;
        let args = (0..=args).map(|_| string()).collect::<Option<_>>()?;
        let env = (0..env).map(|_| string()).collect::<Option<_>>()?;
        Some(Self { bytes, cwd, args, env, open_files })
    }

    fn pointer(&self, at: usize) -> *const c_char {
        self.bytes[at..].as_ptr().cast()
    }

    fn pointers(&self, starts: &[usize]) -> Vec<*const c_char> {
        starts.iter().map(|at| self.pointer(*at)).chain([std::ptr::null()]).collect()
    }
}

/// What the child reads and writes in the memory that it shares with the guard.
struct Launch {
    program: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    cwd: *const c_char,
    stdin: c_int,
    stdout: c_int,
    stderr: c_int,
    open_files: libc::rlimit,
    guard: libc::pid_t,
    failed: Option<SpawnFailure>,
}

/// Starts ranks, one after another.
pub(crate) struct Spawner {
    stack: Vec<u128>,
    null: OwnedFd,
    hard_open_files: u64,
}

impl Spawner {
    /// Ready to start ranks whose stdin is `null`. The caller keeps every signal blocked.
    pub(crate) fn new(null: OwnedFd) -> Self {
        let hard = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
        Self {
            stack: vec![0; STACK_SIZE / size_of::<u128>()],
            null,
            hard_open_files: hard.map_or(libc::RLIM_INFINITY, |(_, hard)| hard),
        }
    }

    /// Starts a rank in its own process group; gives its process id.
    #[expect(unsafe_code, reason = "only clone can start a child that shares memory until it executes")]
    pub(crate) fn spawn(&mut self, image: &Image, stdout: &OwnedFd, stderr: &OwnedFd) -> Result<i32, SpawnFailure> {
        let argv = image.pointers(&image.args);
        let envp = image.pointers(&image.env);
        let mut launch = Launch {
            program: argv[0],
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            cwd: image.pointer(image.cwd),
            stdin: self.null.as_raw_fd(),
            stdout: stdout.as_raw_fd(),
            stderr: stderr.as_raw_fd(),
            open_files: libc::rlimit {
                rlim_cur: image.open_files.min(self.hard_open_files),
                rlim_max: self.hard_open_files,
            },
            guard: nix::unistd::getpid().as_raw(),
            failed: None,
        };
        let shared: *mut Launch = &raw mut launch;
        let top = self.stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: with CLONE_VFORK this thread, the only one, sleeps until the child has executed or ended, so the stack,
        // `launch` and what it points to outlive the child's use of them and nothing else touches them meanwhile.
        // `top` is 16-byte aligned. All signals are blocked, so that no handler can run on either side.
        let pid = unsafe { libc::clone(start, top.cast(), flags, shared.cast()) };
        let pid = Errno::result(pid).map_err(|errno| SpawnFailure { step: StartStep::Fork, errno })?;
        // SAFETY: `shared` points to `launch`, which lives; a volatile read, because the compiler cannot see the child's write.
        match unsafe { (&raw const (*shared).failed).read_volatile() } {
            None => Ok(pid),
            Some(failure) => {
                let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
                Err(failure)
            }
        }
    }
}

/// The child, from clone to exec. It shares the guard's memory: it must not allocate, lock or panic.
#[expect(unsafe_code, reason = "runs between clone and exec, on bare system calls")]
extern "C" fn start(shared: *mut c_void) -> c_int {
    let launch: *mut Launch = shared.cast();
    // SAFETY: `shared` is the `Launch` of `Spawner::spawn`, whose thread sleeps; every pointer in it is NUL-terminated and alive.
    // Each call below is async-signal-safe. Execution does not return to the caller: `_exit` or `execve` ends it.
    unsafe {
        if let Err(step) = prepare(&*launch) {
            (*launch).failed = Some(SpawnFailure { step, errno: Errno::last() });
            libc::_exit(127);
        }
        libc::execve((*launch).program, (*launch).argv, (*launch).envp);
        (*launch).failed = Some(SpawnFailure { step: StartStep::Program, errno: Errno::last() });
        libc::_exit(127)
    }
}

/// Makes the child what a rank is to be: group, parent-death signal, stdio, folder, limit, signals.
#[expect(unsafe_code, reason = "runs between clone and exec, on bare system calls")]
fn prepare(launch: &Launch) -> Result<(), StartStep> {
    let check = |result: c_int, step: StartStep| if result == -1 { Err(step) } else { Ok(()) };
    // SAFETY: bare system calls on descriptors and strings that the caller keeps alive; the signal sets are on this stack.
    unsafe {
        check(libc::setpgid(0, 0), StartStep::Fork)?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), StartStep::Fork)?;
        // The guard may have died before the line above: then nobody would ever send that signal.
        if libc::getppid() != launch.guard {
            libc::_exit(127);
        }
        check(libc::dup2(launch.stdin, 0), StartStep::Fork)?;
        check(libc::dup2(launch.stdout, 1), StartStep::Fork)?;
        check(libc::dup2(launch.stderr, 2), StartStep::Fork)?;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const launch.open_files), StartStep::Fork)?;
        check(libc::chdir(launch.cwd), StartStep::Folder)?;
        // The guard has every disposition at its default already; only its mask has to go.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()), StartStep::Fork)
    }
}

/// The yardstick for how quickly a run of many ranks should start: `count` times `posix_spawn` with nothing around it, then
/// a wait for each. Gives the time until the last has ended.
///
/// # Errors
/// The system's own, when a process cannot be started or waited for.
#[expect(
    unsafe_code,
    reason = "nix marks its posix_spawn unsafe-free only with owned attributes; this is the bare call"
)]
pub fn bare_loop(program: &Path, count: usize) -> io::Result<Duration> {
    let program = CString::new(program.as_os_str().to_owned().into_vec())?;
    let argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    let envp = [std::ptr::null_mut()];
    let clock = Clock::start();
    let begun = clock.now();
    let mut pids = Vec::with_capacity(count);
    for _ in 0..count {
        let mut pid = 0;
        // SAFETY: both arrays end with a null pointer and outlive the call; the other pointers may be null.
        let errno = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                argv.as_ptr(),
                envp.as_ptr(),
            )
        };
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        pids.push(nix::unistd::Pid::from_raw(pid));
    }
    for pid in pids {
        nix::sys::wait::waitpid(pid, None)?;
    }
    Ok(clock.now().since(begun))
}

#[cfg(test)]
mod tests;
