//! `libtorch`: what is done with variants. One verb a file.
//!
//! Here is what the verbs have in common: their places, their notes, the workspace that they are called in.

mod add;
mod build;
mod fetch;
mod inspect;
mod list;
mod path;
mod point;
mod remove;
mod verify;
mod wanted;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;

use super::Context;
use crate::error::CommandError;
use crate::libtorch::{FetchEvent, Places, Stores};
use crate::report::fetch::FetchReport;
use crate::report::print_data;
use crate::toolchain::{Env, inherited};

/// Arguments of `libtorch`.
#[derive(Debug, clap::Args)]
pub struct LibtorchArgs {
    #[command(subcommand)]
    verb: LibtorchVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LibtorchVerb {
    /// Put a libtorch that is on this machine into the store, and print its folder
    Add(add::AddArgs),
    /// Build libtorch from source for GPU architectures that no published one has together, and add it
    Build(Box<build::BuildArgs>),
    /// Get a libtorch into the store, by default the one that the program needs, and print its folder
    Fetch(fetch::FetchArgs),
    /// Print what the files of a libtorch say: version, ABI, GPU code, libraries
    Inspect(inspect::InspectArgs),
    /// List the variants of the stores
    List(list::ListArgs),
    /// Print the folder of the libtorch that would be taken, and say why others would not
    Path(path::PathArgs),
    /// Take a variant out of its store
    Remove(remove::RemoveArgs),
    /// Take this variant before the others of the stores, where it fits
    Use(point::UseArgs),
    /// Read all files of a variant, and name each that is not as it was put into the store
    Verify(verify::VerifyArgs),
}

/// What every verb gets.
struct Scene<'a> {
    context: &'a Context,
    /// Without what the outer cargo put there.
    env: Env,
    places: Places,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Runs it.
pub fn run(args: &LibtorchArgs, context: &Context) -> Result<u8, CommandError> {
    let env = inherited(context);
    let places = Places::from_env(&env).map_err(|error| {
        CommandError::new(exit_code::USAGE, error.to_string()).hint("set `TORCHLIFT_HOME` to a folder of your own")
    })?;
    let scene = Scene { context, env, places };
    match &args.verb {
        LibtorchVerb::Add(args) => add::run(args, &scene),
        LibtorchVerb::Build(args) => build::run(args, &scene),
        LibtorchVerb::Fetch(args) => fetch::run(args, &scene),
        LibtorchVerb::Inspect(args) => inspect::run(args, &scene),
        LibtorchVerb::List(args) => list::run(args, &scene),
        LibtorchVerb::Path(args) => path::run(args, &scene),
        LibtorchVerb::Remove(args) => remove::run(args, &scene),
        LibtorchVerb::Use(args) => point::run(args, &scene),
        LibtorchVerb::Verify(args) => verify::run(args, &scene),
    }
}

impl Scene<'_> {
    /// The stores, with that of the workspace of `manifest` (given, or found from the working directory upward).
    fn stores(&self, manifest: Option<&Utf8Path>) -> Stores {
        Stores::new(self.workspace(manifest).as_deref(), &self.places)
    }

    fn manifest(&self, given: Option<&Utf8Path>) -> Option<Utf8PathBuf> {
        let cwd = &self.context.cwd;
        match given {
            Some(path) => Some(cwd.join(path)),
            None => cwd.ancestors().map(|folder| folder.join("Cargo.toml")).find(|file| file.is_file()),
        }
    }

    /// The folder of the workspace's `Cargo.lock`, which is its root; the manifest's own folder before there is one.
    fn workspace(&self, manifest: Option<&Utf8Path>) -> Option<Utf8PathBuf> {
        let manifest = self.manifest(manifest)?;
        let folder = manifest.parent()?;
        let root = folder.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
        Some(root.unwrap_or(folder).to_owned())
    }
}

fn note(report: &mut FetchReport, text: String) {
    report.hear(FetchEvent::Note(text));
}

fn print_line(text: &str) -> Result<(), CommandError> {
    print_data(&format!("{text}\n"))
}
