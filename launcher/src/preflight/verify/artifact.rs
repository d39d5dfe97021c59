//! What a build says of its binary, and whether the binary is right for its variant.
//!
//! For a host that is another machine only what travels there can be looked at: the binary and its variant. What the loader
//! would take from that host's own folders is left out of the closure, named, and never judged.

use std::path::{Path, PathBuf};

use torchlift_schema::{Artifact, Finding, LibraryFile, Place};

use super::{abi, library};
use crate::preflight::code;
use crate::preflight::digest::{DigestCache, DigestError, FileDigest};
use crate::preflight::elf::{ElfError, ElfFacts};
use crate::preflight::loader::{self, Closure, HostLibraries, How, LibraryPath, Loaded, Missing, MissingReason};
use crate::preflight::symbols;

/// The libraries by which a libtorch reaches GPUs, with the accelerator's name. A program refers to no symbol of
/// them, so that linkers drop them.
const ACCELERATORS: &[(&str, &str, &str)] =
    &[("libtorch_cuda.so", "torch_cuda", "CUDA"), ("libtorch_hip.so", "torch_hip", "ROCm")];

/// A binary to look at.
#[derive(Clone, Copy, Debug)]
pub struct ArtifactQuestion<'a> {
    /// The binary.
    pub binary: &'a Path,
    /// The library path that it is going to have.
    pub library_path: &'a LibraryPath,
    /// The `lib` folder of the variant that it was built against.
    pub variant_lib: Option<&'a Path>,
    /// The folder that it is going to run in, absolute.
    pub cwd: &'a Path,
    /// Whether it is going to run on another machine than this one: then no folder of this one's system says anything.
    pub is_elsewhere: bool,
}

/// What an envelope says of a binary and its libraries, and what is wrong with them.
#[derive(Debug)]
pub struct Inspection {
    /// The binary's own facts.
    pub facts: ElfFacts,
    /// Its size and digest.
    pub digest: FileDigest,
    /// What would be loaded.
    pub closure: Closure,
    /// The libraries of the closure that lie in the variant, sorted by name.
    pub libraries: Vec<LibraryFile>,
    /// Libraries that could not be looked at, since they are another machine's own: by their names, sorted.
    pub unseen: Vec<String>,
    /// All that is wrong.
    pub findings: Vec<Finding>,
}

impl Inspection {
    /// The envelope's `artifact`, with what only the build knows.
    pub fn artifact(
        &self,
        target: impl Into<String>,
        build_key: impl Into<String>,
        source_id: impl Into<String>,
    ) -> Artifact {
        let FileDigest { size, sha256 } = self.digest.clone();
        let mut artifact = Artifact::new(target, size, sha256, build_key, source_id);
        artifact.build_id = self.facts.build_id.clone();
        artifact.glibc = self.facts.glibc();
        artifact.libstdcxx = self.facts.libstdcxx();
        artifact.needed = self.facts.needed.clone();
        artifact
    }
}

/// Why a binary cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is no ELF file, or not a whole one.
    #[error("the binary cannot be verified")]
    Elf {
        /// Why.
        #[from]
        source: ElfError,
    },
    /// It, or one of its libraries, has no digest.
    #[error("a digest is missing")]
    Digest {
        /// Why.
        #[from]
        source: DigestError,
    },
}

/// Looks at a binary as its ranks would be started with it.
///
/// # Errors
/// When the binary, or a library that its envelope has to name, cannot be read; all else is a finding.
pub fn inspect(
    question: ArtifactQuestion<'_>,
    host: &HostLibraries,
    cache: &mut DigestCache,
) -> Result<Inspection, InspectError> {
    let ArtifactQuestion { binary, library_path, variant_lib, cwd, is_elsewhere } = question;
    let mut closure = loader::closure(binary, library_path, cwd, host)?;
    let variant = variant_lib.map(VariantFolder::new);
    let unseen = if is_elsewhere { leave_out(&mut closure, variant.as_ref()) } else { Vec::new() };
    let place = Place::file(binary.display().to_string());
    let mut findings = Vec::new();
    if !is_elsewhere {
        findings.extend(library::wrong_cpu(&closure.program, host, binary, &place));
    }
    findings.extend(library::empty_element(library_path, &place));
    findings.extend(library::findings(&closure, library_path, host, &place));
    let objects: Vec<&Path> =
        [binary].into_iter().chain(closure.objects.iter().map(|object| object.path.as_path())).collect();
    let mut strings = Vec::new();
    if let Some(folder) = variant_lib {
        strings = abi::lost_strings(&objects, folder)?;
        findings.extend(abi::finding(&strings, binary, folder, &place));
    }
    // With a library missing, all of its symbols would be missing too.
    if closure.is_complete() && unseen.is_empty() {
        let lost = symbols::unresolved(&objects)?;
        // What the other string ABI makes of a name is told once, and not symbol by symbol.
        let is_told = |symbol: &symbols::Unresolved| symbol.object == binary && strings.contains(&symbol.symbol);
        let lost = lost.iter().filter(|symbol| !is_told(symbol));
        findings.extend(lost.map(|symbol| library::missing_symbol(symbol, &place)));
    }
    let mut of_variant = Vec::new();
    if let (Some(folder), Some(variant)) = (variant_lib, &variant) {
        findings.extend(not_linked(&closure, folder, binary, &place));
        findings.extend(closure.objects.iter().filter_map(|object| from_elsewhere(object, variant, host, &place)));
        of_variant.extend(closure.objects.iter().filter(|object| variant.holds(&object.path)));
    }
    let mut paths = vec![binary.to_owned()];
    paths.extend(of_variant.iter().map(|object| object.path.clone()));
    let mut digests = cache.digest_all(&paths).into_iter();
    let digest = digests.next().unwrap_or_else(|| cache.digest(binary))?;
    let mut libraries = Vec::new();
    for (object, digest) in of_variant.iter().zip(digests) {
        let FileDigest { size, sha256 } = digest?;
        libraries.push(LibraryFile { file: file_name(&object.path), size, sha256 });
    }
    libraries.sort();
    libraries.dedup();
    Ok(Inspection { facts: closure.program.clone(), digest, closure, libraries, unseen, findings })
}

