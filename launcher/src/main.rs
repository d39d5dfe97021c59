//! The binary that runs on the hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A guard, and what asks NVIDIA's library, are this same program, started through /proc/self/exe: they get no further.
    torchlift::process::guard::enter();
    torchlift::commands::probe::enter();
    torchlift::cli::main()
}
