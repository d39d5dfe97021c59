//! One run of cargo, from its start until nothing of it is left.
//!
//! Both pipes are read as they fill, so that neither can stop cargo. Cargo and all that it starts are a process group
//! of their own: a signal to this program ends them all, and it ends after them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use jobserver::Client;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use torchlift::clock::{Clock, Moment};
use torchlift::process::watchdog::Watchdog;

use super::locks;
use super::message::{CargoEvent, CrateTime, Messages, Watcher};
use super::signals::{Heard, Signals};
use crate::container::{self, Ending};
use crate::plan::Build;
use crate::toolchain::Env;
use crate::workspace::Program;

/// How often the watcher is called, and whether cargo is still there is looked at: often enough for a moving bar.
const TICK: Duration = Duration::from_millis(100);
/// How long cargo may say nothing before it is looked at whether it waits for a lock.
const SILENCE: Duration = Duration::from_secs(2);
/// How long cargo and its compilers have to end after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes read at once: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;
/// How much of the end of stderr is kept for the report, in bytes.
const TAIL: usize = 4096;

/// What a run of cargo gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CargoRun {
    /// The program's file.
    pub executable: Utf8PathBuf,
    /// Crates that were compiled, in the order in which they were there.
    pub compiled: Vec<CrateTime>,
    /// Crates that were still good.
    pub fresh: usize,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
