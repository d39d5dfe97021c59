//! `clean`: takes out builds that nothing needs any more, and says how much that frees.

use camino::Utf8PathBuf;
use torchlift::clock;
use torchlift_schema::exit_code;

use super::Context;
use super::build::Format;
use crate::error::CommandError;
use crate::execute::WorkspaceLock;
use crate::execute::stale::{self, Stale};
use crate::report::progress::Console;
use crate::report::{clean::render, print_data, print_json};
use crate::toolchain;
use crate::workspace::WorkspaceFacts;

/// Arguments of `clean`.
#[derive(Clone, Debug, clap::Args)]
pub struct CleanArgs {
    /// Take out the builds that no envelope names; one of them costs its time again when it is wanted again
    #[arg(long, required = true)]
    stale: bool,
    /// Say what would go, and take nothing out
    #[arg(long)]
    dry_run: bool,
    /// Folder for cargo's own output, as of `build` [default: `torchlift/builds` in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    builds_dir: Option<Utf8PathBuf>,
    /// The `Cargo.toml` of the project [default: found from the working directory upward]
    #[arg(long, value_name = "PATH")]
    manifest_path: Option<Utf8PathBuf>,
    /// How facts are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs it.
///
/// # Errors
/// When an envelope cannot be read, since it may name any build, and when a build cannot be removed.
pub fn run(args: &CleanArgs, context: &Context) -> Result<u8, CommandError> {
    let env = toolchain::inherited(context);
    let manifest = args.manifest_path.as_ref().map(|file| context.cwd.join(file));
    let cargo = toolchain::cargo_program(context);
    let workspace = WorkspaceFacts::read(&cargo, &env, &context.cwd, manifest.as_deref())?;
    let builds_dir = workspace.builds_dir(args.builds_dir.as_deref(), &context.cwd);
    // A build that runs has no envelope yet.
    let _lock = WorkspaceLock::take(&workspace.root, &env, Console::new(false))?;
    let found = stale::find(&workspace.root, &builds_dir, clock::wall()).map_err(|findings| {
        CommandError::findings(exit_code::USAGE, "not every envelope can be read; nothing was taken out", findings)
    })?;
    if !args.dry_run {
        remove_all(&found)?;
    }
    match args.format {
        Format::Json => print_json(&found)?,
        Format::Text => print_data(&render(&found, &builds_dir, args.dry_run))?,
    }
    Ok(exit_code::OK)
}

fn remove_all(found: &Stale) -> Result<(), CommandError> {
    for build in &found.builds {
        stale::remove(build).map_err(|error| {
            CommandError::new(exit_code::USAGE, format!("the build `{}` cannot be taken out", build.dir))
                .because(error)
                .hint("see that you may write there, and run it again: it goes on where it stopped")
        })?;
    }
    Ok(())
}
