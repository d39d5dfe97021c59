//! The process that asks NVIDIA's library.
//!
//! It is this same program, started through /proc/self/exe: a library that crashes, calls `exit` or hangs takes down whoever
//! opened it, and must not take the facts of the host with it. What the library itself prints is no part of the answer.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;

use crate::preflight::gpu;
use crate::process::signal;

/// Exit code of one that could not say what it found.
const NOT_SAID: i32 = 200;

/// Asks NVIDIA's library when this process was started for that, and then never returns; else returns at once.
///
/// Both binaries call it first in `main`.
pub fn enter() {
    let mut args = std::env::args_os().skip(1);
    let what = args.next().unwrap_or_default();
    let answer: fn(&Path) -> String = if what == gpu::ASK_NVML {
        gpu::ask_nvml
    } else if what == gpu::ASK_NVML_USERS {
        gpu::ask_nvml_users
    } else {
        return;
    };
    let file = args.next().ok_or(std::io::ErrorKind::InvalidInput.into());
    let said = file.and_then(|file| say(|| answer(Path::new(&file))));
    signal::exit_now(if said.is_ok() { 0 } else { NOT_SAID })
}

fn say(words: impl FnOnce() -> String) -> std::io::Result<()> {
    // Whoever asked is gone: then nobody wants the answer. And nobody looks at a core file of it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let mut answer =
        fs_err::File::from_parts(std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?), "the answer");
    let nowhere = fs_err::OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&nowhere)?;
    nix::unistd::dup2_stderr(&nowhere)?;
    answer.write_all(words().as_bytes())
}
