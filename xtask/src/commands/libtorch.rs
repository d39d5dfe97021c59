//! `libtorch`: find, fetch and list variants.

use std::ffi::OsStr;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars;
use torchlift_schema::exit_code;

use super::Context;
use crate::error::CommandError;
use crate::libtorch::fetch::Request;
use crate::libtorch::find::has_cuda;
use crate::libtorch::{Extent, Places, Search, Stores, Wanted, fetch, find, inspect, record, wanted};
use crate::report::fetch::FetchReport;
use crate::report::{print_data, print_json};
use crate::toolchain::{Env, cargo_program, inherited};

/// Arguments of `libtorch`.
#[derive(Debug, clap::Args)]
pub struct LibtorchArgs {
    #[command(subcommand)]
    verb: LibtorchVerb,
}

#[derive(Debug, clap::Subcommand)]
enum LibtorchVerb {
    /// Get the libtorch that the program needs into the store, and print its folder
    Fetch(FetchArgs),
    /// List the variants of the stores
    List(ListArgs),
    /// Print the folder of the libtorch that would be taken, and say why others would not
    Path(PathArgs),
}

/// What says which libtorch is meant.
#[derive(Debug, clap::Args)]
struct WantedArgs {
    /// Torch version [default: the one that the workspace's locked `torch-sys` pins]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    torch: Option<String>,
    /// CPU architecture as in a target triple
    #[arg(long, value_name = "ARCH", value_parser = ["x86_64", "aarch64"], default_value = std::env::consts::ARCH)]
    arch: String,
    /// For a CPU only, whatever this machine has
    #[arg(long, conflicts_with = "gpu")]
    cpu: bool,
    /// With all GPU libraries, whatever this machine has
    #[arg(long)]
    gpu: bool,
    /// The `Cargo.toml` of the program's workspace [default: found from the working directory upward]
    #[arg(long, value_name = "PATH")]
    manifest_path: Option<Utf8PathBuf>,
}

#[derive(Debug, clap::Args)]
struct FetchArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct PathArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// A libtorch to take before all others
    #[arg(long, value_name = "DIR")]
    libtorch: Option<Utf8PathBuf>,
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
    match &args.verb {
        LibtorchVerb::Fetch(args) => run_fetch(args, context, &env, &places),
        LibtorchVerb::List(args) => run_list(args, context, &places),
        LibtorchVerb::Path(args) => run_path(args, context, &env, &places),
    }
}

fn run_fetch(args: &FetchArgs, context: &Context, env: &Env, places: &Places) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let wanted = wanted_version(&args.wanted, context, env);
    note(&mut report, format!("libtorch {} for {} ({})", wanted.version, args.wanted.arch, wanted.origin));
    let mirror = env.get(OsStr::new(env_vars::TORCHLIFT_LIBTORCH_URL)).map(|url| url.to_string_lossy().into_owned());
    let request =
        Request { version: wanted.version, cpu_arch: args.wanted.arch.clone(), extent: extent(&args.wanted), mirror };
    let variant = fetch(&request, places, env, &mut |event| report.hear(event))?;
    if let Some(id) = &variant.id {
        note(&mut report, format!("`{id}` is in the store: torch {}", variant.facts.version));
    }
    print_line(variant.root.as_str())?;
    Ok(exit_code::OK)
}

fn run_path(args: &PathArgs, context: &Context, env: &Env, places: &Places) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let wanted = wanted_version(&args.wanted, context, env);
    note(&mut report, format!("libtorch {} for {} ({})", wanted.version, args.wanted.arch, wanted.origin));
    let stores = Stores::new(workspace_of(args.wanted.manifest_path.as_deref(), context).as_deref(), places);
    let given = args.libtorch.as_ref().map(|path| context.cwd.join(path));
    let search = Search {
        version: Some(&wanted.version),
        cpu_arch: &args.wanted.arch,
        extent: extent(&args.wanted),
        given: given.as_deref(),
        env,
        stores: &stores,
        places,
    };
    let outcome = find(&search).map_err(crate::libtorch::ObtainError::from)?;
    for line in outcome.notes.into_iter().chain(outcome.skipped.iter().map(ToString::to_string)) {
        note(&mut report, line);
    }
    let Some((variant, origin)) = outcome.found else {
        let message = format!("no libtorch {} for {} is on this machine", wanted.version, args.wanted.arch);
        return Err(CommandError::new(exit_code::BUILD, message)
            .hint(format!("`{} libtorch fetch` gets one", context.invocation)));
    };
    note(&mut report, format!("torch {} from {origin}", variant.facts.version));
    print_line(variant.root.as_str())?;
    Ok(exit_code::OK)
}

