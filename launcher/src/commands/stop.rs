//! `stop`: ends a run, and waits until nothing of it is left.

use std::io;

use clap::Args;
use torchlift_schema::exit_code;

use super::Context;
use super::attach::lost;
use super::runs::{self, RunName};
use crate::error::CommandError;
use crate::live;
use crate::live::message::Over;
use crate::process::owner;
use crate::report::console;

/// Ends a run as Ctrl-C would, and waits until nothing of it is left
#[derive(Clone, Debug, Args)]
pub(crate) struct StopArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunName,
    /// End everything at once, by SIGKILL
    #[arg(long)]
    pub kill: bool,
}

/// Runs it.
///
/// # Errors
/// When there is no such run, or it ends without a word.
pub(crate) fn run(args: &StopArgs, context: &Context) -> Result<u8, CommandError> {
    let (found, living) = runs::find_living(&args.run, context)?;
    let failed = |error| lost(&found.run_id, error);
    // First, so that its end is heard of however soon it comes, and whoever has its number then is still this process.
    let launcher = owner::Handle::of(living.status.pid);
    let mut watch = live::watch(&living.socket).map_err(failed)?;
    let asked = live::stop(&living.socket, args.kill);
    let over = match watch.wait(None) {
        Ok(over) => over.unwrap_or_default(),
        // Too many watch it: its process ends all the same.
        Err(error) if error.kind() == io::ErrorKind::InvalidData && launcher.is_ok() => {
            asked.map_err(failed)?;
            Over { words: format!("run `{}` is over\n", found.run_id), ..Over::default() }
        }
        Err(error) => return Err(failed(error)),
    };
    // It says so just before it ends itself.
    if let Ok(launcher) = launcher {
        launcher.wait();
    }
    console::print(&over.words);
    Ok(exit_code::OK)
}
