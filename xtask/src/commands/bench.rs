//! `bench`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {}

/// Runs it.
pub fn run(_args: &BenchArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`bench` is not there yet"))
}
