//! What a host is: trees modelled on other machines, this very machine, and the file that keeps it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod machine;
mod nvml;
mod save;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "../support/stand_in.rs"]
#[expect(dead_code, reason = "of the stand-ins only one is needed here")]
mod stand_in;

/// The folder of the trees.
fn hosts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hosts")
}

/// The built `torchlift probe` with these arguments, run in `cwd`.
fn probe(cwd: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
    command.arg("probe").args(args).current_dir(cwd);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its stdout, when it succeeds.
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
