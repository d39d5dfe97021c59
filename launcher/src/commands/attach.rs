//! `attach`: looks on at a run until it is over.

use clap::Args;
use torchlift_schema::exit_code;

use super::Context;
use super::logs::{PAUSE, Shown, unreadable};
use super::runs::{self, RunName};
use crate::error::CommandError;
use crate::event::{Rank, Stream};
use crate::live;
use crate::report::{console, words};

/// Shows a run from here on, and ends with its exit code
///
/// Ctrl-C leaves the run as it is.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttachArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunName,
}

/// Runs it.
///
/// # Errors
/// When there is no such run, or it ends without a word.
pub(crate) fn run(args: &AttachArgs, context: &Context) -> Result<u8, CommandError> {
    let (found, living) = runs::find_living(&args.run, context)?;
    let mut watch = live::watch(&living.socket).map_err(|error| lost(&found.run_id, error))?;
    let ranks: Vec<Rank> = found.ranks.iter().map(|(rank, _)| *rank).collect();
    let mut shown = Shown::new(&found, &ranks, &[Stream::Stdout, Stream::Stderr], true);
    let (id, before) = (&found.run_id, words::size(shown.passed_over()));
    console::print(&format!(
        "run `{id}`: {before} were written before (`torchlift logs {id}`); Ctrl-C leaves it, `torchlift stop {id}` ends it\n"
    ));
    loop {
        let over = watch.wait(Some(PAUSE));
        shown.turn().map_err(unreadable)?;
        match over {
            Ok(None) => {}
            Ok(Some(over)) => {
                shown.close();
                console::print(&over.words);
                return Ok(over.exit_code);
            }
            Err(error) => return Err(lost(&found.run_id, error)),
        }
    }
}

pub(super) fn lost(run_id: &str, error: std::io::Error) -> CommandError {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return CommandError::new(exit_code::UNREACHABLE, format!("the run `{run_id}` goes on and cannot be watched"))
            .because(error)
            .hint("`torchlift status` shows how it goes, `torchlift logs` what its ranks wrote");
    }
    CommandError::new(exit_code::LOST_HOST, format!("the run `{run_id}` ended without a word"))
        .because(error)
        .hint("its launcher was killed, and its ranks with it; what they wrote is in its folder")
}
