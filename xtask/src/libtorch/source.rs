//! A libtorch from source, for GPU architectures that no published build covers together.
//!
//! [`plan()`] makes a recipe of what is asked and what this machine has; the recipe is a script that goes on where it
//! stopped, on this machine or on another. [`build()`] runs it, adds what it made to the store, and holds what that has
//! code for against what was asked for.

pub mod archs;
pub mod machine;
pub mod needs;
mod recipe;
mod run;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Finding, VariantId};

pub use archs::{Archs, ArchsError};
pub use machine::Machine;
pub use recipe::{MANIFEST, Recipe, RecipeError, SCRIPT};
pub use run::{BuildError, Built, build};

use super::store::built_id;

/// Where torch's source lies when nobody names another place.
pub const SOURCE: &str = "https://github.com/pytorch/pytorch.git";

/// What to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// GPU architectures.
    pub archs: Archs,
    /// Torch version without a local part; the source's tag is `v<version>`.
    pub version: String,
    /// The variant's id; none takes `builds/<archs>-<version>`.
    pub id: Option<VariantId>,
    /// A git repository: an address, or a folder of this machine.
    pub source: String,
    /// Where everything is done, absolute.
    pub work: Utf8PathBuf,
    /// Compilers at once; none takes as many as there are cores and memory for.
    pub jobs: Option<usize>,
    /// Switches of torch's build, such as `USE_NCCL` and `OFF`, after our own.
    pub switches: Vec<(String, String)>,
}

/// What would be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The variant's id.
    pub id: VariantId,
    /// How.
    pub recipe: Recipe,
    /// What stands in the way, and what is doubtful.
    pub findings: Vec<Finding>,
}

/// A version that cannot be part of a variant's id.
#[derive(Debug, thiserror::Error)]
#[error("torch `{version}` for `{archs}` gives no variant id")]
pub struct NoIdError {
    version: String,
    archs: String,
}

/// Plans: pure but for what `machine` read before.
///
/// # Errors
/// When the archs and the version make no id.
pub fn plan(request: &Request, machine: &Machine, stored: Option<&Utf8Path>) -> Result<Plan, NoIdError> {
    let default = || built_id(request.archs.iter(), &request.version, std::env::consts::ARCH);
    let id = request
        .id
        .clone()
        .or_else(default)
        .ok_or_else(|| NoIdError { version: request.version.clone(), archs: request.archs.to_string() })?;
    let jobs = request.jobs.unwrap_or_else(|| needs::jobs(machine)).max(1);
    let mut findings = needs::check(machine, &request.archs, jobs, request.work.as_str());
    if let Some(folder) = stored {
        let message = format!("the store has a `{id}` already");
        let place = torchlift_schema::Place::file(folder.as_str());
        findings.push(
            Finding::error("source-id-taken", place, message)
                .remedy("give the new one another id with `--name`, or remove that one first"),
        );
    }
    let recipe = Recipe::new(request, machine, &id, jobs);
    Ok(Plan { id, recipe, findings })
}
