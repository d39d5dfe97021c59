//! What a second demo costs before anybody learns anything: from the command to the end of the first epoch.
//!
//! Nothing is left to download or to compile by then, so that what remains is looking, verifying and launching.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use camino::Utf8Path;
use torchlift::clock::Clock;
use torchlift_schema::exit_code;

use super::{Bound, Figure, median_ms};
use crate::error::CommandError;

/// Enough for a median; a round takes seconds.
const ROUNDS: usize = 5;
/// What the trainer's line about its first epoch has in it.
const FIRST_EPOCH: &str = "epoch   1/";

/// Measures `xtask demo` with the binary at `xtask`.
pub fn figures(xtask: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    // The first one does what there is to do, which may take minutes, and says so.
    until_trained(xtask, Stdio::inherit())?;
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        ours.push(until_trained(xtask, Stdio::null())?);
    }
    Ok(vec![Figure {
        name: "xtask demo again, to the end of its first epoch".into(),
        ours: median_ms(&ours),
        yardstick: None,
        unit: "ms",
        bound: Bound::Absolute(2000.0),
    }])
}

/// One demo of one epoch, which must succeed.
fn until_trained(xtask: &Utf8Path, stderr: Stdio) -> Result<Duration, CommandError> {
    let failed = |what: String| CommandError::new(exit_code::BUILD, what);
    let cannot = |error: std::io::Error| failed(format!("`{xtask} demo` cannot be measured")).because(error);
    let clock = Clock::start();
    let start = clock.now();
    let mut child = Command::new(xtask)
        .args(["demo", "--", "--epochs", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(cannot)?;
    let mut trained = None;
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while trained.is_none() && stdout.read_line(&mut line).map_err(cannot)? > 0 {
            trained = line.contains(FIRST_EPOCH).then(|| clock.now().since(start));
            line.clear();
        }
        // Ranks never wait for a reader, and the launcher is not cut short.
        stdout.read_to_end(&mut Vec::new()).map_err(cannot)?;
    }
    let status = child.wait().map_err(cannot)?;
    match trained {
        Some(taken) if status.success() => Ok(taken),
        _ => Err(failed(format!("`{xtask} demo` ended with {status}"))),
    }
}
