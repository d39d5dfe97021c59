//! One verb a file. Each has its arguments and a `run` that gives the exit code.

pub mod bench;
pub mod build;
pub mod clean;
pub mod demo;
pub mod doctor;
pub mod launch;
pub mod libtorch;
pub mod schema;
pub mod test;
pub mod verify;

use std::collections::BTreeMap;
use std::ffi::OsString;

use camino::Utf8PathBuf;

/// The exit code of a check that does not hold, of Torchlift's own checkout or of this machine, as `cargo fmt --check` and
/// other checkers end: our codes from 200 on say what became of a build or a run.
pub const CHECK_FAILED: u8 = 1;

/// What a command gets of the process that it runs in.
#[derive(Clone, Debug)]
pub struct Context {
    /// What the user typed before the verb: `cargo xtask` or `cargo torchlift`.
    pub invocation: String,
    /// The working directory.
    pub cwd: Utf8PathBuf,
    /// The file of this program, where it can be told: what cargo put into the library path is recognised by it.
    pub exe: Option<Utf8PathBuf>,
    /// The environment, as the process got it: what cargo put there is still in it.
    pub env: BTreeMap<OsString, OsString>,
}

impl Context {
    /// The context of this process.
    ///
    /// A working directory that is no UTF-8 is shown with replacement characters; commands then fail on their first file.
    pub fn from_process(invocation: &str) -> Self {
        let cwd = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Self {
            invocation: invocation.to_owned(),
            cwd: Utf8PathBuf::from(cwd.to_string_lossy().into_owned()),
            exe: std::env::current_exe().ok().and_then(|exe| exe.try_into().ok()),
            env: std::env::vars_os().collect(),
        }
    }
}