fn run_list(args: &ListArgs, context: &Context, places: &Places) -> Result<u8, CommandError> {
    #[derive(serde::Serialize)]
    struct Row {
        id: String,
        root: Utf8PathBuf,
        #[serde(skip_serializing_if = "Option::is_none")]
        facts: Option<crate::libtorch::VariantFacts>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        fetched: Option<record::FetchRecord>,
    }
    let stores = Stores::new(workspace_of(None, context).as_deref(), places);
    let rows: Vec<Row> = stores
        .list()
        .into_iter()
        .map(|stored| {
            let facts = inspect(&stored.root, Some(&places.facts()));
            let error = facts.as_ref().err().map(ToString::to_string);
            let fetched = record::read(&stored.root);
            Row { id: stored.id.to_string(), root: stored.root, facts: facts.ok(), error, fetched }
        })
        .collect();
    if args.format == Format::Json {
        print_json(&serde_json::json!({ "version": 1, "variants": rows }))?;
        return Ok(exit_code::OK);
    }
    for row in &rows {
        let what = match (&row.facts, &row.error) {
            (Some(facts), _) => format!("torch {}, {}", facts.version, facts.cpu_arch),
            (None, error) => format!("unusable: {}", error.as_deref().unwrap_or_default()),
        };
        print_line(&format!("{}\t{what}\t{}", row.id, row.root))?;
    }
    if rows.is_empty() {
        note(&mut FetchReport::new(), format!("no variant is in {}", join(&stores.roots)));
    }
    Ok(exit_code::OK)
}

fn wanted_version(args: &WantedArgs, context: &Context, env: &Env) -> Wanted {
    if let Some(version) = &args.torch {
        return Wanted { version: version.clone(), origin: "given with `--torch`".to_owned() };
    }
    manifest_of(args.manifest_path.as_deref(), context)
        .and_then(|manifest| wanted::of_workspace(&cargo_program(context), &manifest, env))
        .unwrap_or_else(wanted::newest_known)
}

fn extent(args: &WantedArgs) -> Extent {
    // What this machine has says nothing about a machine with another CPU.
    let is_here = args.arch == std::env::consts::ARCH;
    if args.gpu || (!args.cpu && is_here && has_cuda()) { Extent::Whole } else { Extent::Cpu }
}

fn manifest_of(given: Option<&Utf8Path>, context: &Context) -> Option<Utf8PathBuf> {
    match given {
        Some(path) => Some(context.cwd.join(path)),
        None => context.cwd.ancestors().map(|folder| folder.join("Cargo.toml")).find(|file| file.is_file()),
    }
}

/// The folder of the workspace's `Cargo.lock`, which is its root; the manifest's own folder before there is one.
fn workspace_of(given: Option<&Utf8Path>, context: &Context) -> Option<Utf8PathBuf> {
    let manifest = manifest_of(given, context)?;
    let folder = manifest.parent()?;
    let root = folder.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    Some(root.unwrap_or(folder).to_owned())
}

fn parse_version(text: &str) -> Result<String, String> {
    let is_version = text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    is_version.then(|| text.to_owned()).ok_or_else(|| "a torch version is three numbers, such as `2.9.0`".to_owned())
}

fn join(roots: &[Utf8PathBuf]) -> String {
    roots.iter().map(|root| format!("`{root}`")).collect::<Vec<_>>().join(" or ")
}

fn note(report: &mut FetchReport, text: String) {
    report.hear(crate::libtorch::FetchEvent::Note(text));
}

fn print_line(text: &str) -> Result<(), CommandError> {
    print_data(&format!("{text}\n"))
}
