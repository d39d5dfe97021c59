//! The binary that runs on the hosts.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A guard is this same program, started through /proc/self/exe: it must not get further than here.
    torchlift::process::guard::enter();
    torchlift::cli::main()
}
