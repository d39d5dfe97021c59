//! `schema`.

use super::Context;
use crate::error::CommandError;

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub struct SchemaArgs {}

/// Runs it.
pub fn run(_args: &SchemaArgs, _context: &Context) -> Result<u8, CommandError> {
    Err(CommandError::new(torchlift_schema::exit_code::USAGE, "`schema` is not there yet"))
}
