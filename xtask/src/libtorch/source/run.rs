//! Runs a recipe, adds what it made to the store, and holds it against what was asked for.

use std::io;
use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::gpu::GpuCode;
use torchlift_schema::{Accelerator, Finding, Place, exit_code};

use super::recipe::{RecipeError, SCRIPT};
use super::{Archs, Plan};
use crate::error::CommandError;
use crate::libtorch::add::{self, AddError};
use crate::libtorch::arch::{self, Making};
use crate::libtorch::event::{FetchEvent, Listener};
use crate::libtorch::{Places, Variant};
use crate::toolchain::Env;

/// A variant that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// The variant.
    pub variant: Variant,
    /// What is doubtful about it.
    pub warnings: Vec<Finding>,
}

/// Why there is none. What was done so far stays in the work folder.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The work folder cannot be written.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// No shell could be started.
    #[error("`sh` cannot be run")]
    Shell(#[source] io::Error),
    /// A step failed.
    #[error("step `{step}` failed ({how})")]
    Step {
        /// Its name.
        step: String,
        /// `exit code 2`, `signal 9`.
        how: String,
        /// The work folder.
        work: Utf8PathBuf,
    },
    /// What was made is not taken.
    #[error("what was built is not taken")]
    Add(#[from] AddError),
}

/// Runs the plan's recipe in `work`; goes on where an earlier run stopped.
///
/// # Errors
/// When a step fails, or what was made is no libtorch. Everything that was done stays.
pub fn build(
    plan: &Plan,
    archs: &Archs,
    work: &Utf8Path,
    toolkit: Option<&Utf8Path>,
    places: &Places,
    env: &Env,
    listen: Listener<'_>,
) -> Result<Built, BuildError> {
    plan.recipe.write(work)?;
    let mut command = Command::new("sh");
    // Data goes to stdout when all is done, and what tools say is for people.
    command.arg(work.join(SCRIPT)).current_dir(work).env_clear().envs(env).stdin(Stdio::null());
    let status = command.stdout(io::stderr()).status().map_err(BuildError::Shell)?;
    if !status.success() {
        use std::os::unix::process::ExitStatusExt as _;
        let step = fs_err::read_to_string(work.join("stamps/.at")).unwrap_or_default().trim().to_owned();
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        return Err(BuildError::Step { step, how, work: work.to_owned() });
    }
    listen(FetchEvent::Note("everything is built; adding it to the store".to_owned()));
    let libraries: Vec<Utf8PathBuf> = toolkit.map(toolkit_folders).unwrap_or_default();
    let request = add::Request {
        path: &work.join("install"),
        with: &[],
        libraries: &libraries,
        id: Some(&plan.id),
        sha256: None,
        making: Some(Making::Compiled),
    };
    let added = add::add(&request, places, listen)?;
    let mut warnings = added.warnings;
    warnings.extend(difference(&added.variant, archs));
    Ok(Built { variant: added.variant, warnings })
}

/// Where a CUDA toolkit keeps its libraries.
fn toolkit_folders(toolkit: &Utf8Path) -> Vec<Utf8PathBuf> {
    let targets = toolkit.join("targets").read_dir_utf8().into_iter().flatten().flatten();
    let targets = targets.map(|entry| entry.path().join("lib"));
    [toolkit.join("lib64"), toolkit.join("lib")].into_iter().chain(targets).filter(|path| path.is_dir()).collect()
}

/// What was asked for and is not in the libraries, and the other way round.
fn difference(variant: &Variant, archs: &Archs) -> Option<Finding> {
    let place = || Place::file(variant.root.as_str());
    let again = "look at what the step `configure` said of CUDA, remove the variant, and build again";
    if variant.facts.accelerator == Accelerator::Cpu {
        let message = format!("it has no `libtorch_cuda.so`, and code for {archs} was asked for");
        return Some(Finding::error("source-archs-differ", place(), message).remedy(again));
    }
    let found = arch::gpu_codes(&variant.facts).unwrap_or_default();
    let wanted = archs.codes();
    let list = |codes: Vec<&GpuCode>| codes.iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(" ");
    let (missing, more) = (list(wanted.difference(&found).collect()), list(found.difference(&wanted).collect()));
    if !missing.is_empty() {
        let found = list(found.iter().collect());
        let message = format!("it has no code for {missing}, and has it for {found}");
        return Some(Finding::error("source-archs-differ", place(), message).remedy(again));
    }
    // torch's own rules add some: kernels that exist for one architecture only.
    let message = format!("it has code for {more} too, which nobody asked for");
    (!more.is_empty()).then(|| {
        Finding::warning("source-archs-differ", place(), message)
            .remedy("nothing has to be done: torch's build adds some for single kernels, and they only cost room")
    })
}

impl BuildError {
    /// The command's error.
    pub fn into_command(self, plan: &Plan) -> CommandError {
        let failure = CommandError::new(exit_code::BUILD, format!("`{}` was not built", plan.id));
        match self {
            Self::Step { step, how, work } => {
                let hint = format!(
                    "what it said is above; mend it and run the same command, or `{work}/{SCRIPT}`: it goes on at `{step}`"
                );
                failure.because(Self::Step { step, how, work }).hint(hint)
            }
            Self::Add(error) => error.into_command(Utf8Path::new(plan.id.as_str())),
            other => failure.because(other),
        }
    }
}
