//! The demo's trainer, as the tests that start it need it.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests that show what was printed")]

use std::process::{Command, Output, Stdio};

use camino::{Utf8Path, Utf8PathBuf};

/// Ranks of the clusters that it is started on.
pub(crate) const RANKS: usize = 4;

/// Its folder.
pub(crate) fn project() -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures/projects/tch-train")
}

/// The tool, run in its folder; what it prints is shown.
pub(crate) fn xtask(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).current_dir(project()).stdin(Stdio::null());
    let output = command.output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What follows `marker` in each line that has it.
pub(crate) fn after<'a>(output: &'a str, marker: &str) -> Vec<&'a str> {
    output.lines().filter_map(|line| Some(line.split_once(marker)?.1.trim())).collect()
}
