//! What an allocator costs: from `Allocate` to the last rank, from `Stop` to `Done`, and until the ranks of whoever was killed
//! are gone.
//!
//! The client is a bare socket that speaks HTTP/1.1, so that nothing of ours is on its side. The yardstick of starts is a bare
//! `posix_spawn` loop of the same program; the other bounds stand by themselves. What the published allocator takes is in
//! `docs/allocator.md`.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use camino::Utf8Path;
use serde_json::json;
use torchlift::clock::Clock;
use torchlift::process::spawn;
use torchlift_schema::exit_code;

use super::launch::{children, memory_mib};
use super::{Bound, Figure, median_ms};
use crate::error::CommandError;

/// Enough that one slow run of a busy machine is not the median.
const ROUNDS: usize = 11;
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(20);
/// A file system in memory, where the ranks' output goes.
pub(super) const MEMORY: &str = "/dev/shm";

/// Measures `torchlift serve` with the binary at `torchlift`.
pub fn figures(torchlift: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    measure(torchlift)
        .map_err(|error| CommandError::new(exit_code::BUILD, "`torchlift serve` cannot be measured").because(error))
}

fn measure(torchlift: &Utf8Path) -> io::Result<Vec<Figure>> {
    let folder = tempfile::Builder::new().prefix("torchlift-bench-").tempdir_in(MEMORY)?;
    let mut figures = Vec::new();
    for (ranks, limit) in [(64, 50.0), (256, 190.0)] {
        let allocator = Allocator::start(torchlift, folder.path())?;
        let (mut ours, mut bare, mut stops) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            bare.push(spawn::bare_loop(Path::new("/bin/true"), ranks)?);
            ours.push(allocator.short_lived(&format!("short-{ranks}-{round}"), ranks)?);
            stops.push(allocator.stopped(&format!("stopped-{ranks}-{round}"), ranks)?);
        }
        let created = |bound| Figure {
            name: format!("serve, from Allocate to the last Created of {ranks} × /bin/true"),
            ours: median_ms(&ours),
            yardstick: Some((format!("bare posix_spawn loop of {ranks}"), median_ms(&bare))),
            unit: "ms",
            bound,
        };
        figures.extend([created(Bound::Absolute(limit)), created(Bound::Ratio(1.3))]);
        if ranks == 256 {
            figures.push(plain(format!("serve, from Stop to Done of {ranks}"), median_ms(&stops), "ms", 30.0));
        }
    }
    let gone = |name: &str, taken: Duration| plain(name.into(), median_ms(&[taken]), "ms", 1000.0);
    let allocator = Allocator::start(torchlift, folder.path())?;
    figures.push(plain(
        "memory of an idle allocator and a guard with one rank".into(),
        allocator.memory()?,
        "MiB",
        12.0,
    ));
    let taken = allocator.client_gone(64)?;
    figures.push(gone("serve, 64 ranks that ignore SIGTERM gone after their client", taken));
    // The one before may still be putting away what its client left.
    drop(allocator);
    let taken = Allocator::start(torchlift, folder.path())?.killed(64)?;
    figures.push(gone("serve, 64 ranks that ignore SIGTERM gone after their allocator was killed", taken));
    Ok(figures)
}

pub(super) fn plain(name: String, ours: f64, unit: &'static str, limit: f64) -> Figure {
    Figure { name, ours, yardstick: None, unit, bound: Bound::Absolute(limit) }
}

