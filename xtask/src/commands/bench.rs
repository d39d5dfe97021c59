//! `bench`: Torchlift's own figures, printed beside their yardsticks.

use std::process::Command;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;

use super::Context;
use crate::bench::{self, Bound, Figure};
use crate::checkout;
use crate::error::CommandError;
use crate::libtorch::Places;
use crate::report::{print_data, print_json, say};
use crate::toolchain;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// How to print the figures
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Build from nothing for few and for many hosts too: half an hour
    #[arg(long)]
    cold: bool,
    /// End with 1 when a figure is over its bound
    #[arg(long)]
    check: bool,
}

/// How to print the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line each, for people
    #[default]
    Text,
    /// One JSON array
    Json,
}

/// Runs it.
pub fn run(args: &BenchArgs, context: &Context) -> Result<u8, CommandError> {
    let root = checkout::root(&context.invocation, "bench")?;
    let tools = build_release(&root, context)?;
    let scratch = tempfile::tempdir().map_err(|error| {
        CommandError::new(exit_code::BUILD, "cannot make a temporary folder").because(error).hint("set TMPDIR")
    })?;
    let folder = Utf8PathBuf::from(scratch.path().to_string_lossy().into_owned());
    let xtask = tools.join("xtask");
    let mut shown = Shown { figures: Vec::new(), format: args.format };
    shown.add(bench::launch::figures(&tools.join("torchlift"))?)?;
    shown.add(bench::serve::figures(&tools.join("torchlift"))?)?;
    shown.add(bench::client::figures(&tools.join("torchlift"), &tools.join("examples/client"))?)?;
    // Early, since it makes what the figure of a build needs: a libtorch and a build of the trainer.
    shown.add(bench::demo::figures(&xtask)?)?;
    shown.add(bench::build::figures(&xtask, &root, context)?)?;
    shown.add(bench::doctor::figures(&xtask, &root.join("fixtures/projects/tch-train"), &folder)?)?;
    let hosts = bench::hosts::Project::copy(&xtask, &root, &folder)?;
    shown.add(hosts.warm(context)?)?;
    match Places::from_env(&context.env).ok().as_ref().and_then(bench::gpu_code::Subject::find) {
        Some(subject) => {
            shown.add(bench::gpu_code::figures(&tools.join("examples/gpu_code"), &subject)?)?;
            shown.add(bench::tree::figures(&xtask, &subject, &folder)?)?;
            shown.add(bench::digest::figures(&tools.join("examples/digests"), &subject)?)?;
        }
        None => say(
            "the GPU code of `libtorch_cuda.so` is not measured: `cargo xtask test` fetches a libtorch that has some",
        ),
    }
    if args.cold {
        shown.add(hosts.cold(context)?)?;
    }
    if args.format == Format::Json {
        print_json(&shown.figures)?;
    }
    if args.check && !shown.figures.iter().all(Figure::holds) {
        return Err(CommandError::new(1, "a figure is over its bound"));
    }
    Ok(exit_code::OK)
}

/// Builds both tools and the examples that it measures optimised; gives the folder that they lie in.
fn build_release(root: &Utf8Path, context: &Context) -> Result<Utf8PathBuf, CommandError> {
    let env = toolchain::inherited(context);
    let target = root.join("target/bench");
    let status = Command::new(toolchain::cargo_program(context))
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "torchlift",
            "--package",
            "torchlift-xtask",
            "--bins",
            "--example",
            "gpu_code",
            "--example",
            "digests",
            "--example",
            "client",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(root)
        .env_clear()
        .envs(&env)
        .status()
        .map_err(|error| CommandError::new(exit_code::BUILD, "cannot run cargo").because(error))?;
    if status.success() {
        Ok(target.join("release"))
    } else {
        Err(CommandError::new(exit_code::BUILD, "the release build of Torchlift failed"))
    }
}

/// The figures so far. For people each is shown as soon as it is measured, so that one that fails later costs none.
struct Shown {
    figures: Vec<Figure>,
    format: Format,
}

impl Shown {
    fn add(&mut self, figures: Vec<Figure>) -> Result<(), CommandError> {
        if self.format == Format::Text {
            print_data(&figures.iter().map(|figure| row(figure) + "\n").collect::<String>())?;
        }
        self.figures.extend(figures);
        Ok(())
    }
}

fn row(figure: &Figure) -> String {
    let unit = figure.unit;
    let beside = match &figure.yardstick {
        Some((name, value)) => format!(", {name}: {value:.1} {unit}"),
        None => String::new(),
    };
    let measured = figure.measured().unwrap_or(f64::NAN);
    let bound = match figure.bound {
        Bound::Absolute(limit) => match &figure.yardstick {
            Some((_, value)) => format!("at most {limit} {unit}; ratio {:.3}", figure.ours / value),
            None => format!("at most {limit} {unit}"),
        },
        Bound::Ratio(limit) => format!("ratio {measured:.2}, at most {limit}"),
        Bound::Above(limit) => format!("{measured:.1} {unit} above, at most {limit}"),
    };
    let verdict = if figure.holds() { "ok  " } else { "OVER" };
    format!("{verdict} {}: {:.1} {unit}{beside} ({bound})", figure.name, figure.ours)
}
