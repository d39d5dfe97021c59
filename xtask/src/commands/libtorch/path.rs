//! `libtorch path`: which libtorch would be taken, and why others would not.

use camino::Utf8PathBuf;
use torchlift_schema::exit_code;

use super::wanted::WantedArgs;
use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::{ObtainError, Search, find};
use crate::report::fetch::FetchReport;

/// Arguments of `libtorch path`.
#[derive(Debug, clap::Args)]
pub(super) struct PathArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// A libtorch to take before all others
    #[arg(long, value_name = "DIR")]
    libtorch: Option<Utf8PathBuf>,
}

pub(super) fn run(args: &PathArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let wanted = args.wanted.version(None, scene)?;
    note(&mut report, format!("libtorch {} for {} ({})", wanted.version, args.wanted.arch, wanted.origin));
    let stores = scene.stores(args.wanted.manifest_path.as_deref());
    let given = args.libtorch.as_ref().map(|path| scene.context.cwd.join(path));
    let search = Search {
        version: Some(&wanted.version),
        cpu_arch: &args.wanted.arch,
        extent: args.wanted.extent(),
        given: given.as_deref(),
        env: &scene.env,
        stores: &stores,
        places: &scene.places,
    };
    let outcome = find(&search).map_err(ObtainError::from)?;
    for line in outcome.notes.into_iter().chain(outcome.skipped.iter().map(ToString::to_string)) {
        note(&mut report, line);
    }
    let Some((variant, origin)) = outcome.found else {
        let message = format!("no libtorch {} for {} is on this machine", wanted.version, args.wanted.arch);
        return Err(CommandError::new(exit_code::BUILD, message)
            .hint(format!("`{} libtorch fetch` gets one", scene.context.invocation)));
    };
    note(&mut report, format!("torch {} from {origin}", variant.facts.version));
    print_line(variant.root.as_str())?;
    Ok(exit_code::OK)
}
