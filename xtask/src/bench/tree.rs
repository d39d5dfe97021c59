//! What it costs to learn what a whole libtorch is, and the digests of all its libraries.
//!
//! The yardsticks are a plain read of the same bytes and `sha256sum`, which reads them with one core.

use std::process::Command;
use std::time::Duration;

use camino::Utf8Path;
use torchlift_schema::exit_code;

use super::gpu_code::{Subject, read_whole};
use super::{Bound, Figure, median_ms, timed};
use crate::error::CommandError;
use torchlift::env_vars::TORCHLIFT_CACHE;

/// Enough for a median.
const ROUNDS: usize = 5;

/// Measures `xtask` and `digests`, the built example, on the tree that has the subject's library.
pub fn figures(
    xtask: &Utf8Path,
    digests: &Utf8Path,
    subject: &Subject,
    folder: &Utf8Path,
) -> Result<Vec<Figure>, CommandError> {
    let failed = |what: String| CommandError::new(exit_code::BUILD, what);
    let lib = subject.library.parent().ok_or_else(|| failed(format!("`{}` has no folder", subject.library)))?;
    let root = lib.parent().unwrap_or(lib);
    let libraries: Vec<_> = fs_err::read_dir(lib.as_std_path())
        .map_err(|error| failed(format!("`{lib}` cannot be read")).because(error))?
        .flatten()
        .filter_map(|entry| camino::Utf8PathBuf::from_path_buf(entry.path()).ok())
        .filter(|file| file.is_file())
        .collect();

    // The first time reads the headers too, for the ABI digest, which is remembered; the libraries are read each time.
    let cache = folder.join("cache of facts");
    let inspect = || {
        let mut command = Command::new(xtask);
        command.args(["libtorch", "inspect", "--format", "json"]).arg(root).env(TORCHLIFT_CACHE, &cache);
        timed(&mut command).map(|(_, taken)| taken)
    };
    inspect()?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(inspect()?);
        plain.push(libraries.iter().map(|file| read_whole(file)).sum::<Result<Duration, CommandError>>()?);
    }
    let (output, _) = timed(Command::new(digests).arg(lib))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let number: Option<u32> = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok()).map(|number| {
            // Bytes are told in millions: what has more than 4 PB is no libtorch.
            u32::try_from(if name == "bytes" { number / 1_000_000 } else { number }).unwrap_or(u32::MAX)
        });
        number.map(f64::from).ok_or_else(|| failed(format!("`{digests}` did not say {name}")))
    };
    let gigabytes = number("bytes")? / 1000.0;
    let each = |milliseconds: f64, size: f64| milliseconds / size;
    let (_, alone) = timed(Command::new("sha256sum").arg(&subject.library))?;
    let size = fs_err::metadata(&subject.library).map_or(0, |metadata| metadata.len() / 1_000_000);
    let size = f64::from(u32::try_from(size).unwrap_or(u32::MAX)) / 1000.0;
    Ok(vec![
        Figure {
            name: format!("facts of a whole libtorch ({} files, {gigabytes:.1} GB), warm", libraries.len()),
            ours: median_ms(&ours),
            yardstick: Some(("plain read of the same bytes".into(), median_ms(&plain))),
            unit: "ms",
            bound: Bound::Absolute(500.0),
        },
        Figure {
            name: "digests of its files, a GB and core".into(),
            ours: each(number("read")? / 1000.0 * number("cores")?, gigabytes),
            yardstick: Some(("sha256sum".into(), each(median_ms(&[alone]), size))),
            unit: "ms",
            bound: Bound::Absolute(1000.0),
        },
        Figure {
            name: "the same, remembered".into(),
            ours: number("remembered")? / 1000.0,
            yardstick: None,
            unit: "ms",
            bound: Bound::Absolute(50.0),
        },
    ])
}
