//! Which libtorch to take, of those that are on this machine.
//!
//! Asks in a fixed order: `--libtorch`, `LIBTORCH`, what the stores' pointer names, the stores, a Python that has torch.
//! Every candidate that is passed over is kept with its reason, so that nobody wonders why theirs was not taken. Must not
//! fetch.

use std::ffi::OsStr;
use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::VariantId;

use super::active::{self, ActiveError};
use super::inspect::{InspectError, inspect, peek, public_version};
use super::python;
use super::{Extent, Places, Stores, Variant};
use crate::env_vars::LIBTORCH;
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
    /// A pointer in a store, and what it names.
    Active(Utf8PathBuf, VariantId),
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
            Self::Active(file, id) => write!(f, "`{id}`, which `{file}` names"),
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

/// What was named cannot be taken: whoever names one does not want another in its place.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The one given with `--libtorch` does not fit.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The case that `FDL_LIBTORCH_CASE` names is not there.
    #[error(transparent)]
    Case(#[from] ActiveError),
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
/// Only for a libtorch, or a case of the stores' pointer, that was given by name.
pub fn find(search: &Search<'_>) -> Result<Outcome, FindError> {
    let mut outcome = Outcome::default();
    if let Some(root) = search.given {
        let root = camino::absolute_utf8(root).unwrap_or_else(|_| root.to_owned());
        return match take(search, &root, None) {
            Ok(variant) => Ok(Outcome { found: Some((variant, Origin::Given)), ..outcome }),
            Err(source) => Err(GivenError { root, source }.into()),
        };
    }
    if let Some(root) = variable(search.env) {
        outcome.try_one(search, &root, Origin::Variable);
    }
    if outcome.found.is_none() {
        outcome.follow_pointer(search)?;
    }
    // By name only: which are tried first. What each is, its files say.
    let mut stored = search.stores.list();
    let is_cpu = |id: &VariantId| id.as_str().split('/').nth(1).is_some_and(|name| name.starts_with("cpu"));
    stored.sort_by_key(|stored| is_cpu(&stored.id) != (search.extent == Extent::Cpu));
    for candidate in stored {
        if outcome.found.is_some() {
            return Ok(outcome);
        }
        outcome.try_one(search, &candidate.root, Origin::Store(candidate.id));
    }
    if outcome.found.is_none() {
        outcome.ask_python(search);
    }
    Ok(outcome)
}

/// The one that `LIBTORCH` names, whatever it is; nothing is found where it is not set.
pub fn of_variable(search: &Search<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(root) = variable(search.env) {
        outcome.try_one(search, &root, Origin::Variable);
    }
    outcome
}

/// The one that a store's pointer names; nothing is found where there is none.
///
/// # Errors
/// When a case was named and no store has it.
pub fn of_pointer(search: &Search<'_>) -> Result<Outcome, ActiveError> {
    let mut outcome = Outcome::default();
    outcome.follow_pointer(search)?;
    Ok(outcome)
}

/// Every variant of the stores that is of the version and for the CPU, and those that are not with their reasons.
pub fn stored(search: &Search<'_>) -> (Vec<Variant>, Vec<Skipped>) {
    let mut found = Vec::new();
    let mut skipped = Vec::new();
    for candidate in search.stores.list() {
        // An id means the first store that has it.
        if found.iter().any(|variant: &Variant| variant.id.as_ref() == Some(&candidate.id)) {
            continue;
        }
        match take(search, &candidate.root, Some(candidate.id.clone())) {
            Ok(variant) => found.push(variant),
            Err(reason) => {
                skipped.push(Skipped { origin: Origin::Store(candidate.id), root: candidate.root, reason });
            }
        }
    }
    (found, skipped)
}

/// The torch of a Python; asking one takes a process, so that this is for when nothing else is there.
pub fn of_python(search: &Search<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.ask_python(search);
    outcome
}

impl Outcome {
    fn try_one(&mut self, search: &Search<'_>, root: &Utf8Path, origin: Origin) {
        let id = match &origin {
            Origin::Store(id) | Origin::Active(_, id) => Some(id.clone()),
            _ => None,
        };
        match take(search, root, id) {
            Ok(variant) => self.found = Some((variant, origin)),
            Err(reason) => self.skipped.push(Skipped { origin, root: root.to_owned(), reason }),
        }
    }

    fn follow_pointer(&mut self, search: &Search<'_>) -> Result<(), ActiveError> {
        if let Some((root, origin)) = pointed(search, &mut self.notes)? {
            self.try_one(search, &root, origin);
        }
        Ok(())
    }

    fn ask_python(&mut self, search: &Search<'_>) {
        let mut notes = Vec::new();
        if let Some(torch) = python::torch(search.env, &mut |note| notes.push(note)) {
            self.try_one(search, &torch.root, Origin::Python(torch.python));
        }
        self.notes.append(&mut notes);
    }
}

/// The folder that `LIBTORCH` names, absolute.
fn variable(env: &Env) -> Option<Utf8PathBuf> {
    let root = env.get(OsStr::new(LIBTORCH)).filter(|value| !value.is_empty())?;
    let root = Utf8PathBuf::from(root.to_string_lossy().into_owned());
    Some(camino::absolute_utf8(&root).unwrap_or(root))
}

/// What the stores' pointer names. A plain pointer that cannot be followed is a note; a case that was named is an error.
fn pointed(search: &Search<'_>, notes: &mut Vec<String>) -> Result<Option<(Utf8PathBuf, Origin)>, ActiveError> {
    let case = active::case(search.env)?;
    let pointer = match active::read(search.stores, case.as_deref()) {
        Err(error) if case.is_none() => {
            notes.push(format!("{error}, and is passed over"));
            return Ok(None);
        }
        pointer => pointer?,
    };
    let Some(pointer) = pointer else { return Ok(None) };
    match search.stores.resolve(&pointer.id) {
        Some(root) => Ok(Some((root, Origin::Active(pointer.file, pointer.id)))),
        None => {
            notes.push(format!("`{}` names `{}`, which no store has", pointer.file, pointer.id));
            Ok(None)
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libtorch::stub;

    /// A tree that looks like a libtorch of this version and CPU.
    fn tree(root: &Utf8Path, version: &str, cpu_arch: &str) {
        fs_err::create_dir_all(root.join("lib")).unwrap();
        fs_err::create_dir_all(root.join("include/torch")).unwrap();
        fs_err::write(root.join("build-version"), version).unwrap();
        for name in ["libtorch_cpu.so", "libtorch.so", "libc10.so"] {
            fs_err::write(root.join("lib").join(name), stub::libtorch_so(cpu_arch).unwrap()).unwrap();
        }
    }

    struct Scene {
        _temp: tempfile::TempDir,
        base: Utf8PathBuf,
        places: Places,
    }

    impl Scene {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let base = Utf8Path::from_path(temp.path()).unwrap().join("mein Rechner");
            fs_err::create_dir(&base).unwrap();
            let places = Places { home: base.join("home"), cache: base.join("cache") };
            Self { _temp: temp, base, places }
        }

        fn find(&self, env: &Env, given: Option<&Utf8Path>) -> Result<Outcome, FindError> {
            let stores = Stores::new(Some(&self.base.join("project")), &self.places);
            find(&Search {
                version: Some("2.9.0"),
                cpu_arch: "x86_64",
                extent: Extent::Cpu,
                given,
                env,
                stores: &stores,
                places: &self.places,
            })
        }

        fn env(&self, pairs: &[(&str, &Utf8Path)]) -> Env {
            let path = [("PATH", self.base.join("bin"))];
            let path = path.iter().map(|(name, value)| ((*name).into(), value.as_str().into()));
            path.chain(pairs.iter().map(|(name, value)| ((*name).into(), value.as_str().into()))).collect()
        }

        fn python(&self, script: &str) {
            use std::os::unix::fs::PermissionsExt as _;
            let file = self.base.join("bin/python3");
            fs_err::create_dir_all(self.base.join("bin")).unwrap();
            fs_err::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn every_candidate_that_is_passed_over_is_named_with_its_reason() {
        let scene = Scene::new();
        let (old, home) = (scene.base.join("old one"), scene.places.store());
        tree(&old, "2.8.0+cpu", "x86_64");
        tree(&home.join("precompiled/cpu-2.9.0-aarch64"), "2.9.0+cpu", "aarch64");
        fs_err::create_dir_all(scene.base.join("project/libtorch/builds/half/lib")).unwrap();
        let torch = scene.base.join("site packages/torch");
        tree(&torch, "2.9.0", "x86_64");
        scene.python(&format!("echo '{torch}'; echo 2.9.0"));
        let outcome = scene.find(&scene.env(&[("LIBTORCH", &old)]), None).unwrap();
        let skipped: Vec<String> = outcome.skipped.iter().map(ToString::to_string).collect();
        assert_eq!(skipped.len(), 3, "{skipped:#?}");
        assert!(
            skipped[0].contains("`LIBTORCH`") && skipped[0].contains("torch 2.8.0+cpu, and 2.9.0"),
            "{}",
            skipped[0]
        );
        let half = skipped.iter().find(|line| line.contains("`builds/half`")).unwrap();
        assert!(half.contains("has no `lib/libtorch_cpu.so`"), "{half}");
        let other = skipped.iter().find(|line| line.contains("cpu-2.9.0-aarch64")).unwrap();
        assert!(other.contains("for aarch64, and x86_64"), "{other}");
        let (variant, origin) = outcome.found.unwrap();
        assert_eq!((variant.root, variant.id), (torch, None));
        assert_eq!(origin, Origin::Python(scene.base.join("bin/python3")));
    }

    #[test]
    fn the_order_is_given_then_variable_then_stores() {
        let scene = Scene::new();
        let (given, variable) = (scene.base.join("given"), scene.base.join("variable"));
        let shared = scene.places.store().join("precompiled/cpu-2.9.0");
        for root in [&given, &variable, &shared] {
            tree(root, "2.9.0", "x86_64");
        }
        let env = scene.env(&[("LIBTORCH", &variable)]);
        let root = |outcome: Outcome| outcome.found.unwrap().0.root;
        assert_eq!(root(scene.find(&env, Some(&given)).unwrap()), given);
        assert_eq!(root(scene.find(&env, None).unwrap()), variable);
        assert_eq!(root(scene.find(&scene.env(&[]), None).unwrap()), shared);
        let own = scene.base.join("project/libtorch/precompiled/cpu-2.9.0");
        tree(&own, "2.9.0", "x86_64");
        assert_eq!(root(scene.find(&scene.env(&[]), None).unwrap()), own);
    }

    #[test]
    fn one_that_was_named_and_does_not_fit_is_an_error_and_not_replaced() {
        let scene = Scene::new();
        tree(&scene.places.store().join("precompiled/cpu-2.9.0"), "2.9.0", "x86_64");
        let old = scene.base.join("old");
        tree(&old, "2.8.0", "x86_64");
        let given = |root: &Utf8Path| match scene.find(&scene.env(&[]), Some(root)) {
            Err(FindError::Given(error)) => error.source,
            other => panic!("{other:?}"),
        };
        assert!(matches!(given(&old), Unfit::Version { .. }));
        let inside = given(&old.join("lib")).to_string();
        assert!(inside.contains(&format!("the libtorch is `{old}`")), "{inside}");
    }

    #[test]
    fn what_the_pointer_names_comes_before_the_other_variants_where_it_fits() {
        let scene = Scene::new();
        let store = scene.places.store();
        tree(&store.join("precompiled/cpu-2.9.0"), "2.9.0", "x86_64");
        tree(&store.join("mine/z"), "2.9.0", "x86_64");
        tree(&store.join("mine/old"), "2.8.0", "x86_64");
        let point = |case: Option<&str>, id: &str| active::write(&store, case, &id.parse().unwrap()).unwrap();
        let file = point(None, "mine/z");
        let (variant, origin) = scene.find(&scene.env(&[]), None).unwrap().found.unwrap();
        assert_eq!(variant.id.unwrap().as_str(), "mine/z");
        assert_eq!(origin.to_string(), format!("`mine/z`, which `{file}` names"));

        point(None, "mine/old");
        let outcome = scene.find(&scene.env(&[]), None).unwrap();
        assert!(outcome.skipped[0].to_string().contains("torch 2.8.0"), "{:?}", outcome.skipped);
        assert_eq!(outcome.found.unwrap().0.id.unwrap().as_str(), "precompiled/cpu-2.9.0");
        point(None, "mine/gone");
        let outcome = scene.find(&scene.env(&[]), None).unwrap();
        assert!(outcome.notes[0].contains("names `mine/gone`, which no store has"), "{:?}", outcome.notes);

        let case = scene.env(&[("FDL_LIBTORCH_CASE", "gpu".into())]);
        assert!(matches!(scene.find(&case, None), Err(FindError::Case(ActiveError::NoCase { .. }))));
        point(Some("gpu"), "mine/z");
        assert_eq!(scene.find(&case, None).unwrap().found.unwrap().0.id.unwrap().as_str(), "mine/z");
    }

    #[test]
    fn a_python_that_fails_is_a_note_and_no_end() {
        let scene = Scene::new();
        scene.python("echo 'ImportError: broken' >&2; exit 3");
        let outcome = scene.find(&scene.env(&[]), None).unwrap();
        assert!(outcome.found.is_none());
        assert!(outcome.notes[0].contains("ImportError: broken"), "{:?}", outcome.notes);
    }
}
