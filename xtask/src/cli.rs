//! The command line, shared by `cargo xtask` and `cargo torchlift`.
//!
//! Owns which verbs there are and what a usage error looks like. What a verb does is in [`crate::commands`].

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use torchlift::process::signal;
use torchlift::report::failure;

use crate::commands::{self, Context};

#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Fetch libtorch, build a real trainer for two local hosts, launch four ranks and watch them train
    Demo(commands::demo::DemoArgs),
    /// Build the job once per distinct kind of host, verify it, and write one envelope a host
    Build(Box<commands::build::BuildArgs>),
    /// Build, then start the ranks on every host and stay with them
    Launch(Box<commands::launch::LaunchArgs>),
    /// Take out the builds that no envelope names any more, and say how much that frees
    Clean(commands::clean::CleanArgs),
    /// Look at this machine and this cluster: what is right, what is not, how to mend it
    Doctor(commands::doctor::DoctorArgs),
    /// Verify what is published: what each host's loader would choose, and every check with who made it
    Verify(commands::verify::VerifyArgs),
    /// Find, fetch and list libtorch variants
    Libtorch(commands::libtorch::LibtorchArgs),
    /// Write the JSON Schemas of the formats, or check that they are current
    Schema(commands::schema::SchemaArgs),
    /// Run all of Torchlift's own tests, and say what could not be run and how to get it
    Test(commands::test::TestArgs),
    /// Print Torchlift's own figures, measured beside their yardsticks in one run
    Bench(commands::bench::BenchArgs),
}

/// Parses the process's arguments, runs the verb and gives its exit code.
///
/// `invocation` is what the user typed, so that hints name a command that exists.
pub fn main(invocation: &str) -> ExitCode {
    signal::outlive_file_limit();
    let mut args: Vec<OsString> = std::env::args_os().collect();
    // Cargo puts the subcommand's own name in front of the rest.
    if invocation == "cargo torchlift" && args.get(1).is_some_and(|arg| arg == "torchlift") {
        args.remove(1);
    }
    if let Some(name) = args.first_mut() {
        *name = invocation.into();
    }
    run(args, &Context::from_process(invocation))
}

/// Runs one command line; testable, since everything of the process comes in `context`.
pub fn run(args: Vec<OsString>, context: &Context) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(failure::print_usage(error)),
    };
    let result = match cli.verb {
        Verb::Demo(args) => commands::demo::run(&args, context),
        Verb::Build(args) => commands::build::run(&args, context),
        Verb::Launch(args) => commands::launch::run(&args, context),
        Verb::Clean(args) => commands::clean::run(&args, context),
        Verb::Doctor(args) => commands::doctor::run(&args, context),
        Verb::Verify(args) => commands::verify::run(&args, context),
        Verb::Libtorch(args) => commands::libtorch::run(&args, context),
        Verb::Schema(args) => commands::schema::run(&args, context),
        Verb::Test(args) => commands::test::run(&args, context),
        Verb::Bench(args) => commands::bench::run(&args, context),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            failure::print(&error);
            ExitCode::from(error.exit_code())
        }
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
