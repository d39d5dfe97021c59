//! `libtorch fetch`: a variant from the official archive or from wheels, into the user's store.

use std::ffi::OsStr;

use torchlift::env_vars;
use torchlift_schema::{Accelerator, exit_code};

use super::wanted::WantedArgs;
use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::fetch::Request;
use crate::libtorch::spec::Spec;
use crate::libtorch::{Extent, fetch, spec};
use crate::report::fetch::FetchReport;

/// Arguments of `libtorch fetch`.
#[derive(Debug, clap::Args)]
pub(super) struct FetchArgs {
    /// What to get: `cpu`, `cu128`, `2.9.0`, `2.9.0+cu126` [default: what this machine and the workspace need]
    #[arg(value_name = "SPEC", conflicts_with_all = ["cpu", "gpu"])]
    spec: Option<Spec>,
    #[command(flatten)]
    wanted: WantedArgs,
}

pub(super) fn run(args: &FetchArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let spec = args.spec.clone().unwrap_or_default();
    let wanted = args.wanted.version(spec.version.as_deref(), scene)?;
    let cpu_arch = spec.cpu_arch.clone().unwrap_or_else(|| args.wanted.arch.clone());
    let extent = match &spec.accelerator {
        Some(Accelerator::Cpu) => Extent::Cpu,
        Some(_) => Extent::Whole,
        None => args.wanted.extent(),
    };
    let accelerator = spec.accelerator.filter(|accelerator| *accelerator != Accelerator::Cpu);
    let what = accelerator.as_ref().map(|accelerator| format!("+{}", spec::label(accelerator)));
    note(
        &mut report,
        format!("libtorch {}{} for {cpu_arch} ({})", wanted.version, what.unwrap_or_default(), wanted.origin),
    );
    let mirror = scene.env.get(OsStr::new(env_vars::TORCHLIFT_LIBTORCH_URL));
    let mirror = mirror.map(|url| url.to_string_lossy().into_owned());
    let request = Request { version: wanted.version, cpu_arch, extent, accelerator, mirror };
    let variant = fetch(&request, &scene.places, &scene.env, &mut |event| report.hear(event))?;
    if let Some(id) = &variant.id {
        note(&mut report, format!("`{id}` is in the store: torch {}", variant.facts.version));
    }
    print_line(variant.root.as_str())?;
    Ok(exit_code::OK)
}
