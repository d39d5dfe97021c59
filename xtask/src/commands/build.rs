//! `build`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `build`.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {}

/// Runs it.
pub fn run(_args: &BuildArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`build` is not there yet"))
}
