//! `libtorch build`: a libtorch from source for chosen GPU architectures.

use camino::Utf8PathBuf;
use torchlift_schema::{Finding, Severity, VariantId, exit_code};

use super::wanted::parse_version;
use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::source::{self, Archs, Machine, Plan, Request};
use crate::libtorch::{Wanted, wanted};
use crate::report::fetch::FetchReport;
use crate::report::{print_data, print_warnings};
use crate::toolchain::cargo_program;

/// Arguments of `libtorch build`.
#[derive(Debug, clap::Args)]
pub(super) struct BuildArgs {
    /// GPU architectures, such as `6.1;12.0`
    #[arg(long, value_name = "LIST")]
    archs: Archs,
    /// Torch version [default: the one that the workspace's locked `torch-sys` pins]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    torch: Option<String>,
    /// Its id in the store [default: `builds/<archs>-<version>`, such as `builds/sm61-sm120-2.9.0`]
    #[arg(long, value_name = "FAMILY/NAME")]
    name: Option<VariantId>,
    /// Where it is built; needs 60 GB [default: `builds/<name>` below `TORCHLIFT_CACHE`]
    #[arg(long, value_name = "DIR")]
    work: Option<Utf8PathBuf>,
    /// The git repository of torch: an address, or a folder of this machine
    #[arg(long, value_name = "URL", default_value = source::SOURCE)]
    source: String,
    /// Compilers at once [default: as many as there are cores and memory for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    /// CUDA's compiler [default: that of `CUDA_HOME`, of `PATH`, of `/usr/local/cuda`]
    #[arg(long, value_name = "FILE")]
    nvcc: Option<Utf8PathBuf>,
    /// A switch of torch's build, such as `USE_NCCL=OFF`; may be given again
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = switch)]
    switches: Vec<(String, String)>,
    /// Take a finding of this code as a warning; may be given again
    #[arg(long, value_name = "CODE")]
    accept: Vec<String>,
    /// Print what would be done, and do nothing
    #[arg(long, conflicts_with = "recipe_only")]
    dry_run: bool,
    /// Write the recipe into this folder, to be run there or elsewhere, and do nothing else
    #[arg(long, value_name = "DIR")]
    recipe_only: Option<Utf8PathBuf>,
}

pub(super) fn run(args: &BuildArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let cwd = &scene.context.cwd;
    let Wanted { version, origin } = version(args, scene);
    note(&mut report, format!("libtorch {version} for {} ({origin})", args.archs));
    let nvcc = args.nvcc.as_ref().map(|path| cwd.join(path));
    let mut request = Request {
        archs: args.archs.clone(),
        version,
        id: args.name.clone(),
        source: source_of(&args.source, scene),
        work: Utf8PathBuf::new(),
        jobs: args.jobs.map(usize::from),
        switches: args.switches.clone(),
    };
    let no_id = |error: source::NoIdError| {
        CommandError::new(exit_code::USAGE, error.to_string()).hint("give it one with `--name FAMILY/NAME`")
    };
    // The default folder is named by the id, which needs no look at the machine.
    let id = source::plan(&request, &Machine::default(), None).map_err(no_id)?.id;
    request.work = match args.work.as_ref().or(args.recipe_only.as_ref()) {
        Some(folder) => cwd.join(folder),
        None => scene.places.cache.join("builds").join(id.slug()),
    };
    let machine = Machine::read(&scene.env, &request.work, nvcc.as_deref());
    let stored = scene.places.store().join(id.as_str());
    let stored = fs_err::symlink_metadata(&stored).is_ok().then_some(stored);
    let mut plan = source::plan(&request, &machine, stored.as_deref()).map_err(no_id)?;
    let accepted = plan.findings.iter_mut().filter(|finding| args.accept.contains(&finding.code));
    accepted.for_each(|finding| finding.severity = Severity::Warning);
    if args.dry_run {
        print_warnings(&plan.findings);
        print_data(&plan.recipe.script())?;
        return Ok(exit_code::OK);
    }
    if args.recipe_only.is_some() {
        // It may be meant for another machine, so that what this one lacks does not stop.
        print_warnings(&plan.findings);
        plan.recipe.write(&request.work).map_err(|error| failed(error, &plan))?;
        print_line(request.work.join(source::SCRIPT).as_str())?;
        return Ok(exit_code::OK);
    }
    if plan.findings.iter().any(Finding::is_error) {
        let summary = format!("`{}` cannot be built on this machine; nothing was done", plan.id);
        return Err(CommandError::findings(exit_code::BUILD, summary, plan.findings));
    }
    print_warnings(&plan.findings);
    note(&mut report, format!("building `{}` in `{}`, with {} at once", plan.id, request.work, plan.recipe.jobs));
    let toolkit = machine.nvcc.as_ref().map(|nvcc| nvcc.toolkit.as_path());
    let built = source::build(&plan, &args.archs, &request.work, toolkit, &scene.places, &scene.env, &mut |event| {
        report.hear(event)
    })
    .map_err(|error| error.into_command(&plan))?;
    finish(&built, &plan, &mut report)
}

fn finish(built: &source::Built, plan: &Plan, report: &mut FetchReport) -> Result<u8, CommandError> {
    note(report, format!("`{}` is in the store: torch {}", plan.id, built.variant.facts.version));
    if built.warnings.iter().any(Finding::is_error) {
        let summary = format!("`{}` is not what was asked for", plan.id);
        return Err(CommandError::findings(exit_code::BUILD, summary, built.warnings.clone()));
    }
    print_warnings(&built.warnings);
    print_line(built.variant.root.as_str())?;
    Ok(exit_code::OK)
}

fn version(args: &BuildArgs, scene: &Scene<'_>) -> Wanted {
    if let Some(version) = &args.torch {
        return Wanted { version: version.clone(), origin: "given with `--torch`".to_owned() };
    }
    let pinned = scene
        .manifest(None)
        .and_then(|manifest| wanted::of_workspace(&cargo_program(scene.context), &manifest, &scene.env));
    pinned.unwrap_or_else(wanted::newest_known)
}

/// A folder of this machine is named from here, and used from the work folder.
fn source_of(text: &str, scene: &Scene<'_>) -> String {
    let folder = scene.context.cwd.join(text);
    if folder.is_dir() { folder.into_string() } else { text.to_owned() }
}

fn failed(error: source::RecipeError, plan: &Plan) -> CommandError {
    CommandError::new(exit_code::BUILD, format!("the recipe of `{}` was not written", plan.id)).because(error)
}

fn switch(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a switch is `NAME=VALUE`, such as `USE_NCCL=OFF`".to_owned()),
    }
}
