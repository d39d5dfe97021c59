//! What a libtorch tree is, file by file, without reading any of them whole.
//!
//! Purpose: the facts that people ask for and that fit is decided on. Only headers, dynamic sections and the headers of GPU
//! code are touched, so that a tree of 5 GB takes a fraction of a second; what needs every byte, the ABI digest, is
//! [`super::inspect()`]'s. Must not judge whether a host is served, and takes nothing from a name that a file can say.

mod by_name;
mod library;
#[cfg(test)]
mod tests;
mod version;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::code;
use torchlift::preflight::elf::Version;
use torchlift::preflight::symbols::{self, CxxAbi};
use torchlift_schema::{Accelerator, Finding, Place};

pub use by_name::{LoadedByName, followers, loaded_by_name};
pub use library::{Library, LibraryKind};
pub use version::{StatedVersion, stated_versions};

use super::inspect::{InspectError, check_shape, public_version};

/// The library whose machine is the tree's own.
const CPU_LIBRARY: &str = "libtorch_cpu.so";
/// The library that tells the C++ ABI: small, and full of strings.
const ABI_LIBRARY: &str = "libc10.so";

/// A tree as its files say it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Survey {
    /// The folder, as it was named.
    pub root: Utf8PathBuf,
    /// The torch version: what the first of `versions` states.
    pub version: String,
    /// Every file that states a version, the most telling first.
    pub versions: Vec<StatedVersion>,
    /// `cpu` when there is no `libtorch_cuda` or `libtorch_hip`, whatever others need.
    pub accelerator: Accelerator,
    /// CPU architecture of `libtorch_cpu.so`, as in a target triple.
    pub cpu_arch: String,
    /// The C++ ABI, from the symbols of `libc10.so`.
    pub cxx_abi: CxxAbi,
    /// The newest glibc that one of its libraries needs, as `2.28`; none where none says.
    pub glibc: Option<String>,
    /// The newest libstdc++ that one of its libraries needs, as the number after `GLIBCXX_`.
    pub libstdcxx: Option<String>,
    /// Bytes of all libraries, each file once.
    pub size: u64,
    /// What lies in `lib`, by name; links and texts too.
    pub libraries: Vec<Library>,
    /// Libraries that are loaded by their name while the program runs, which no NEEDED tells of.
    pub loaded_by_name: Vec<LoadedByName>,
    /// What is doubtful about it.
    pub findings: Vec<Finding>,
}

impl Survey {
    /// The library of this file name.
    pub fn library(&self, file: &str) -> Option<&Library> {
        self.libraries.iter().find(|library| library.file == file)
    }

    /// The library that has torch's own kernels; none on a CPU.
    pub fn kernels(&self) -> Option<&Library> {
        ["libtorch_cuda.so", "libtorch_hip.so"].iter().find_map(|file| self.library(file))
    }
}

/// Looks through the tree at `root`.
///
/// # Errors
/// When it is no libtorch. A library that cannot be read is a finding, but for those that every libtorch has.
pub fn survey(root: &Utf8Path) -> Result<Survey, InspectError> {
    check_shape(root)?;
    let versions = stated_versions(root);
    let Some(first) = versions.first() else { return Err(InspectError::NoVersion { root: root.to_owned() }) };
    let version = first.version.clone();
    let folder = root.join("lib");
    let libraries = library::list(&folder).map_err(|source| InspectError::Io { root: root.to_owned(), source })?;
    let cpu_arch = own(&libraries, &folder, CPU_LIBRARY)?.arch.clone().unwrap_or_default();
    own(&libraries, &folder, ABI_LIBRARY)?;
    let file = folder.join(ABI_LIBRARY);
    let exports = symbols::read(file.as_std_path());
    let cxx_abi = exports.map_err(|source| InspectError::Library { file, source: Box::new(source) })?.cxx_abi;

    let files: BTreeMap<&str, &Library> = libraries.iter().map(|library| (library.file.as_str(), library)).collect();
    let loaded_by_name = loaded_by_name(public_version(&version), &files.keys().copied().collect());
    let accelerator = accelerator(&files, &versions);
    let mut findings = Vec::new();
    check_versions(&versions, &mut findings);
    check_libraries(&libraries, &folder, &cpu_arch, &mut findings);
    check_by_name(&loaded_by_name, &folder, &mut findings);
    let newest = |floor: fn(&Library) -> Option<&String>| {
        let floors = libraries.iter().filter_map(floor).filter_map(|text| text.parse::<Version>().ok());
        floors.max().map(|version| version.to_string())
    };
    Ok(Survey {
        root: root.to_owned(),
        accelerator,
        cpu_arch,
        cxx_abi,
        glibc: newest(|library| library.glibc.as_ref()),
        libstdcxx: newest(|library| library.libstdcxx.as_ref()),
        size: libraries.iter().filter(|library| library.kind != LibraryKind::Link).map(|library| library.size).sum(),
        loaded_by_name,
        findings,
        version,
        versions,
        libraries,
    })
}

