//! `libtorch`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `libtorch`.
#[derive(Debug, clap::Args)]
pub struct LibtorchArgs {}

/// Runs it.
pub fn run(_args: &LibtorchArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`libtorch` is not there yet"))
}
