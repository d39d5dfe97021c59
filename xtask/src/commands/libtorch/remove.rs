//! `libtorch remove`: a variant out of its store.

use camino::Utf8Path;
use torchlift_schema::{Place, VariantId, exit_code};

use super::{Scene, note};
use crate::cluster::{self, LibtorchChoice};
use crate::error::CommandError;
use crate::libtorch::remove::{RemoveError, Request, remove};
use crate::report::fetch::FetchReport;
use crate::workspace::offer;

/// Arguments of `libtorch remove`.
#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The variant
    #[arg(value_name = "ID")]
    id: VariantId,
    /// Remove it although the workspace's cluster file or a pointer names it
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &RemoveArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let stores = scene.stores(None);
    let named = scene.workspace(None).map(|root| uses(&root, &args.id, scene)).unwrap_or_default();
    let request = Request { id: &args.id, named: &named, force: args.force };
    let removed =
        remove(&request, &stores, &mut |event| report.hear(event)).map_err(|error| command_error(error, &args.id))?;
    note(&mut report, format!("`{}` is gone from `{}`", args.id, removed.root));
    for pointer in removed.pointers {
        note(&mut report, format!("the pointer `{pointer}` named it, and is gone too"));
    }
    if let Some(remains) = removed.remains {
        note(&mut report, format!("another of that id is still there: `{remains}`"));
    }
    Ok(exit_code::OK)
}

/// Where the workspace's cluster file names the variant.
fn uses(root: &Utf8Path, id: &VariantId, scene: &Scene<'_>) -> Vec<Place> {
    let file = root.join("cluster.toml");
    if fs_err::symlink_metadata(&file).is_err() {
        return Vec::new();
    }
    let reading = cluster::read(&file, &scene.context.cwd, &cluster::lookup(&scene.env));
    let names = |kind: &&cluster::Kind| kind.libtorch == LibtorchChoice::Variant(id.clone());
    let mut places: Vec<Place> =
        reading.cluster.kinds.iter().filter(names).map(|kind| kind.places.at("libtorch")).collect();
    // A kind that has other errors is not among those that could be read.
    if places.is_empty() && reading.findings.iter().any(torchlift_schema::Finding::is_error) {
        for file in [file.clone(), cluster::overlay_path(&file)] {
            let text = fs_err::metadata(&file).ok().filter(std::fs::Metadata::is_file);
            let text = text.and_then(|_| fs_err::read_to_string(&file).ok()).unwrap_or_default();
            let line = text.lines().position(|line| line.contains(&format!("\"{id}\"")));
            if let Some(line) = line.and_then(|line| u32::try_from(line + 1).ok()) {
                places.push(Place::file(file.as_str()).at(line, 1));
            }
        }
    }
    places
}

fn command_error(error: RemoveError, id: &VariantId) -> CommandError {
    let summary = format!("`{id}` was not removed");
    match error {
        RemoveError::InUse { findings, .. } => CommandError::findings(exit_code::BUILD, summary, findings),
        RemoveError::Unknown { stored, .. } => {
            let names: Vec<&str> = stored.iter().map(String::as_str).collect();
            let failure = CommandError::new(exit_code::USAGE, summary).because(format!("no store has `{id}`"));
            if names.is_empty() { failure } else { failure.hint(offer("variants", id.as_str(), &names)) }
        }
        RemoveError::Stage(error) => {
            let hint = error.hint();
            let failure = CommandError::new(exit_code::BUILD, summary).because(error);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        RemoveError::Leftover { folder, source, .. } => {
            let summary = format!("`{id}` is out of the store, and not all of its files could be deleted");
            CommandError::new(exit_code::BUILD, summary)
                .because(source)
                .hint(format!("delete `{folder}`; the next command that changes the store tries it too"))
        }
    }
}
