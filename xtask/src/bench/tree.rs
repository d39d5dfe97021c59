//! What it costs to learn what a whole libtorch is.
//!
//! The yardstick is a plain read of the same bytes.

use std::process::Command;
use std::time::Duration;

use camino::Utf8Path;

use super::gpu_code::{Subject, gigabytes, read_whole, size};
use super::{Bound, Figure, median_ms, timed};
use crate::error::CommandError;
use torchlift::env_vars::TORCHLIFT_CACHE;

/// Enough for a median.
const ROUNDS: usize = 5;

/// Measures `xtask` on the tree that has the subject's library.
pub fn figures(xtask: &Utf8Path, subject: &Subject, folder: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    let (lib, libraries) = subject.libraries()?;
    let root = lib.parent().unwrap_or(&lib);
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
    let bytes: u64 = libraries.iter().map(|file| size(file)).sum();
    Ok(vec![Figure {
        name: format!("facts of a whole libtorch ({} files, {:.1} GB), warm", libraries.len(), gigabytes(bytes)),
        ours: median_ms(&ours),
        yardstick: Some(("plain read of the same bytes".into(), median_ms(&plain))),
        unit: "ms",
        bound: Bound::Absolute(500.0),
    }])
}
