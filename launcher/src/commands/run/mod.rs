//! `run`: starts the ranks of a program, or of envelopes, and stays until the last is gone.
//!
//! `arguments` turns the command line into a [`crate::plan::RunRequest`]; [`execute()`] carries a request out, and is also
//! what `cargo xtask launch` calls, so that both paths are one.

mod arguments;
mod cards;
pub mod detach;
mod envelopes;
mod execute;
mod flags;
mod preflight;
mod settle;
mod watchers;

pub(crate) use arguments::RunArgs;
pub use envelopes::{NamedProgram, read as read_envelopes};
pub use execute::{Look, execute, look};
pub use flags::{Format, RUNS_DIR, RunFlags, RunOptions};

use crate::commands::Context;
use crate::error::CommandError;

/// Runs it.
///
/// # Errors
/// Whatever keeps a run from starting. A run that started and failed gives its exit code.
pub(crate) fn run(args: &RunArgs, context: Context) -> Result<u8, CommandError> {
    if args.flags.detach && !detach::is_detached(&context.env) {
        return detach::leave(args.flags.options());
    }
    let request = arguments::request(args, context)?;
    execute(request, args.flags.options())
}
