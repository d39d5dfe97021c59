//! An allocator in a folder of its own, and what a client sees of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

/// However slow a machine is: what takes longer hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The same for `curl`, in seconds.
const CURL_LIMIT: &str = "60";

/// A program that ends with 0 when it is told to, once it has said that it is ready.
pub(crate) const PATIENT: &str = "trap 'exit 0' TERM; echo ready; sleep 600 & wait";

/// A running `torchlift serve`. Dropping it kills it.
pub(crate) struct Allocator {
    _root: tempfile::TempDir,
    pub(crate) folder: PathBuf,
    pub(crate) child: Child,
    stderr: BufReader<ChildStderr>,
    /// How `curl` gets there.
    target: Vec<String>,
    /// What its addresses begin with.
    base: &'static str,
    /// What it said that it serves.
    pub(crate) serving: Vec<String>,
}

/// A client's answer: status and body.
pub(crate) type Answer = (u16, Value);

/// An allocator that is still to be started.
pub(crate) struct Setup {
    root: tempfile::TempDir,
    pub(crate) folder: PathBuf,
    pub(crate) command: Command,
}

pub(crate) fn setup() -> Setup {
    let root = tempfile::tempdir().unwrap();
    // A path that needs quotes, and short enough for a socket.
    let folder = root.path().join("ü 'x'");
    fs_err::create_dir(&folder).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
    command.current_dir(&folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &folder);
    command.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Setup { root, folder, command }
}

impl Setup {
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// A shell program in the folder, as `--program`.
    pub(crate) fn program(self, script: &str) -> Self {
        let file = self.folder.join("program");
        write_program(&file, script);
        let file = file.to_str().unwrap().to_owned();
        self.args(&["--program", &file])
    }

    /// Serves a socket in the folder.
    pub(crate) fn start(mut self) -> Allocator {
        let socket = self.folder.join("s");
        self.command.args(["--listen", &format!("unix:{}", socket.display())]);
        let target = vec!["--unix-socket".to_owned(), socket.to_str().unwrap().to_owned()];
        self.spawn(target, 1)
    }

    /// Serves what the arguments say; `target` is how `curl` gets there.
    pub(crate) fn spawn(mut self, target: Vec<String>, addresses: usize) -> Allocator {
        let mut child = self.command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut serving = Vec::new();
        for _ in 0..addresses {
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            let addr = line.strip_prefix("serving `").and_then(|rest| rest.strip_suffix("`\n"));
            serving.push(addr.unwrap_or_else(|| panic!("{line}")).to_owned());
        }
        Allocator { _root: self.root, folder: self.folder, child, stderr, target, base: "http://allocator", serving }
    }

