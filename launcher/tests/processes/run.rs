//! One run of the built binary, and what /proc says about it.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub(crate) use crate::patience::within;

/// What a run is started with.
pub(crate) struct Setup {
    nproc: usize,
    grace: &'static str,
    options: Vec<String>,
    /// The folder that `$DIR` names in ranks; its name has a space and a letter beyond ASCII.
    dir: TempDir,
}

/// A run of `nproc` ranks.
pub(crate) fn ranks(nproc: usize) -> Setup {
    let dir = tempfile::Builder::new().prefix("rän ks").tempdir().unwrap();
    fs_err::create_dir(dir.path().join("marks")).unwrap();
    Setup { nproc, grace: "30000ms", options: Vec::new(), dir }
}

impl Setup {
    /// Another grace than the default.
    pub(crate) fn grace(mut self, grace: &'static str) -> Self {
        self.grace = grace;
        self
    }

    /// One more option of `torchlift run`.
    pub(crate) fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// The command line for ranks that run this shell script.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
        command.args(["run", "--nproc", &self.nproc.to_string(), "--grace", self.grace, "--runs"]).arg(self.runs());
        command.args(&self.options).args(["--", "/bin/sh", "-c", script]);
        command.env("DIR", self.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts ranks that run this shell script.
    pub(crate) fn start(self, script: &str) -> Run {
        let command = self.command(script);
        self.spawn(command)
    }

    /// Starts a command that starts the run.
    pub(crate) fn spawn(self, mut command: Command) -> Run {
        let child = command.spawn().unwrap();
        Run { child, nproc: self.nproc, dir: self.dir }
    }

    /// The folder that `$DIR/marks` is.
    pub(crate) fn marks(&self) -> PathBuf {
        self.dir.path().join("marks")
    }

    fn runs(&self) -> PathBuf {
        self.dir.path().join("runs")
    }
}

/// A run that goes on, or is over.
pub(crate) struct Run {
    child: Child,
    nproc: usize,
    dir: TempDir,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

impl Run {
    /// The launcher's process id.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The folder that `$DIR` names in ranks.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends a signal to the launcher alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until the ranks have made this many files in `$DIR/marks`.
    pub(crate) fn wait_for_marks(&mut self, count: usize) {
        let marks = self.dir.path().join("marks");
        within("the ranks' marks", || {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "the launcher ended first: {}", self.stderr());
            (fs_err::read_dir(&marks).unwrap().count() >= count).then_some(())
        });
    }

    fn stderr(&mut self) -> String {
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).unwrap();
        }
        stderr
    }

    /// The run's id: the name of its folder.
    pub(crate) fn id(&self) -> String {
        let runs = self.dir.path().join("runs");
        within("the run's folder", || {
            let mut entries = fs_err::read_dir(&runs).ok()?;
            let folder = entries.find_map(|entry| {
                let entry = entry.ok()?;
                entry.file_type().ok()?.is_dir().then(|| entry.file_name().into_string().unwrap())
            });
            folder.filter(|name| !name.starts_with('.'))
        })
    }

    /// Every living process that carries this run's id, the guard among them.
    pub(crate) fn processes(&self) -> Vec<Process> {
        marked(&self.id())
    }

    /// The guard.
    pub(crate) fn guard(&self) -> i32 {
        let is_guard = |process: &Process| process.name == "torchlift-guard";
        within("the guard", || self.processes().into_iter().find(is_guard)).pid
    }

    /// Waits until nothing of the run is alive.
    pub(crate) fn wait_until_empty(&self) {
        let id = self.id();
        let mut last = Vec::new();
        within("the run's processes to be gone", || {
            last = marked(&id);
            last.is_empty().then_some(())
        });
    }

    /// Waits for the launcher's end.
    pub(crate) fn end(&mut self) -> Ended {
        let stderr = self.stderr();
        let status = within("the launcher's end", || self.child.try_wait().unwrap());
        Ended { status, stderr }
    }

    /// Waits for the launcher's end, at which nothing of the run may be alive.
    pub(crate) fn end_with_nothing_left(&mut self) -> Ended {
        let ended = self.end();
        let left = self.processes();
        assert!(left.is_empty(), "left behind: {left:?}");
        ended
    }

    /// What a rank wrote to its stdout.
    pub(crate) fn stdout(&self, rank: usize) -> String {
        assert!(rank < self.nproc);
        fs_err::read_to_string(self.stdout_path(rank)).unwrap()
    }

    /// The file of it.
    pub(crate) fn stdout_path(&self, rank: usize) -> PathBuf {
        let run = self.dir.path().join("runs").join(self.id());
        run.join("attempt-0").join(rank.to_string()).join("stdout.log")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A failed test leaves nothing behind either: the guard sees to the rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A living process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
}

/// Every living process whose environment carries this run id.
pub(crate) fn marked(id: &str) -> Vec<Process> {
    let marker = format!("TORCHLIFT_RUN_ID={id}");
    let pids = fs_err::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &i32| {
        let environ = fs_err::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    };
    let name = |pid| fs_err::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
    pids.filter(is_marked).map(|pid| Process { pid, name: name(pid) }).collect()
}
