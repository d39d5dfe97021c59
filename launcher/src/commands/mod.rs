//! One verb a file. Each has its arguments and a `run` that gives the exit code.
//!
//! Only here the process's environment and working directory are read, into a `Context`.

pub(crate) mod attach;
#[cfg(feature = "net")]
pub mod keys;
pub(crate) mod logs;
mod lookup;
pub mod probe;
pub mod run;
mod runs;
#[cfg(feature = "net")]
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod stop;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use torchlift_schema::exit_code;

use crate::error::CommandError;

/// What a command gets of the process that it runs in.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// The environment.
    pub env: BTreeMap<OsString, OsString>,
}

impl Context {
    /// The context of this process.
    ///
    /// # Errors
    /// When the working directory has been removed or cannot be reached.
    pub(crate) fn from_process() -> Result<Self, CommandError> {
        let cwd = std::env::current_dir().map_err(|error| {
            CommandError::new(exit_code::USAGE, "the working directory cannot be used")
                .because(error)
                .hint("it may have been removed: `cd` to another one")
        })?;
        Ok(Self { cwd, env: std::env::vars_os().collect() })
    }
}
