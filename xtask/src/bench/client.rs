//! What a client of many allocators costs, and how soon it knows of one that is lost.
//!
//! The client is the example `client` of the launcher; the allocators are real ones, each with a guard and a rank.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use camino::Utf8Path;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift::clock::Clock;
use torchlift_schema::exit_code;

use super::serve::{MEMORY, plain, spawn_serve};
use super::{Figure, median_ms};
use crate::error::CommandError;

/// As many as one client should bear.
const MANY: usize = 1000;
/// How long they are beaten to, in seconds.
const SECONDS: u64 = 10;
/// How often a host is stopped.
const ROUNDS: usize = 5;

/// Measures a client, the built example, with allocators of the binary at `torchlift`.
pub fn figures(torchlift: &Utf8Path, client: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    measure(torchlift, client).map_err(|error| {
        CommandError::new(exit_code::BUILD, "the client of allocators cannot be measured").because(error)
    })
}

fn measure(torchlift: &Utf8Path, client: &Utf8Path) -> io::Result<Vec<Figure>> {
    let folder = tempfile::Builder::new().prefix("torchlift-bench-").tempdir_in(MEMORY)?;
    let mut lost = Vec::new();
    for round in 0..ROUNDS {
        let allocator = Allocator::start(torchlift, folder.path(), round)?;
        let mut client = Client::start(client, ["250", "1000", "0"], std::slice::from_ref(&allocator))?;
        client.wait_for("cores")?;
        let clock = Clock::start();
        let start = clock.now();
        let pid = Pid::from_raw(allocator.child.id() as i32);
        kill(pid, Signal::SIGSTOP).map_err(io::Error::from)?;
        let told = client.wait_for("lost");
        lost.push(clock.now().since(start));
        kill(pid, Signal::SIGCONT).map_err(io::Error::from)?;
        told?;
    }
    let idle = Allocator::start(torchlift, folder.path(), 0)?;
    let before = idle.ticks()?;
    std::thread::park_timeout(Duration::from_secs(5));
    let idle_ms = (idle.ticks()? - before) * 10.0;
    drop(idle);
    let allocators =
        (0..MANY).map(|index| Allocator::start(torchlift, folder.path(), index)).collect::<io::Result<Vec<_>>>()?;
    let mut client = Client::start(client, ["1000", "15000", &SECONDS.to_string()], &allocators)?;
    let line = client.wait_for("cores: ")?;
    let micros: f64 = line.trim_start_matches("cores: ").trim_end_matches(" us").parse().map_err(io::Error::other)?;
    let percent = micros / (SECONDS as f64 * 1e6) * 100.0;
    Ok(vec![
        plain("a stopped allocator is told of as lost, limit 1 s".into(), median_ms(&lost), "ms", 1500.0),
        plain("an idle allocator's time of cores in 5 s".into(), idle_ms, "ms", 10.0),
        plain(format!("a client that beats to {MANY} allocators once a second"), percent, "% of a core", 10.0),
    ])
}

/// A running allocator.
struct Allocator {
    child: Child,
    socket: PathBuf,
}

impl Allocator {
    fn start(torchlift: &Utf8Path, folder: &Path, number: usize) -> io::Result<Self> {
        let socket = folder.join(number.to_string());
        Ok(Self { child: spawn_serve(torchlift, &socket, folder)?, socket })
    }

    /// What it had of the cores so far, in the kernel's ticks of 10 ms.
    fn ticks(&self) -> io::Result<f64> {
        let stat = fs_err::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(11).take(2));
        let ticks = fields.map(|fields| fields.filter_map(|field| field.parse::<f64>().ok()).sum());
        ticks.ok_or_else(|| io::Error::other("the kernel tells of no time"))
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client, which is killed when this is dropped.
struct Client {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(client: &Utf8Path, numbers: [&str; 3], allocators: &[Allocator]) -> io::Result<Self> {
        let addresses = allocators.iter().map(|allocator| format!("unix:{}", allocator.socket.display()));
        let mut command = Command::new(client);
        command.args(numbers).args(addresses).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the client has no stdout"))?;
        Ok(Self { child, stdout: BufReader::new(stdout) })
    }

    /// The next line that begins like this.
    fn wait_for(&mut self, word: &str) -> io::Result<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with(word) {
                return Ok(line.trim_end().to_owned());
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
