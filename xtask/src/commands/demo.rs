//! `demo`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {}

/// Runs it.
pub fn run(_args: &DemoArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`demo` is not there yet"))
}
