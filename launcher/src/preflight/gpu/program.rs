//! A program that is asked one thing: within a time, and for an answer of some length.
//!
//! It leads a process group, so that one that hangs ends with all that it started, be it because this process is killed
//! meanwhile: by Ctrl-C, for instance, of whoever does not want to wait for it. What outlives it and holds its output
//! open is neither waited for nor ended: the answer is what was written before the program itself ended.
//! No thread is needed for it, which a user with a limit on processes may not get. Must not judge what is said.

use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::clock::Clock;
use crate::process::watchdog::Watchdog;

/// Bytes of an answer; a machine with 16 divided cards has some 10 kB.
const MOST: usize = 1024 * 1024;
/// How often it is looked whether a program has ended whose output another one holds open. The usual one closes it.
const STEP: Duration = Duration::from_millis(20);
/// How long one that was killed is waited for: one that hangs in the kernel does not die.
const LAST: Duration = Duration::from_secs(1);

/// What it said, on stdout and stderr, and how it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: ExitStatus,
    pub(super) output: Vec<u8>,
}

/// Why it said nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("it cannot be run")]
    NotRun {
        #[source]
        source: io::Error,
    },
    #[error("it gave no answer within {} s", .patience.as_secs())]
    Slow { patience: Duration },
    #[error("it says more than {MOST} bytes")]
    Endless,
}

/// Runs it to its end, or ends it.
pub(super) fn ask(mut command: Command, patience: Duration) -> Result<Said, ProgramError> {
    let not_run = |source| ProgramError::NotRun { source };
    let clock = Clock::start();
    let until = clock.now().plus(patience);
    let (mut reader, writer) = io::pipe().map_err(not_run)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(not_run)?).stderr(writer).process_group(0);
    let mut child = command.spawn().map_err(not_run)?;
    // From here on the writing end is the program's alone.
    drop(command);
    // Where no shell can be started, one that hangs outlives a kill of this process. Let go when this returns, which is at once
    // after the program was waited for.
    let _watchdog = Watchdog::over(&child).ok();
    let mut output = Vec::new();
    let mut is_open = true;
    loop {
        // Asked before the output is read: what is read then is all that it has written.
        let ended = child.try_wait().map_err(not_run)?;
        let left = until.since(clock.now());
        let wait = if ended.is_some() { Duration::ZERO } else { left.min(STEP) };
        let taken = take(is_open.then_some(&mut reader), wait, &mut output).map_err(not_run)?;
        is_open = is_open && !matches!(taken, Taken::End);
        match (ended, taken) {
            (Some(status), Taken::Nothing | Taken::End) => return Ok(Said { status, output }),
            _ if output.len() > MOST => {
                end(&mut child);
                return Err(ProgramError::Endless);
            }
            (None, _) if left.is_zero() => {
                end(&mut child);
                return Err(ProgramError::Slow { patience });
            }
            _ => {}
        }
    }
}

/// What came out of a pipe.
#[derive(Debug)]
enum Taken {
    Some,
    Nothing,
    End,
}

/// Takes what is there, or waits a while for it; of no pipe, waits.
fn take(pipe: Option<&mut PipeReader>, wait: Duration, output: &mut Vec<u8>) -> io::Result<Taken> {
    let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
    let Some(pipe) = pipe else {
        return match poll(&mut [], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(Taken::Nothing),
            Err(error) => Err(error.into()),
        };
    };
    match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Taken::Nothing),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut chunk = [0; 16 * 1024];
    match pipe.read(&mut chunk) {
        Ok(0) => Ok(Taken::End),
        Ok(count) => {
            output.extend_from_slice(&chunk[..count]);
            Ok(Taken::Some)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Taken::Nothing),
        Err(error) => Err(error),
    }
}

fn end(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let clock = Clock::start();
    let until = clock.now().plus(LAST);
    while matches!(child.try_wait(), Ok(None)) && !until.since(clock.now()).is_zero() {
        let _ = take(None, STEP, &mut Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Result<Said, ProgramError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        ask(command, patience)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_is_all_that_was_said_on_either_output_and_how_it_ended() {
        let said = shell("echo a; echo b >&2; exit 3", LONG).unwrap();
        assert_eq!((said.output.as_slice(), said.status.code()), (b"a\nb\n".as_slice(), Some(3)));
        let long = shell("head -c 1000000 /dev/zero", LONG).unwrap();
        assert_eq!(long.output.len(), 1_000_000);
        // Closed long before the end.
        assert!(shell("exec >&- 2>&-; sleep 0.1", LONG).unwrap().status.success());
    }

    #[test]
    fn what_outlives_the_program_is_not_waited_for() {
        let said = shell("sleep 1000 & echo $! done", LONG).unwrap();
        let text = String::from_utf8(said.output).unwrap();
        let (process, word) = text.trim().split_once(' ').unwrap();
        assert_eq!(word, "done");
        nix::sys::signal::kill(Pid::from_raw(process.parse().unwrap()), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn one_that_hangs_ends_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("held");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Whoever lives holds the pipe open for writing.
        let script = format!("exec 3<>'{}'; sleep 1000; true", pipe.display());
        let error = shell(&script, Duration::from_millis(500)).unwrap_err();
        assert!(matches!(error, ProgramError::Slow { .. }), "{error}");
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_NONBLOCK;
        let is_held = || nix::fcntl::open(&pipe, flags, nix::sys::stat::Mode::empty()).is_ok();
        let clock = Clock::start();
        let until = clock.now().plus(LONG);
        while is_held() {
            assert!(!until.since(clock.now()).is_zero(), "a process of it is left");
            let _ = take(None, STEP, &mut Vec::new());
        }
    }

    #[test]
    fn one_without_an_end_is_ended_and_takes_no_memory() {
        let error = shell("yes", LONG).unwrap_err();
        assert!(matches!(error, ProgramError::Endless), "{error}");
        assert!(matches!(ask(Command::new("/nonexistent"), LONG).unwrap_err(), ProgramError::NotRun { .. }));
    }
}
