//! `launch`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `launch`.
#[derive(Debug, clap::Args)]
pub struct LaunchArgs {}

/// Runs it.
pub fn run(_args: &LaunchArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`launch` is not there yet"))
}
