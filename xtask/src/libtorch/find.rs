//! Which libtorch to take, of those that are on this machine.
//!
//! Asks in a fixed order: `--libtorch`, `LIBTORCH`, the stores, a Python that has torch. Every candidate that is passed
//! over is kept with its reason, so that nobody wonders why theirs was not taken. Must not fetch.

use std::ffi::OsStr;
use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::VariantId;

use super::inspect::{InspectError, inspect, peek, public_version};
use super::python;
use super::{Extent, Places, Stores, Variant};
use crate::toolchain::Env;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    /// The version that the program needs, without a local part; none takes any.
    pub version: Option<&'a str>,
    /// As in a target triple.
    pub cpu_arch: &'a str,
    /// What a store's variants are preferred for; one of the other sort is taken when it is all there is.
    pub extent: Extent,
    /// `--libtorch DIR`.
    pub given: Option<&'a Utf8Path>,
    /// The environment: `LIBTORCH`, `PATH`, `VIRTUAL_ENV`.
    pub env: &'a Env,
    /// The stores.
    pub stores: &'a Stores,
    /// For cached facts.
    pub places: &'a Places,
}

/// Where a candidate came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `--libtorch DIR`.
    Given,
    /// The variable `LIBTORCH`.
    Variable,
    /// A store.
    Store(VariantId),
    /// This Python's torch.
    Python(Utf8PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("`--libtorch`"),
            Self::Variable => f.write_str("`LIBTORCH`"),
            Self::Store(id) => write!(f, "the store's `{id}`"),
            Self::Python(python) => write!(f, "the torch of `{python}`"),
        }
    }
}

/// A candidate that was passed over.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// Where it came from.
    pub origin: Origin,
    /// Its folder.
    pub root: Utf8PathBuf,
    /// Why it does not fit.
    pub reason: Unfit,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "skipped {} (`{}`): {}", self.origin, self.root, self.reason)
    }
}

/// Why a candidate does not fit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unfit {
    /// It is of another version.
    #[error("it is torch {found}, and {wanted} is needed")]
    Version {
        /// What it is.
        found: String,
        /// What the program needs.
        wanted: String,
    },
    /// It is for another CPU.
    #[error("it is for {found}, and {wanted} is needed")]
    Arch {
        /// What it is for.
        found: String,
        /// What the target is.
        wanted: String,
    },
    /// It is no libtorch that can be used.
    #[error("{0}")]
    Broken(String),
}

/// The one that was given by name does not fit.
#[derive(Debug, thiserror::Error)]
#[error("the libtorch given with `--libtorch` cannot be used: `{root}`")]
pub struct GivenError {
    /// The folder.
    pub root: Utf8PathBuf,
    /// Why.
    #[source]
    pub source: Unfit,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first that fits, and where it came from.
    pub found: Option<(Variant, Origin)>,
    /// Those before it that do not, in the order in which they were asked.
    pub skipped: Vec<Skipped>,
    /// What could not be asked at all.
    pub notes: Vec<String>,
}

/// Searches.
///
/// # Errors
/// Only for a libtorch given by name: whoever names one does not want another in its place.
pub fn find(search: &Search<'_>) -> Result<Outcome, GivenError> {
    let mut outcome = Outcome::default();
    if let Some(root) = search.given {
        let root = camino::absolute_utf8(root).unwrap_or_else(|_| root.to_owned());
        return match take(search, &root, None) {
            Ok(variant) => Ok(Outcome { found: Some((variant, Origin::Given)), ..outcome }),
            Err(source) => Err(GivenError { root, source }),
        };
    }
    let try_one = |outcome: &mut Outcome, root: &Utf8Path, origin: Origin| {
        let id = if let Origin::Store(id) = &origin { Some(id.clone()) } else { None };
        match take(search, root, id) {
            Ok(variant) => outcome.found = Some((variant, origin)),
            Err(reason) => outcome.skipped.push(Skipped { origin, root: root.to_owned(), reason }),
        }
        outcome.found.is_some()
    };
    if let Some(root) = search.env.get(OsStr::new("LIBTORCH")).filter(|value| !value.is_empty()) {
        let root = Utf8PathBuf::from(root.to_string_lossy().into_owned());
        let root = camino::absolute_utf8(&root).unwrap_or(root);
        if try_one(&mut outcome, &root, Origin::Variable) {
            return Ok(outcome);
        }
    }
    // By name only: which are tried first. What each is, its files say.
    let mut stored = search.stores.list();
    let is_cpu = |id: &VariantId| id.as_str().split('/').nth(1).is_some_and(|name| name.starts_with("cpu"));
    stored.sort_by_key(|stored| is_cpu(&stored.id) != (search.extent == Extent::Cpu));
    for candidate in stored {
        if try_one(&mut outcome, &candidate.root, Origin::Store(candidate.id)) {
            return Ok(outcome);
        }
    }
    let mut notes = Vec::new();
    if let Some(torch) = python::torch(search.env, &mut |note| notes.push(note)) {
        try_one(&mut outcome, &torch.root, Origin::Python(torch.python));
    }
    outcome.notes = notes;
    Ok(outcome)
}

/// Whether this machine can run CUDA programs: the kernel's driver or the driver's library is there.
pub fn has_cuda() -> bool {
    const FOLDERS: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    Utf8Path::new("/proc/driver/nvidia").exists()
        || FOLDERS.iter().any(|folder| Utf8Path::new(folder).join("libcuda.so.1").exists())
}

fn take(search: &Search<'_>, root: &Utf8Path, id: Option<VariantId>) -> Result<Variant, Unfit> {
    let (version, cpu_arch) = peek(root).map_err(|error| broken(&error))?;
    if let Some(wanted) = search.version.filter(|wanted| *wanted != public_version(&version)) {
        return Err(Unfit::Version { found: version, wanted: wanted.to_owned() });
    }
    if cpu_arch != search.cpu_arch {
        return Err(Unfit::Arch { found: cpu_arch, wanted: search.cpu_arch.to_owned() });
    }
    let facts = inspect(root, Some(&search.places.facts())).map_err(|error| broken(&error))?;
    Ok(Variant { id, root: root.to_owned(), facts })
}

fn broken(error: &InspectError) -> Unfit {
    use std::error::Error as _;
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Unfit::Broken(format!("{error}{cause}"))
}
