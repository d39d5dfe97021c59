//! `demo`: the main job on a real libtorch, on this machine alone.
//!
//! It is `libtorch fetch`, `build` and `launch` on the project in `fixtures/projects/tch-train`, with words around them.
//! Must not do anything of its own that those verbs cannot do: what the demo shows is what a user gets.

use std::ffi::{OsStr, OsString};

use camino::{Utf8Path, Utf8PathBuf};
use clap::Parser;
use torchlift::env_vars;
use torchlift_schema::exit_code;

use super::{Context, build, launch};
use crate::checkout;
use crate::cluster::FILE_NAME;
use crate::error::CommandError;
use crate::libtorch::find::has_cuda;
use crate::libtorch::{Extent, Obtain, Places, Stores, obtain, wanted};
use crate::report::fetch::FetchReport;
use crate::report::say;
use crate::toolchain::{cargo_program, inherited};

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// A libtorch to take before all others
    #[arg(long, value_name = "DIR")]
    libtorch: Option<Utf8PathBuf>,
    /// Arguments for the trainer, such as `--epochs 20`; `-- --help` lists them
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// The command lines that the demo gives to the other verbs.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
enum Line {
    Build(Box<build::BuildArgs>),
    Launch(Box<launch::LaunchArgs>),
}

/// Runs it.
pub fn run(args: &DemoArgs, context: &Context) -> Result<u8, CommandError> {
    let root = checkout::root(&context.invocation, "demo")?;
    let project = root.join("fixtures/projects/tch-train");
    say("Torchlift demo: one tch program, two hosts on this machine, two ranks on each\n");

    say("1/3 libtorch");
    let libtorch = get_libtorch(args, &project, context)?;

    // The demo runs in its project, as a user would in theirs.
    let context = Context { cwd: project.clone(), ..context.clone() };
    say("\n2/3 build: once per distinct kind of host, then one envelope a host");
    let shared = |verb: &str| {
        let mut line: Vec<OsString> = vec![verb.into(), "--locked".into()];
        if args.libtorch.is_some() {
            line.extend(["--libtorch".into(), libtorch.as_str().into()]);
        }
        line
    };
    let code = run_line(shared("build"), &context)?;
    if code != exit_code::OK {
        return Ok(code);
    }

    say("\n3/3 launch: four ranks, started by what the envelopes say");
    let mut line = shared("launch");
    line.extend(["--no-build".into(), "--".into()]);
    line.extend(args.args.iter().cloned());
    let code = run_line(line, &context)?;
    if code == exit_code::OK {
        say(&closing(&project, &context));
    }
    Ok(code)
}

fn run_line(line: Vec<OsString>, context: &Context) -> Result<u8, CommandError> {
    let parsed = Line::try_parse_from(line)
        .map_err(|error| CommandError::new(exit_code::USAGE, "the demo's own command line is wrong").because(error))?;
    match parsed {
        Line::Build(args) => build::run(&args, context),
        Line::Launch(args) => launch::run(&args, context),
    }
}

/// Finds or fetches the libtorch that the trainer's locked `torch-sys` pins; gives its folder.
fn get_libtorch(args: &DemoArgs, project: &Utf8Path, context: &Context) -> Result<Utf8PathBuf, CommandError> {
    let env = inherited(context);
    let places = Places::from_env(&env).map_err(|error| {
        CommandError::new(exit_code::USAGE, error.to_string()).hint("set `TORCHLIFT_HOME` to a folder of your own")
    })?;
    let cargo = cargo_program(context);
    let wanted = wanted::of_workspace(&cargo, &project.join("Cargo.toml"), &env).unwrap_or_else(wanted::newest_known);
    let given = args.libtorch.as_ref().map(|folder| context.cwd.join(folder));
    let mirror = env.get(OsStr::new(env_vars::TORCHLIFT_LIBTORCH_URL)).map(|url| url.to_string_lossy().into_owned());
    let mut report = FetchReport::new();
    let request = Obtain {
        wanted: &wanted,
        cpu_arch: std::env::consts::ARCH,
        extent: if has_cuda() { Extent::Whole } else { Extent::Cpu },
        given: given.as_deref(),
        mirror: mirror.as_deref(),
        env: &env,
        stores: &Stores::new(Some(project), &places),
        places: &places,
    };
    let variant = obtain(&request, &mut |event| report.hear(event))?;
    Ok(variant.root)
}

fn closing(project: &Utf8Path, context: &Context) -> String {
    let typed = &context.invocation;
    format!(
        "\nWhat happened: one cargo run served both hosts, each host got an envelope that names its binary and libraries\n\
         with their digests, all of it was checked again before the first rank started, and all ranks ended with the same weights.\n\n\
         Look at   {project}/{FILE_NAME}\n          \
         {project}/target/cluster/node-a/envelope.json\n          \
         {project}/.torchlift/runs/\n\
         Next      write a {FILE_NAME} for your own project (docs/cluster-file.md), then `{typed} build` and `{typed} launch`"
    )
}