    /// Runs to its end: exit code and stderr.
    pub(crate) fn fail(mut self) -> (i32, String) {
        let output = self.command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

pub(crate) fn write_program(file: &std::path::Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::write(file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// An `Allocate` of so many ranks, with these terms beside a key and an owner.
pub(crate) fn allocate(key: &str, ranks: usize, terms: Value) -> Value {
    let mut all = json!({ "alloc_key": key, "owner": "tester" });
    all.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
    let view = json!({ "labels": ["gpu"], "slice": { "offset": 0, "sizes": [ranks], "strides": [1] } });
    json!({ "Allocate": { "view": view, "bootstrap_addr": "caller:", "hosts": ["a", "b"], "client_context": null, "terms": all } })
}

/// What a shell script is started with.
pub(crate) fn launch(script: &str, grace_ms: u64) -> Value {
    json!({ "run_id": "run", "program": "/bin/sh", "args": ["-c", script], "cwd": "/", "grace_ms": grace_ms })
}

impl Allocator {
    /// From now on `curl` gets there by these arguments.
    pub(crate) fn reach(&mut self, target: &[&str]) {
        self.target = target.iter().map(|word| (*word).to_owned()).collect();
    }

    /// From now on over TLS, by these arguments; `base` is what addresses begin with.
    pub(crate) fn reach_over_tls(&mut self, base: &'static str, target: &[&str]) {
        self.base = base;
        self.reach(target);
    }

    /// The next line that it says.
    pub(crate) fn says(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    fn curl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "--http2-prior-knowledge", "--max-time", CURL_LIMIT]).args(&self.target).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A request to its end; `args` go to `curl`.
    pub(crate) fn request(&self, path: &str, args: &[&str], body: Option<&[u8]>) -> Answer {
        let url = format!("{}{path}", self.base);
        let mut command = self.curl(args);
        if body.is_some() {
            command.args(["--data-binary", "@-"]);
        }
        let mut child = command.args(["-w", "\n%{http_code}", &url]).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Whoever refuses a body may not read it to its end.
        let _ = stdin.write_all(body.unwrap_or_default());
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (text, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{output:?}", output = output.stderr));
        let body = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        (status.parse().unwrap(), body)
    }

    /// A message of a session.
    pub(crate) fn control(&self, session: &str, message: &Value) -> Answer {
        let session = format!("torchlift-session: {session}");
        self.request("/v1/control", &["-H", &session], Some(message.to_string().as_bytes()))
    }

    /// A numbered message of a session.
    pub(crate) fn numbered(&self, session: &str, number: u64, message: &Value) -> Answer {
        let (session, number) = (format!("torchlift-session: {session}"), format!("torchlift-seq: {number}"));
        self.request("/v1/control", &["-H", &session, "-H", &number], Some(message.to_string().as_bytes()))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(path, &[], None)
    }

    /// Follows the record of an allocation in a session, from behind so many lines.
    pub(crate) fn follow(&self, session: &str, key: &str, after: u64) -> Events {
        let (session, url) = (
            format!("torchlift-session: {session}"),
            format!("{}/v1/allocations/{key}/events?after={after}", self.base),
        );
        Events::of(self.curl(&["-N", "-H", &session, &url]))
    }

    /// Asks for an allocation and follows its record, over one connection so that the session is never without one.
    pub(crate) fn follow_after(&self, session: &str, message: &Value, key: &str) -> Events {
        let header = format!("torchlift-session: {session}");
        let url = format!("{}/v1/allocations/{key}/events", self.base);
        let control = format!("{}/v1/control", self.base);
        let body = message.to_string();
        let first = ["-N", "--http1.1", "-o", "/dev/null", "-H", &header, "--data-binary", &body, &control];
        let mut command = self.curl(&first);
        // The second request of the same `curl` goes over the same connection.
        command.args(["--next", "-sSN", "--http1.1", "-H", &header]).args(&self.target).arg(&url);
        Events::of(command)
    }

    /// Waits until these ranks of a [`PATIENT`] program heed their signal.
    pub(crate) fn wait_until_ready(&self, key: &str, ranks: usize) {
        for rank in 0..ranks {
            let path = format!("/v1/allocations/{key}/output/{rank}/stdout");
            wait_until("a rank is ready", || self.get(&path).1 == json!("ready\n"));
        }
    }

    /// The file in which a rank's stream is kept.
    pub(crate) fn spooled(&self, key: &str, rank: usize, stream: &str) -> PathBuf {
        let lives = fs_err::read_dir(self.folder.join(".local/state/torchlift/allocations")).unwrap();
        let life = lives.map(|entry| entry.unwrap().path()).next().unwrap();
        life.join(key).join(rank.to_string()).join(format!("{stream}.log"))
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for its end: exit code, and what it said.
    pub(crate) fn wait(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    /// The keys of what is held.
    pub(crate) fn held(&self) -> Vec<String> {
        let (status, body) = self.get("/v1/status");
        assert_eq!(status, 200, "{body}");
        let all = body["allocations"].as_array().unwrap().iter();
        all.map(|one| one["alloc_key"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A record that is being followed.
pub(crate) struct Events {
    child: Child,
    lines: Receiver<String>,
}

impl Events {
    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next message that is no `HeartBeat`, in a short form; none when nothing more comes.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            let line = match self.lines.recv_timeout(LIMIT) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing came"),
            };
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            if line["message"] != "HeartBeat" {
                return Some(short(&line["message"]));
            }
        }
    }

    /// This many messages.
    pub(crate) fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next().unwrap()).collect()
    }

    /// All that comes.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Closes the connection.
    pub(crate) fn close(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message in a few words, without what differs from run to run.
fn short(message: &Value) -> String {
    let rank = |state: &Value| state["proc_id"]["Ranked"][1].clone();
    if !message["Allocated"].is_null() {
        return "allocated".to_owned();
    }
    if !message["Done"].is_null() {
        return "done".to_owned();
    }
    let (name, state) = message["Update"].as_object().unwrap().iter().next().unwrap();
    match name.as_str() {
        "Failed" => format!("failed: {}", state["description"].as_str().unwrap()),
        "Stopped" => format!("stopped {}: {}", rank(state), state["reason"]),
        name => format!("{} {}", name.to_lowercase(), rank(state)),
    }
}

/// Waits until this holds, for a bounded time.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = torchlift::clock::Clock::start();
    while !holds() {
        assert!(clock.now().since(torchlift::clock::Moment::after_zero(Duration::ZERO)) < LIMIT, "{what}");
        let _ = nix::poll::poll(&mut [], 5_u16);
    }
}

/// Whether any process has this word among its arguments.
pub(crate) fn is_any_process(word: &str) -> bool {
    let processes = fs_err::read_dir("/proc").unwrap();
    processes.flatten().any(|entry| {
        let args = fs_err::read(entry.path().join("cmdline")).unwrap_or_default();
        args.split(|byte| *byte == 0).any(|arg| arg == word.as_bytes())
    })
}
