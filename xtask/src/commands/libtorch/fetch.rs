//! `libtorch fetch`: a variant from the official archive or from wheels, into the user's store.

use std::ffi::OsStr;

use torchlift::env_vars;
use torchlift_schema::exit_code;

use super::wanted::WantedArgs;
use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::fetch;
use crate::libtorch::fetch::Request;
use crate::report::fetch::FetchReport;

/// Arguments of `libtorch fetch`.
#[derive(Debug, clap::Args)]
pub(super) struct FetchArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

pub(super) fn run(args: &FetchArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let wanted = args.wanted.version(scene);
    note(&mut report, format!("libtorch {} for {} ({})", wanted.version, args.wanted.arch, wanted.origin));
    let mirror = scene.env.get(OsStr::new(env_vars::TORCHLIFT_LIBTORCH_URL));
    let request = Request {
        version: wanted.version,
        cpu_arch: args.wanted.arch.clone(),
        extent: args.wanted.extent(),
        mirror: mirror.map(|url| url.to_string_lossy().into_owned()),
    };
    let variant = fetch(&request, &scene.places, &scene.env, &mut |event| report.hear(event))?;
    if let Some(id) = &variant.id {
        note(&mut report, format!("`{id}` is in the store: torch {}", variant.facts.version));
    }
    print_line(variant.root.as_str())?;
    Ok(exit_code::OK)
}
