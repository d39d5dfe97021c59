//! `libtorch inspect`: what the files of a libtorch say.

use camino::Utf8PathBuf;
use torchlift_schema::exit_code;

use super::{Format, Scene};
use crate::error::CommandError;
use crate::libtorch::inspect::{InspectError, inspect};
use crate::libtorch::survey::{Survey, survey};
use crate::report::libtorch::describe;
use crate::report::{print_data, print_json, print_warnings};

/// Version of the JSON: grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// Arguments of `libtorch inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct InspectArgs {
    /// The folder that has `lib` and `include`
    #[arg(value_name = "DIR")]
    dir: Utf8PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(serde::Serialize)]
struct Shown<'a> {
    version: u32,
    libtorch: &'a Survey,
    /// SHA-256 of header tree, exported symbols, version and C++ ABI; none where a library is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    abi_digest: Option<&'a str>,
}

pub(super) fn run(args: &InspectArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let root = scene.context.cwd.join(&args.dir);
    let survey = survey(&root).map_err(refused)?;
    // What is whole is told all the same, and what is damaged; then it fails.
    let facts = match inspect(&root, Some(&scene.places.facts())) {
        Err(error @ InspectError::Library { .. }) => Err(error),
        other => Ok(other.map_err(refused)?),
    };
    let abi_digest = facts.as_ref().ok().map(|facts| facts.abi_digest.as_str());
    match args.format {
        Format::Json => {
            print_json(&Shown { version: VERSION, libtorch: &survey, abi_digest })?;
        }
        Format::Text => print_data(&describe(&survey, abi_digest))?,
    }
    print_warnings(&survey.findings);
    facts.map(|_| exit_code::OK).map_err(refused)
}

fn refused(error: InspectError) -> CommandError {
    let hint = match &error {
        InspectError::Inside { parent, .. } => format!("name `{parent}`"),
        InspectError::Missing { .. } => "name the folder that has `lib` and `include`".to_owned(),
        _ => "get the tree again, whole".to_owned(),
    };
    let message = error.to_string();
    let failed = CommandError::new(exit_code::USAGE, message).hint(hint);
    match error {
        InspectError::Library { source, .. } => failed.because(source),
        InspectError::Io { source, .. } => failed.because(source),
        _ => failed,
    }
}
