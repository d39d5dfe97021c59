//! The command line of `torchlift`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use torchlift_schema::exit_code;

use crate::commands::{self, Context};
use crate::error::CommandError;
use crate::output::terminal;
use crate::report::failure;

/// Starts, watches and ends the ranks of a libtorch program
#[derive(Debug, Parser)]
#[command(name = "torchlift", version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(commands::run::RunArgs),
}

/// Parses the process's arguments, runs the verb and gives its exit code.
pub fn main() -> ExitCode {
    let code = run(std::env::args_os().collect()).unwrap_or_else(|error| {
        failure::print(&error);
        error.exit_code()
    });
    ExitCode::from(code)
}

fn run(args: Vec<OsString>) -> Result<u8, CommandError> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return Ok(usage(&error)),
    };
    let context = Context::from_process()?;
    match cli.verb {
        Verb::Run(args) => commands::run::run(&args, context),
    }
}

/// Prints what clap has to say: help is data, all else is a mistake, and clap's 2 becomes ours.
fn usage(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        // A stderr that is closed has nobody to tell.
        let _ = error.print();
        return exit_code::USAGE;
    }
    // `error.print()` would fail at `| head`.
    let _ = terminal::print_data(error.render().to_string().as_bytes());
    exit_code::OK
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }
}