/// Takes out of a closure what lies outside of the variant, found or not, and says what that was.
///
/// A library that the variant's own folder should have and has not may still be one of the host's.
fn leave_out(closure: &mut Closure, variant: Option<&VariantFolder>) -> Vec<String> {
    let is_of_variant = |object: &Loaded| variant.is_some_and(|variant| variant.holds(&object.path));
    let (kept, left): (Vec<Loaded>, Vec<Loaded>) = closure.objects.drain(..).partition(is_of_variant);
    closure.objects = kept;
    // What a library that is not there needs is not known either.
    let is_seen = |path: &Path| !left.iter().any(|object| object.path == path);
    let (unusable, missing): (Vec<Missing>, Vec<Missing>) = closure
        .missing
        .drain(..)
        .filter(|missing| !missing.is_interpreter && is_seen(&missing.needed_by))
        .partition(|missing| matches!(&missing.reason, MissingReason::Unusable { path, .. } if variant.is_some_and(|variant| variant.holds(path))));
    closure.missing = unusable;
    let is_kept = |path: &Path| closure.objects.iter().any(|object| object.path == path);
    closure.missing_versions.retain(|missing| is_kept(&missing.library) && is_seen(&missing.needed_by));
    let left = left.into_iter().filter(|object| object.how != How::Interpreter && is_asked_for(object, closure));
    let mut names: Vec<String> =
        left.map(|object| object.name).chain(missing.into_iter().map(|missing| missing.name)).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether what is left of a closure needs this object.
fn is_asked_for(object: &Loaded, closure: &Closure) -> bool {
    let mut all = closure.objects.iter().map(|object| &object.facts).chain([&closure.program]);
    all.any(|facts| facts.needed.contains(&object.name))
}

/// The `lib` folder of a variant, by its real path.
#[derive(Clone, Debug)]
pub struct VariantFolder {
    real: PathBuf,
}

impl VariantFolder {
    /// The folder that `folder` leads to.
    pub fn new(folder: &Path) -> Self {
        Self { real: fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()) }
    }

    /// Whether `path` is an entry of it, whatever links lead to the folder.
    pub fn holds(&self, path: &Path) -> bool {
        path.parent().and_then(|folder| fs_err::canonicalize(folder).ok()).is_some_and(|folder| folder == self.real)
    }
}

/// Errors for GPU libraries that the variant has and the program does not load. That a library is loaded counts,
/// however it comes there; one that is needed and missing has its own finding.
fn not_linked(closure: &Closure, variant: &Path, binary: &Path, place: &Place) -> Vec<Finding> {
    let is_needed = |file: &str| {
        closure.objects.iter().any(|object| file_name(&object.path) == file || object.name == file)
            || closure.missing.iter().any(|missing| missing.name == file)
    };
    let left_out = ACCELERATORS.iter().filter(|(file, ..)| variant.join(file).is_file() && !is_needed(file));
    left_out
        .map(|(file, link_name, accelerator)| {
            let (binary, variant) = (binary.display(), variant.display());
            let message = format!(
                "`{binary}` does not load `{file}`, which `{variant}` has: {accelerator} would be \"not available\""
            );
            Finding::error(code::ACCELERATOR_NOT_LINKED, place.clone(), message).remedy(format!(
                "link it with `-Wl,--push-state,--no-as-needed -l{link_name} -Wl,--pop-state`, or choose a variant for CPUs"
            ))
        })
        .collect()
}

/// An error for a library that the variant has and that would come from another place. A system's own libgomp or
/// libcudart is fine; a second libtorch never is.
fn from_elsewhere(object: &Loaded, variant: &VariantFolder, host: &HostLibraries, place: &Place) -> Option<Finding> {
    let file = file_name(&object.path);
    let own = variant.real.join(&file);
    if object.how == How::Interpreter || !own.is_file() || variant.holds(&object.path) {
        return None;
    }
    let is_same_file = fs_err::canonicalize(&own).ok() == fs_err::canonicalize(&object.path).ok();
    let is_torch = file.starts_with("libtorch") || file.starts_with("libc10");
    let is_system = matches!(object.how, How::Cache | How::DefaultFolder)
        || host.default_folders.iter().any(|folder| object.path.starts_with(folder));
    if is_same_file || (is_system && !is_torch) {
        return None;
    }
    let (path, variant) = (object.path.display(), variant.real.display());
    let message = format!("`{file}` would be loaded from `{path}` and not from the variant's `{variant}`");
    let remedy = match object.how {
        How::Rpath => "remove the DT_RPATH of the object that needs it, which is searched before the library path",
        How::LibraryPath => "put the variant's folder before the other in the library path",
        _ => "put the variant's folder into the library path",
    };
    Some(Finding::error(code::LIBRARY_FROM_ELSEWHERE, place.clone(), message).remedy(remedy))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
