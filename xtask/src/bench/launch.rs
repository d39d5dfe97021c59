//! What a launch costs: time beside a bare `posix_spawn` loop, and memory.
//!
//! Compared is the starting and ending of ranks, and nothing that only one side has: the loop writes no file and prints nothing,
//! so that the launcher, which keeps a folder for each run and says how it ended, is told to be quiet and keeps that folder in
//! memory. The ranks of both write nothing. The launcher's time is the whole life of its process, from its start to its end; the
//! loop runs in a process that is there already. Both run in turn, so that whatever else the machine does meets both, and the
//! medians are told.

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use camino::Utf8Path;
use torchlift::clock::Clock;
use torchlift::process::spawn;
use torchlift_schema::exit_code;

use super::{Bound, Figure, median_ms};
use crate::error::CommandError;

/// Enough that one slow run of a busy machine is not the median.
const ROUNDS: usize = 21;
/// Longest wait for a launch to have all its ranks.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The most memory that a process had.
const PEAK: &str = "VmHWM";

/// A file system in memory, on every Linux that ranks can use for data loaders.
const MEMORY: &str = "/dev/shm";

/// Measures `torchlift run` with the binary at `torchlift`.
pub fn figures(torchlift: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    let no_room = |error| {
        CommandError::new(exit_code::BUILD, format!("cannot make a folder in `{MEMORY}`, where the runs are kept"))
            .because(error)
            .hint("mount a tmpfs there, which data loaders need too")
    };
    let runs = tempfile::Builder::new().prefix("torchlift-bench-").tempdir_in(MEMORY).map_err(no_room)?;
    let scratch = Utf8Path::from_path(runs.path()).ok_or_else(|| no_room(Error::from(ErrorKind::InvalidFilename)))?;
    let mut ours = Vec::new();
    let mut bare = Vec::new();
    let mut two = Vec::new();
    for _ in 0..ROUNDS {
        bare.push(spawn::bare_loop(Path::new("/bin/true"), 64).map_err(|error| {
            CommandError::new(exit_code::BUILD, "cannot spawn `/bin/true` for the yardstick").because(error)
        })?);
        ours.push(timed_run(torchlift, scratch, 64)?);
        two.push(timed_run(torchlift, scratch, 2)?);
    }
    Ok(vec![
        Figure {
            name: "torchlift run --quiet --nproc 64 -- /bin/true, its folder in memory".into(),
            ours: median_ms(&ours),
            yardstick: Some(("bare posix_spawn loop of 64".into(), median_ms(&bare))),
            unit: "ms",
            bound: Bound::Ratio(1.5),
        },
        Figure {
            name: "the same with 2 ranks".into(),
            ours: median_ms(&two),
            yardstick: None,
            unit: "ms",
            bound: Bound::Absolute(15.0),
        },
        Figure {
            name: "peak memory of launcher and guard, 64 ranks".into(),
            ours: peak_memory_mib(torchlift, scratch, 64)?,
            yardstick: None,
            unit: "MiB",
            bound: Bound::Absolute(20.0),
        },
    ])
}

fn command(torchlift: &Utf8Path, scratch: &Utf8Path, ranks: u32) -> Command {
    let mut command = Command::new(torchlift);
    command.args(["run", "--quiet", "--runs"]).arg(scratch).args(["--nproc", &ranks.to_string(), "--"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn timed_run(torchlift: &Utf8Path, scratch: &Utf8Path, ranks: u32) -> Result<Duration, CommandError> {
    let clock = Clock::start();
    let start = clock.now();
    let status = command(torchlift, scratch, ranks).arg("/bin/true").status().map_err(cannot_run(torchlift))?;
    let taken = clock.now().since(start);
    if !status.success() {
        return Err(CommandError::new(exit_code::BUILD, format!("`{torchlift} run` ended with {status}")));
    }
    Ok(taken)
}

/// Both processes' `VmHWM` while the ranks, which sleep, are all there.
fn peak_memory_mib(torchlift: &Utf8Path, scratch: &Utf8Path, ranks: usize) -> Result<f64, CommandError> {
    let mut launcher =
        command(torchlift, scratch, ranks as u32).args(["/bin/sleep", "30"]).spawn().map_err(cannot_run(torchlift))?;
    let measured = wait_for_ranks(&launcher, ranks);
    let ended =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(launcher.id() as i32), nix::sys::signal::Signal::SIGTERM);
    let waited = launcher.wait();
    if let (Err(error), _) | (Ok(()), Err(error)) = (ended.map_err(std::io::Error::from), waited) {
        return Err(CommandError::new(exit_code::BUILD, "cannot end the launcher that was measured").because(error));
    }
    measured.ok_or_else(|| {
        CommandError::new(exit_code::BUILD, format!("`{torchlift} run` had not started {ranks} ranks in 20 s"))
    })
}

/// The sum of the two peaks once the guard has as many children as there are ranks.
fn wait_for_ranks(launcher: &Child, ranks: usize) -> Option<f64> {
    let clock = Clock::start();
    let start = clock.now();
    while clock.now().since(start) < START_LIMIT {
        let guards = children(launcher.id());
        if let [guard] = guards[..]
            && children(guard).len() == ranks
        {
            return Some(memory_mib(launcher.id(), PEAK)? + memory_mib(guard, PEAK)?);
        }
        std::thread::yield_now();
    }
    None
}

/// The processes that a process of one thread has started.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// A line of a process's memory, such as `VmHWM`, in MiB.
pub(super) fn memory_mib(pid: u32, line: &str) -> Option<f64> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = text.lines().find_map(|other| other.strip_prefix(line)?.strip_prefix(':'))?;
    let kib: f64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn cannot_run(torchlift: &Utf8Path) -> impl Fn(std::io::Error) -> CommandError {
    let message = format!("cannot run `{torchlift}`");
    move |error| CommandError::new(exit_code::BUILD, message.clone()).because(error)
}
