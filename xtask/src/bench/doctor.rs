//! What an examination of a project costs, from the start of the process to its end.
//!
//! Measured in the project of the demo, with the tools, the stores and the environment that this machine has: whatever of them
//! is slow is waited for here too. The first one has no remembered facts and reads every variant of the stores; files are in
//! memory by then.

use std::process::Command;

use camino::Utf8Path;
use torchlift::env_vars::TORCHLIFT_CACHE;

use super::{Bound, Figure, median_ms, timed};
use crate::error::CommandError;

/// Enough for a median.
const ROUNDS: usize = 5;
/// What a person waits for without asking whether it hangs. Milliseconds.
const PATIENCE_MS: f64 = 2000.0;

/// Measures `xtask` in `project`; `folder` gets what it remembers.
pub fn figures(xtask: &Utf8Path, project: &Utf8Path, folder: &Utf8Path) -> Result<Vec<Figure>, CommandError> {
    let examine = |cache: &str| {
        let mut command = Command::new(xtask);
        command.args(["doctor", "--format", "json"]).current_dir(project).env(TORCHLIFT_CACHE, folder.join(cache));
        timed(&mut command).map(|(_, taken)| taken)
    };
    // Brings the files into memory.
    examine("facts of the doctor")?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let cache = format!("facts of the doctor, {round}");
        first.push(examine(&cache)?);
        again.push(examine(&cache)?);
    }
    let figure = |name: &str, ours| Figure {
        name: name.to_owned(),
        ours,
        yardstick: None,
        unit: "ms",
        bound: Bound::Absolute(PATIENCE_MS),
    };
    Ok(vec![
        figure("doctor, in the demo's project, nothing remembered", median_ms(&first)),
        figure("doctor, in the demo's project", median_ms(&again)),
    ])
}
