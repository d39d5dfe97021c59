//! What the digests of a libtorch's files cost: of a core's time, and by the clock.
//!
//! The yardsticks are a plain read of the same bytes and `sha256sum`, both with one core. All files are in memory before it
//! begins: what a disk costs is none of ours.

use std::process::{Command, Output};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use torchlift_schema::exit_code;

use super::gpu_code::{Subject, gigabytes, read_whole, size};
use super::{Bound, Figure, median_ms, timed};
use crate::error::CommandError;

/// Enough for a median.
const ROUNDS: usize = 5;
/// What a core may take for a GB: 1 GB/s.
const A_GIGABYTE_MS: f64 = 1000.0;

/// Measures `digests`, the built example, on the files beside the subject's library.
pub fn figures(digests: &Utf8Path, subject: &Subject) -> Result<Vec<Figure>, CommandError> {
    let (folder, files) = subject.libraries()?;
    for file in &files {
        read_whole(file)?;
    }
    let largest = files.iter().max_by_key(|file| size(file)).unwrap_or(&subject.library);
    let mut taken = Taken::default();
    for _ in 0..ROUNDS {
        let all = Said::by(digests, &folder)?;
        taken.cores = all.number("cores")?;
        taken.all.push(all.duration("read")?);
        taken.core_time.push(all.duration("read, time of cores")?);
        taken.remembered.push(all.duration("remembered")?);
        taken.one.push(Said::by(digests, largest)?.duration("read")?);
        taken.plain.push(read_whole(largest)?);
        let before = children()?;
        timed(Command::new("sha256sum").arg(largest))?;
        taken.sha256sum.push(children()?.saturating_sub(before));
    }
    let bytes = files.iter().map(|file| size(file)).sum();
    Ok(taken.figures(gigabytes(bytes), gigabytes(size(largest))))
}

/// What was measured.
#[derive(Default)]
struct Taken {
    cores: u32,
    all: Vec<Duration>,
    core_time: Vec<Duration>,
    remembered: Vec<Duration>,
    one: Vec<Duration>,
    plain: Vec<Duration>,
    sha256sum: Vec<Duration>,
}

impl Taken {
    /// The figures for files of `all` GB together, the largest of which has `largest`.
    fn figures(&self, all: f64, largest: f64) -> Vec<Figure> {
        let cores = f64::from(self.cores.max(1));
        let figure =
            |name, ours, yardstick, limit| Figure { name, ours, yardstick, unit: "ms", bound: Bound::Absolute(limit) };
        vec![
            figure(
                format!("digests of its files ({all:.1} GB), warm: a core's time for a GB"),
                median_ms(&self.core_time) / all,
                Some(("sha256sum".into(), median_ms(&self.sha256sum) / largest)),
                A_GIGABYTE_MS,
            ),
            figure(
                format!("digest of the largest alone ({largest:.1} GB), warm: a GB by the clock"),
                median_ms(&self.one) / largest,
                Some(("plain read of the same bytes".into(), median_ms(&self.plain) / largest)),
                A_GIGABYTE_MS,
            ),
            figure(
                format!("digests of all of them on {cores} cores"),
                median_ms(&self.all),
                Some(("plain read of the largest alone".into(), median_ms(&self.plain))),
                // No file is shared between cores.
                A_GIGABYTE_MS * largest.max(all / cores),
            ),
            figure("the same, remembered".into(), median_ms(&self.remembered), None, 50.0),
        ]
    }
}

/// What the example said.
struct Said {
    program: Utf8PathBuf,
    text: String,
}

impl Said {
    fn by(program: &Utf8Path, of: &Utf8Path) -> Result<Self, CommandError> {
        let (Output { stdout, .. }, _) = timed(Command::new(program).arg(of))?;
        Ok(Self { program: program.to_owned(), text: String::from_utf8_lossy(&stdout).into_owned() })
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, CommandError> {
        let line = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
        number.ok_or_else(|| CommandError::new(exit_code::BUILD, format!("`{}` did not say {name}", self.program)))
    }

    fn duration(&self, name: &str) -> Result<Duration, CommandError> {
        self.number(name).map(Duration::from_micros)
    }
}

/// What all ended children of this process have had of the cores.
fn children() -> Result<Duration, CommandError> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| {
        CommandError::new(exit_code::BUILD, "the kernel does not say what `sha256sum` has taken").because(error)
    })?;
    let microseconds = |usage: &Usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(microseconds(&usage).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_all_files_is_that_of_the_core_with_the_most() {
        let bound = |cores, all, largest| match (Taken { cores, ..Taken::default() }).figures(all, largest)[2].bound {
            Bound::Absolute(limit) => limit,
            other => panic!("{other:?}"),
        };
        assert!((bound(2, 3.0, 1.0) - 1500.0).abs() < 1e-9);
        assert!((bound(8, 3.0, 1.0) - 1000.0).abs() < 1e-9, "one file is hashed by one core");
    }

    #[test]
    fn a_figure_is_what_one_gigabyte_takes() {
        let core_time = vec![Duration::from_millis(1500)];
        let figures = Taken { cores: 1, core_time, ..Taken::default() }.figures(2.0, 1.0);
        assert!((figures[0].ours - 750.0).abs() < 1e-9);
    }
}
