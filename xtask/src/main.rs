//! `cargo xtask`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A guard, and what asks NVIDIA's library, are this same program, started through /proc/self/exe: they get no further.
    torchlift::process::guard::enter();
    torchlift::commands::probe::enter();
    torchlift_xtask::cli::main("cargo xtask")
}