/// A library without which nothing can be told of the tree.
fn own<'a>(libraries: &'a [Library], folder: &Utf8Path, file: &str) -> Result<&'a Library, InspectError> {
    let found = libraries.iter().find(|library| library.file == file);
    let broken = |why: &str| InspectError::Library { file: folder.join(file), source: why.to_owned().into() };
    match found {
        Some(library) if library.arch.is_some() => Ok(library),
        Some(library) => Err(broken(library.problem.as_deref().unwrap_or("it is no library"))),
        None => Err(broken("it is no regular file")),
    }
}

/// From the libraries that are there; the toolkit's version from what states it, else from the runtime that is needed.
fn accelerator(files: &BTreeMap<&str, &Library>, versions: &[StatedVersion]) -> Accelerator {
    let stated = |of: fn(&StatedVersion) -> Option<String>| versions.iter().find_map(of);
    let runtime = |library: &Library, prefix: &str| {
        library.needed.iter().find_map(|name| Some(name.strip_prefix(prefix)?.to_owned()))
    };
    if let Some(library) = files.get("libtorch_cuda.so") {
        let version = stated(StatedVersion::cuda).or_else(|| runtime(library, "libcudart.so."));
        Accelerator::Cuda(version.unwrap_or_default())
    } else if let Some(library) = files.get("libtorch_hip.so") {
        let version = stated(StatedVersion::rocm).or_else(|| runtime(library, "libamdhip64.so."));
        Accelerator::Rocm(version.unwrap_or_default())
    } else {
        Accelerator::Cpu
    }
}

/// The numbers have to be the same everywhere, and so has what stands after `+` where anything does.
fn check_versions(versions: &[StatedVersion], findings: &mut Vec<Finding>) {
    let differs = |one: &StatedVersion, other: &StatedVersion| {
        let local = |stated: &StatedVersion| stated.version.split_once('+').map(|(_, local)| local.to_owned());
        let locals = local(one).zip(local(other));
        public_version(&one.version) != public_version(&other.version) || locals.is_some_and(|(a, b)| a != b)
    };
    let Some((first, others)) = versions.split_first() else { return };
    if others.iter().any(|other| differs(first, other)) {
        let all: Vec<String> =
            versions.iter().map(|stated| format!("`{}` in `{}`", stated.version, stated.file)).collect();
        findings.push(
            Finding::warning(
                "libtorch-versions-differ",
                Place::file(first.file.as_str()),
                format!("the files state different versions: {}", all.join(", ")),
            )
            .remedy("get the tree again: two libtorchs were unpacked into one folder"),
        );
    }
}

fn check_libraries(libraries: &[Library], folder: &Utf8Path, cpu_arch: &str, findings: &mut Vec<Finding>) {
    for library in libraries {
        let place = || Place::file(folder.join(&library.file).as_str());
        if let Some(problem) = &library.problem {
            findings.push(
                Finding::warning("libtorch-library-damaged", place(), problem.clone())
                    .remedy("get the tree again, or take this file out when nothing of yours needs it"),
            );
        }
        if let Some(arch) = library.arch.as_ref().filter(|arch| *arch != cpu_arch) {
            findings.push(
                Finding::warning(
                    "libtorch-cpu-mixed",
                    place(),
                    format!("`{}` is for {arch}, and `{CPU_LIBRARY}` for {cpu_arch}", library.file),
                )
                .remedy("get the tree again: two libtorchs were unpacked into one folder"),
            );
        }
        for problem in library.gpu.iter().flat_map(|gpu| &gpu.problems) {
            findings.push(
                Finding::warning("gpu-code-damaged", place(), format!("the GPU code cannot be read whole: {problem}"))
                    .remedy("get the tree again; what was read is what is shown"),
            );
        }
    }
}

fn check_by_name(loaded: &[LoadedByName], folder: &Utf8Path, findings: &mut Vec<Finding>) {
    for missing in loaded.iter().filter(|of| of.found.is_none() && of.is_required) {
        findings.push(
            Finding::warning(
                code::LOADED_BY_NAME_MISSING,
                Place::file(folder.join(&missing.loader).as_str()),
                format!(
                    "`{}` loads `{}` by its name, for {}, and it is not there",
                    missing.loader, missing.loads, missing.purpose
                ),
            )
            .remedy("get the whole variant, or the package that has it, and put it beside the others"),
        );
    }
}
