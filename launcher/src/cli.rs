//! The command line of `torchlift`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{self, Context};
use crate::error::CommandError;
use crate::process::signal;
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
    Status(commands::status::StatusArgs),
    Logs(commands::logs::LogsArgs),
    Attach(commands::attach::AttachArgs),
    Stop(commands::stop::StopArgs),
    Probe(commands::probe::ProbeArgs),
    #[cfg(feature = "net")]
    Keys(commands::keys::KeysArgs),
    #[cfg(feature = "net")]
    Serve(commands::serve::ServeArgs),
}

/// Parses the process's arguments, runs the verb and gives its exit code.
pub fn main() -> ExitCode {
    signal::outlive_file_limit();
    let code = run(std::env::args_os().collect()).unwrap_or_else(|error| {
        failure::print(&error);
        error.exit_code()
    });
    ExitCode::from(code)
}

fn run(args: Vec<OsString>) -> Result<u8, CommandError> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return Ok(failure::print_usage(error)),
    };
    let context = Context::from_process()?;
    match cli.verb {
        Verb::Run(args) => commands::run::run(&args, context),
        Verb::Status(args) => commands::status::run(&args, &context),
        Verb::Logs(args) => commands::logs::run(&args, &context),
        Verb::Attach(args) => commands::attach::run(&args, &context),
        Verb::Stop(args) => commands::stop::run(&args, &context),
        Verb::Probe(args) => commands::probe::run(&args, &context),
        #[cfg(feature = "net")]
        Verb::Keys(args) => commands::keys::run(&args, &context),
        #[cfg(feature = "net")]
        Verb::Serve(args) => commands::serve::run(&args, &context),
    }
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
