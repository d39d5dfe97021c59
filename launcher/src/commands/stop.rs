//! `stop`: ends a run, and waits until nothing of it is left.

use clap::Args;
use torchlift_schema::exit_code;

use super::Context;
use super::attach::lost;
use super::runs::{self, RunName};
use crate::error::CommandError;
use crate::live;
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
    // First, so that its end is heard of however soon it comes.
    let mut watch = live::watch(&living.socket).map_err(failed)?;
    if let Err(error) = live::stop(&living.socket, args.kill) {
        // It may have been over just now.
        if watch.wait(Some(super::logs::PAUSE)).ok().flatten().is_none() {
            return Err(failed(error));
        }
    }
    let over = watch.wait(None).map_err(failed)?;
    console::print(&over.unwrap_or_default().words);
    Ok(exit_code::OK)
}
