//! Runs a tool of this machine for a bounded time, and ends everything that it started.
//!
//! For questions whose answer may never come: a compiler wrapper that waits for its server, a Python on a file system that
//! hangs. A tool runs in a process group of its own, which is ended with it, so that a script's own children neither live on
//! nor keep its pipes open. Must not know what the tools do; what takes as long as it takes is not run here.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use torchlift::clock::{Clock, Moment};
use torchlift::process::watchdog::Watchdog;

/// Bytes that are kept of each pipe; what `cargo metadata` says of a large workspace has some 10 MB.
const MOST: u64 = 64 << 20;
/// How long pipes are read after the tool itself has ended: what is in them is there at once, and a child that it left behind
/// may hold them for ever.
const LINGER: Duration = Duration::from_millis(250);
/// How long a killed tool may take to be gone. One that hangs in the kernel takes longer, and is left alone.
const LAST: Duration = Duration::from_secs(1);

/// What is heard of a running tool.
enum Heard {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended,
}

/// Runs a tool and gives its output.
///
/// # Errors
/// When it cannot be started, or runs longer than `limit`: it and its children are ended then.
pub fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let clock = Clock::start();
    let deadline = clock.now().plus(limit);
    let shown = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    // Where no shell can be started, a kill of this program leaves the tool to end by itself.
    let watchdog = Watchdog::over(&child).ok();
    let receiver = listen(&mut child);
    let mut hearing = Hearing::default();
    let is_answered = hearing.until(&receiver, &clock, deadline, Hearing::has_ended);
    if is_answered {
        hearing.until(&receiver, &clock, clock.now().plus(LINGER), Hearing::is_whole);
    }
    // The group's id is taken until its leader is waited for, so that this hits nobody else.
    let _ = killpg(pid(&child), Signal::SIGKILL);
    let is_gone = hearing.until(&receiver, &clock, clock.now().plus(LAST), Hearing::has_ended);
    drop(watchdog);
    let status = if is_gone { Some(child.wait()?) } else { None };
    match status.filter(|_| is_answered) {
        Some(status) => {
            // Who held the pipes is gone now.
            hearing.until(&receiver, &clock, clock.now().plus(LINGER), Hearing::is_whole);
            Ok(hearing.into_output(status))
        }
        None => {
            let message = format!("`{shown}` gave no answer within {} s", limit.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Reads both pipes and waits for the end, each in a thread of its own: any of them may hang alone.
fn listen(child: &mut Child) -> Receiver<Heard> {
    let (sender, receiver) = mpsc::channel();
    drain(child.stdout.take(), sender.clone(), Heard::Stdout);
    drain(child.stderr.take(), sender.clone(), Heard::Stderr);
    let pid = pid(child);
    thread::spawn(move || {
        // The leader stays a zombie: its id must not go to a stranger before the group was killed.
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        let _ = sender.send(Heard::Ended);
    });
    receiver
}

fn drain(pipe: Option<impl Read + Send + 'static>, sender: Sender<Heard>, heard: fn(Vec<u8>) -> Heard) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(MOST).read_to_end(&mut bytes);
            let _ = io::copy(&mut pipe, &mut io::sink());
        }
        let _ = sender.send(heard(bytes));
    });
}

/// What was heard so far.
#[derive(Default)]
struct Hearing {
    stdout: Option<Vec<u8>>,
    stderr: Option<Vec<u8>>,
    is_ended: bool,
}

impl Hearing {
    fn has_ended(&self) -> bool {
        self.is_ended
    }

    fn is_whole(&self) -> bool {
        self.stdout.is_some() && self.stderr.is_some()
    }

    /// Listens until `is_enough` or the deadline; gives whether it was enough.
    fn until(
        &mut self,
        receiver: &Receiver<Heard>,
        clock: &Clock,
        deadline: Moment,
        is_enough: fn(&Self) -> bool,
    ) -> bool {
        while !is_enough(self) {
            match receiver.recv_timeout(deadline.since(clock.now())) {
                Ok(Heard::Stdout(bytes)) => self.stdout = Some(bytes),
                Ok(Heard::Stderr(bytes)) => self.stderr = Some(bytes),
                Ok(Heard::Ended) => self.is_ended = true,
                Err(_) => return is_enough(self),
            }
        }
        true
    }

    fn into_output(self, status: ExitStatus) -> Output {
        Output { status, stdout: self.stdout.unwrap_or_default(), stderr: self.stderr.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> io::Result<Output> {
        output(Command::new("/bin/sh").args(["-c", script]), limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_tool_that_answers_is_heard_whole() {
        let output = sh("echo out; echo err >&2; exit 3", LONG).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn more_than_a_pipe_holds_is_heard_too() {
        let output = sh("head -c 1000000 /dev/zero", LONG).unwrap();
        assert_eq!(output.stdout.len(), 1_000_000);
    }

    #[test]
    fn a_tool_that_hangs_is_ended_with_its_children() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("pid");
        // The shell waits for its child, which holds the pipe as well.
        let script = format!("sleep 600 & echo $! > '{}'; wait", file.display());
        let error = sh(&script, Duration::from_millis(500)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("`/bin/sh` gave no answer within 0.5 s"), "{error}");
        let child = fs_err::read_to_string(&file).unwrap();
        let clock = Clock::start();
        let deadline = clock.now().plus(LONG);
        // A killed process is gone in a moment, and not at once.
        loop {
            let stat = fs_err::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(!deadline.since(clock.now()).is_zero(), "{stat}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_tool_that_leaves_a_child_behind_has_answered() {
        let output = sh("echo done; sleep 600 &", LONG).unwrap();
        assert!(output.status.success());
    }

    #[test]
    fn a_tool_that_is_not_there_cannot_be_started() {
        let error = output(&mut Command::new("/no/such tool"), LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