pub enum CargoError {
    /// Cargo itself could not be started.
    #[error("`{cargo}` could not be started")]
    NotStarted {
        /// As it was called.
        cargo: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder for its results could not be made.
    #[error("the build folder `{dir}` could not be made")]
    NoFolder {
        /// The folder.
        dir: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What it said could not be read.
    #[error("what cargo says could not be read")]
    Unreadable {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It said that the build failed.
    #[error("cargo ended with {status}")]
    Failed {
        /// In words: `exit code 101`, `signal 9`.
        status: String,
        /// The end of its stderr.
        tail: String,
    },
    /// The container that cargo should run in could not be made.
    #[error("`{engine}` could not run cargo in a container: {words}")]
    NoContainer {
        /// The engine as it was called.
        engine: String,
        /// The end of what it said.
        words: String,
    },
    /// It ended well, and did not say where the program is.
    #[error("cargo ended well and told of no {} `{}`; {}", .program.kind.word(), .program.name, others(.told))]
    NoExecutable {
        /// The program.
        program: Program,
        /// The programs that it told of.
        told: Vec<String>,
    },
    /// A signal ended it.
    #[error("interrupted by {signal}")]
    Interrupted {
        /// The signal.
        signal: Signal,
    },
}

fn others(told: &[String]) -> String {
    if told.is_empty() {
        return "is something between us and cargo that drops `--message-format`?".to_owned();
    }
    format!("it told of {}", told.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
}

/// How many compilers and build scripts a cargo runs at once.
#[derive(Clone, Copy, Debug)]
pub enum Jobs<'a> {
    /// As its arguments say, else one a core.
    Own,
    /// As many as it gets out of this pool, and one.
    Pool(&'a Client),
    /// So many: what the pool was asked for beforehand, since a container has no part in it.
    Share(usize),
}

/// What engines end with when nothing was run: their own failure, a runtime that made no container, no such program. Cargo
/// ends with none of these.
const NOTHING_RUN: [i32; 3] = [125, 126, 127];

/// Runs cargo for `build` in the workspace `folder`, in the build's container if it has one.
///
/// # Errors
/// When there is no program at the end, one variant for each reason.
pub fn run(
    build: &Build,
    program: &Program,
    folder: &Utf8Path,
    env: &Env,
    jobs: Jobs<'_>,
    signals: &Signals,
    watcher: &mut dyn Watcher,
) -> Result<CargoRun, CargoError> {
    let clock = Clock::start();
    let started = clock.now();
    let (mut command, ending) = call(build, folder, env, jobs);
    let cargo = command.get_program().to_string_lossy().into_owned();
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|source| CargoError::NotStarted { cargo: cargo.clone(), source })?;
    // Where no shell can be started, a kill of this program leaves cargo to end by itself at its next message.
    let watchdog = Watchdog::over_both(&child, ending.as_ref().map(Ending::command).as_ref()).ok();
    let mut talk = Talk {
        messages: Messages::default(),
        program,
        ending: ending.as_ref(),
        tail: Vec::new(),
        started,
        silent_since: clock.now(),
    };
    let heard = talk.listen(&mut child, signals, watcher, &clock);
    if !matches!(heard, Ok(None)) {
        // Its compilers outlive a cargo that was killed; the group's id is taken until cargo is waited for.
        let _ = kill_group(&child, Signal::SIGKILL);
    }
    // The engine's own process is gone, so that it makes no container any more.
    if let Some(ending) = ending.as_ref().filter(|_| !matches!(heard, Ok(None))) {
        ending.end();
    }
    drop(watchdog);
    let status = child.wait().map_err(|source| CargoError::Unreadable { source })?;
    talk.messages.end(program, watcher);
    if let Some(signal) = heard.map_err(|source| CargoError::Unreadable { source })? {
        return Err(CargoError::Interrupted { signal });
    }
    if !status.success() || talk.messages.is_success == Some(false) {
        let tail = String::from_utf8_lossy(&talk.tail).trim_end().to_owned();
        if let Some(ending) = &ending {
            // An engine that was killed leaves its container behind.
            ending.end();
            if status.code().is_some_and(|code| NOTHING_RUN.contains(&code)) {
                return Err(CargoError::NoContainer { engine: cargo, words: tail.trim().to_owned() });
            }
        }
        return Err(CargoError::Failed { status: in_words(status), tail });
    }
    let Messages { executable, other_executables, compiled, fresh, .. } = talk.messages;
    match executable {
        Some(executable) => Ok(CargoRun { executable, compiled, fresh, elapsed: clock.now().since(started) }),
        None => Err(CargoError::NoExecutable { program: program.clone(), told: other_executables }),
    }
}

/// The command that runs cargo, and how it is ended where a signal to its group is not enough.
fn call(build: &Build, folder: &Utf8Path, env: &Env, jobs: Jobs<'_>) -> (Command, Option<Ending>) {
    if let Some(container) = &build.container {
        let share = match jobs {
            Jobs::Share(share) => vec![("CARGO_BUILD_JOBS", share.to_string())],
            Jobs::Own | Jobs::Pool(_) => Vec::new(),
        };
        let (command, ending) = container::call(build, container, folder, env, &share);
        return (command, Some(ending));
    }
    let mut command = Command::new(&build.cargo);
    command
        .args(&build.args)
        .env_clear()
        .envs(env.iter().filter(|(name, _)| !build.env_unset.iter().any(|unset| *name == unset.as_str())))
        .envs(&build.env);
    if let Jobs::Pool(pool) = jobs {
        pool.configure(&mut command);
    }
    (command, None)
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

fn kill_group(child: &Child, signal: Signal) -> nix::Result<()> {
    let id = i32::try_from(child.id()).map_err(|_| nix::errno::Errno::ESRCH)?;
    killpg(Pid::from_raw(id), signal)
}

/// What is being heard from a running cargo.
struct Talk<'a> {
    messages: Messages,
    program: &'a Program,
    /// How cargo's container is ended, if it is in one.
    ending: Option<&'a Ending>,
    tail: Vec<u8>,
    /// When cargo was started.
    started: Moment,
    silent_since: Moment,
}

impl Talk<'_> {
    /// Listens until both pipes are closed or cargo is gone; gives the signal that ended it.
    fn listen(
        &mut self,
        child: &mut Child,
        signals: &Signals,
        watcher: &mut dyn Watcher,
        clock: &Clock,
    ) -> io::Result<Option<Signal>> {
        let mut stdout = child.stdout.take();
        let mut stderr = child.stderr.take();
        let mut ended_by: Option<(Signal, Moment)> = None;
        let mut is_lock_told = false;
        let mut is_cargo_gone = false;
        let mut heard = Heard::default();
        let mut buffer = vec![0; CHUNK];
        while stdout.is_some() || stderr.is_some() {
            let ready =
                wait([stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd), Some(signals.as_fd())])?;
            let is_silent = !ready[0] && !ready[1];
            self.messages.now_ms = u64::try_from(clock.now().since(self.started).as_millis()).unwrap_or(u64::MAX);
            if ready[0] && !read(&mut stdout, &mut buffer, |bytes| self.messages.take(bytes, self.program, watcher))? {
                stdout = None;
            }
            if ready[1] && !read(&mut stderr, &mut buffer, |bytes| keep_tail(&mut self.tail, bytes, watcher))? {
                stderr = None;
            }
            // Several cargos at once hear each signal, whoever of them takes it.
            if let Some(signal) = signals.next(&mut heard) {
                // A second one means that the first was not enough.
                let passed_on = if ended_by.is_some() { Signal::SIGKILL } else { signal };
                match self.ending {
                    // The first process of a container does not hear most signals.
                    Some(ending) if ended_by.is_none() => drop(ending.command().spawn()),
                    _ => drop(kill_group(child, passed_on)),
                }
                ended_by.get_or_insert((signal, clock.now()));
            }
            watcher.tick();
            if !is_silent {
                self.silent_since = clock.now();
                continue;
            }
            if ended_by.is_some_and(|(_, since)| clock.now().since(since) > GRACE) {
                break;
            }
            if !is_lock_told && clock.now().since(self.silent_since) > SILENCE {
                is_lock_told = tell_lock(child.id(), watcher);
            }
            // Something that cargo started may have kept the pipes: what counts is whether cargo is there. Its last words may
            // have come between the look at the pipes and the look at cargo, so that the pipes are looked at once more.
            if is_cargo_gone {
                break;
            }
            is_cargo_gone = !ready[2] && is_gone(child)?;
        }
        Ok(ended_by.map(|(signal, _)| signal))
    }
}

fn tell_lock(pid: u32, watcher: &mut dyn Watcher) -> bool {
    let Some(blocked) = locks::blocked(pid) else { return false };
    watcher.watch(&CargoEvent::Waiting { file: blocked.file.as_deref(), holder: &blocked.holder });
    true
}

/// Whether cargo has ended; it is not waited for, so that its group's id stays taken.
fn is_gone(child: &Child) -> io::Result<bool> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let id = i32::try_from(child.id()).map_err(io::Error::other)?;
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(Pid::from_raw(id)), flags)? != WaitStatus::StillAlive)
}

/// Which of the descriptors can be read, after at most a tick.
fn wait(fds: [Option<BorrowedFd<'_>>; 3]) -> io::Result<[bool; 3]> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().flatten().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = PollTimeout::try_from(TICK).map_err(io::Error::other)?;
    match nix::poll::poll(&mut polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut answers = polled.iter().map(|fd| fd.any().unwrap_or(false));
    Ok(fds.map(|fd| fd.is_some() && answers.next().unwrap_or(false)))
}

/// Reads what is there; false at the end of the stream.
fn read(stream: &mut Option<impl io::Read>, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<bool> {
    let Some(stream) = stream else { return Ok(false) };
    match stream.read(buffer) {
        Ok(0) => Ok(false),
        Ok(count) => {
            take(&buffer[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8], watcher: &mut dyn Watcher) {
    watcher.watch(&CargoEvent::Text(bytes));
    tail.extend_from_slice(bytes);
    if tail.len() > TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}
