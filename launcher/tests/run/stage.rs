//! A place to run in, and what is seen of a run from outside.

use std::ffi::OsStr;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// However slow a machine is: what takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder of one test's own, with a name that needs quotes.
pub(crate) struct Stage {
    _root: tempfile::TempDir,
    pub(crate) folder: PathBuf,
}

/// What a run left.
pub(crate) struct Seen {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("Größe (1) 'x'");
        fs_err::create_dir(&folder).unwrap();
        Self { _root: root, folder }
    }

    /// `torchlift` in the folder, with a small environment of its own.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
        command.current_dir(&self.folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &self.folder);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `torchlift` with these arguments to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Seen {
        seen(self.command().args(args))
    }

    /// Runs a shell script as so many ranks; its arguments stand behind.
    pub(crate) fn sh(&self, options: &[&str], script: &str) -> Seen {
        self.run(["run"].iter().chain(options).copied().chain(["--", "/bin/sh", "-c", script]))
    }

    /// Starts this many ranks of a shell program, for a test that reads their stdout while they run.
    pub(crate) fn start(&self, ranks: u32, script: &str) -> (Child, BufReader<ChildStdout>) {
        let mut command = self.command();
        command.args(["run", "--nproc", &ranks.to_string(), "--", "/bin/sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        (child, stdout)
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The folders of the runs that there were, in order.
    pub(crate) fn runs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs_err::read_dir(self.folder.join(".torchlift/runs")) else { return Vec::new() };
        let mut runs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        runs
    }

    /// The folder of the only run.
    pub(crate) fn only_run(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// A rank's file of the only run.
    pub(crate) fn log(&self, rank: u32, name: &str) -> Vec<u8> {
        fs_err::read(self.only_run().join(format!("attempt-0/{rank}/{name}.log"))).unwrap()
    }

    /// `report.json` of the only run.
    pub(crate) fn report(&self) -> serde_json::Value {
        json(&self.only_run().join("report.json"))
    }
}

pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs_err::read(path).unwrap()).unwrap()
}

/// Runs a command to its end.
pub(crate) fn seen(command: &mut Command) -> Seen {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let Output { status, stdout, stderr } = within(child, Child::wait_with_output);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Seen { status, stdout: text(stdout), stderr: text(stderr) }
}

/// Waits for a child, which is killed when it takes too long.
pub(crate) fn within<T: Send + 'static>(child: Child, wait: fn(Child) -> std::io::Result<T>) -> T {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(wait(child)));
    receiver.recv_timeout(LIMIT).map(Result::unwrap).unwrap_or_else(|_| {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        panic!("still running after {LIMIT:?}");
    })
}

impl Seen {
    #[track_caller]
    pub(crate) fn code(&self, expected: i32) -> &Self {
        assert_eq!(self.status.code(), Some(expected), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "`{text}` is not in:\n{}", self.stderr);
        self
    }
}
