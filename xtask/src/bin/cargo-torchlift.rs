//! `cargo torchlift`: the same tool, installed.

use std::process::ExitCode;

fn main() -> ExitCode {
    torchlift::process::guard::enter();
    torchlift::commands::probe::enter();
    torchlift_xtask::cli::main("cargo torchlift")
}
