//! `test`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {}

/// Runs it.
pub fn run(_args: &TestArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`test` is not there yet"))
}