/// Starts an allocator on this socket, with its ranks' output below this folder. It may not serve yet.
pub(super) fn spawn_serve(torchlift: &Utf8Path, socket: &Path, spool: &Path) -> io::Result<Child> {
    let mut command = Command::new(torchlift);
    command.arg("serve").arg("--listen").arg(format!("unix:{}", socket.display())).arg("--spool").arg(spool);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// A running allocator.
struct Allocator {
    child: Child,
    socket: PathBuf,
    clock: Clock,
}

impl Allocator {
    fn start(torchlift: &Utf8Path, folder: &Path) -> io::Result<Self> {
        let socket = folder.join("s");
        let child = spawn_serve(torchlift, &socket, folder)?;
        let allocator = Self { child, socket, clock: Clock::start() };
        allocator.wait_until(|| UnixStream::connect(&allocator.socket).is_ok())?;
        Ok(allocator)
    }

    fn wait_until(&self, mut holds: impl FnMut() -> bool) -> io::Result<Duration> {
        let start = self.clock.now();
        loop {
            let taken = self.clock.now().since(start);
            if holds() {
                return Ok(taken);
            }
            if taken > LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }

    /// Two connections of one session: one that asks, one that reads the record.
    fn client(&self, session: &str) -> io::Result<(Http, Http)> {
        Ok((Http::connect(&self.socket, session)?, Http::connect(&self.socket, session)?))
    }

    /// The time from `Allocate` to the last `Created` of ranks that end at once.
    fn short_lived(&self, key: &str, ranks: usize) -> io::Result<Duration> {
        let (mut asks, mut reads) = self.client(key)?;
        let start = self.clock.now();
        asks.ask(&allocate(key, ranks, "/bin/true", &[]))?;
        reads.follow(key)?;
        reads.until(r#""Created""#, ranks)?;
        let taken = self.clock.now().since(start);
        reads.until(r#""Done""#, 1)?;
        Ok(taken)
    }

    /// The time from `Stop` to `Done` of ranks that sleep.
    fn stopped(&self, key: &str, ranks: usize) -> io::Result<Duration> {
        let (mut asks, mut reads) = self.client(key)?;
        asks.ask(&allocate(key, ranks, "/bin/sleep", &["600"]))?;
        reads.follow(key)?;
        reads.until(r#""Running""#, ranks)?;
        let start = self.clock.now();
        asks.ask("\"Stop\"")?;
        reads.until(r#""Done""#, 1)?;
        Ok(self.clock.now().since(start))
    }

    /// Resident memory of the allocator and of the guard of one allocation, in MiB.
    fn memory(&self) -> io::Result<f64> {
        let (mut asks, mut reads) = self.client("memory")?;
        asks.ask(&allocate("memory", 1, "/bin/sleep", &["600"]))?;
        reads.follow("memory")?;
        reads.until(r#""Running""#, 1)?;
        let guards = children(self.child.id());
        let all = guards.iter().copied().chain([self.child.id()]);
        let mib = all.map(|pid| memory_mib(pid, "VmRSS")).sum::<Option<f64>>();
        let mib = mib.ok_or_else(|| io::Error::other("the kernel tells of no resident memory"))?;
        asks.ask("\"Stop\"")?;
        reads.until(r#""Done""#, 1)?;
        Ok(mib)
    }

    /// Ranks that ignore SIGTERM, with the connections of their client.
    fn stubborn(&self, key: &str, ranks: usize) -> io::Result<(Http, Http, Vec<u32>)> {
        let (mut asks, mut reads) = self.client(key)?;
        asks.ask(&allocate(key, ranks, "/bin/sh", &["-c", "trap '' TERM; sleep 600; :"]))?;
        reads.follow(key)?;
        reads.until(r#""Running""#, ranks)?;
        let guards = children(self.child.id());
        let pids: Vec<u32> = guards.iter().flat_map(|guard| children(*guard)).collect();
        if pids.len() == ranks { Ok((asks, reads, pids)) } else { Err(io::Error::other("not all ranks are there")) }
    }

    /// The time until the ranks of a client that closed its connections are gone.
    fn client_gone(&self, ranks: usize) -> io::Result<Duration> {
        let (asks, reads, pids) = self.stubborn("client", ranks)?;
        drop((asks, reads));
        self.wait_until(|| pids.iter().all(|pid| is_gone(*pid)))
    }

    /// The time until the ranks of an allocator that got SIGKILL are gone.
    fn killed(&mut self, ranks: usize) -> io::Result<Duration> {
        let (_asks, _reads, pids) = self.stubborn("killed", ranks)?;
        self.child.kill()?;
        self.wait_until(|| pids.iter().all(|pid| is_gone(*pid)))
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs_err::remove_file(&self.socket);
    }
}

fn allocate(key: &str, ranks: usize, program: &str, args: &[&str]) -> String {
    let launch = json!({ "run_id": key, "program": program, "args": args, "cwd": "/", "grace_ms": 30_000 });
    let view = json!({ "labels": ["rank"], "slice": { "offset": 0, "sizes": [ranks], "strides": [1] } });
    let terms = json!({ "alloc_key": key, "owner": "bench", "launch": launch });
    let (addr, hosts, context) = ("caller:", json!([]), json!(null));
    let message =
        json!({ "view": view, "bootstrap_addr": addr, "hosts": hosts, "client_context": context, "terms": terms });
    json!({ "Allocate": message }).to_string()
}

/// A connection that speaks as little HTTP as will do.
struct Http {
    stream: UnixStream,
    session: String,
    read: String,
}

impl Http {
    fn connect(socket: &Path, session: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream, session: session.to_owned(), read: String::new() })
    }

    fn send(&mut self, line: &str, body: &str) -> io::Result<()> {
        let (session, length) = (&self.session, body.len());
        let head =
            format!("{line} HTTP/1.1\r\nhost: x\r\ntorchlift-session: {session}\r\ncontent-length: {length}\r\n\r\n");
        self.stream.write_all((head + body).as_bytes())
    }

    /// A message that has to be taken.
    fn ask(&mut self, message: &str) -> io::Result<()> {
        self.read.clear();
        self.send("POST /v1/control", message)?;
        self.until("}\n", 1)?;
        let is_taken = self.read.starts_with("HTTP/1.1 200");
        if is_taken { Ok(()) } else { Err(io::Error::other(self.read.clone())) }
    }

    fn follow(&mut self, key: &str) -> io::Result<()> {
        self.read.clear();
        self.send(&format!("GET /v1/allocations/{key}/events"), "")
    }

    /// Reads until a word has come this often.
    fn until(&mut self, word: &str, count: usize) -> io::Result<()> {
        let mut buffer = [0; 64 * 1024];
        while self.read.matches(word).count() < count {
            let length = self.stream.read(&mut buffer)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        Ok(())
    }
}

/// Whether a process has ended, whoever has yet to wait for it.
fn is_gone(pid: u32) -> bool {
    match fs_err::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}
