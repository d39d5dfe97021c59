//! Facts of a variant, read from its files and never from its name.
//!
//! Owns what makes a folder a libtorch, and the ABI digest that goes into a build's key. Must not decide whether a
//! variant is wanted: that is [`super::find()`].

mod cache;
mod headers;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::fatbin::GpuContent;
use torchlift::preflight::symbols::CxxAbi;
use torchlift::preflight::{ElfError, elf, symbols};
use torchlift_schema::Accelerator;

use crate::file;
use torchlift::preflight::digest::hex;

use super::survey::survey;

/// What the files of a variant say.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VariantFacts {
    /// Torch version as `build-version` states it, such as `2.9.0+cu128`; else as `version.py` or the headers do.
    pub version: String,
    /// `cpu` when no `libtorch_cuda` or `libtorch_hip` is there.
    pub accelerator: Accelerator,
    /// CPU architecture of `libtorch_cpu.so`, as in a target triple: `x86_64`, `aarch64`.
    pub cpu_arch: String,
    /// Whether its C++ ABI is the new one, from `std::__cxx11` symbols of `libc10.so`.
    pub is_cxx11_abi: bool,
    /// Digest of headers, exported symbols, version and C++ ABI, lower-case hex.
    pub abi_digest: String,
    /// `lib*.so*` files of `lib/`, sorted.
    pub libraries: Vec<String>,
    /// GPU code by library; those without any, and further names of a file, are left out.
    pub gpu_code: BTreeMap<String, GpuContent>,
    /// The newest glibc that a library needs; none where none says.
    pub glibc: Option<String>,
    /// Bytes of all libraries, each file once.
    pub size: u64,
}

impl VariantFacts {
    /// The version without its local part: `2.9.0` of `2.9.0+cu128`.
    pub fn public_version(&self) -> &str {
        public_version(&self.version)
    }

    /// GPU code that its kernels have, such as `sm_86`; empty for CPUs.
    pub fn archs(&self) -> Vec<String> {
        let kernels = ["libtorch_cuda.so", "libtorch_hip.so"].iter().find_map(|name| self.gpu_code.get(*name));
        kernels.map(|code| code.archs().iter().map(ToString::to_string).collect()).unwrap_or_default()
    }
}

/// A version without its local part: `2.9.0` of `2.9.0+cu128`.
pub fn public_version(version: &str) -> &str {
    version.split_once('+').map_or(version, |(public, _)| public)
}

/// Why a folder gives no facts.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The folder is not there.
    #[error("there is no folder `{root}`")]
    Missing {
        /// The folder.
        root: Utf8PathBuf,
    },
    /// A part that every libtorch has is missing.
    #[error("`{root}` is not a libtorch: it has no `{part}`")]
    NotLibtorch {
        /// The folder.
        root: Utf8PathBuf,
        /// The first part that is missing, below it.
        part: &'static str,
    },
    /// The folder given lies inside a libtorch, such as its `lib`.
    #[error("`{root}` is a folder inside a libtorch; the libtorch is `{parent}`")]
    Inside {
        /// The folder given.
        root: Utf8PathBuf,
        /// The one that was meant.
        parent: Utf8PathBuf,
    },
    /// Nothing in it says which version it is.
    #[error("nothing in `{root}` says which torch version it is: no `build-version`, `version.py` or `version.h`")]
    NoVersion {
        /// The folder.
        root: Utf8PathBuf,
    },
    /// A library is damaged.
    #[error("`{file}` cannot be read as a library")]
    Library {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file could not be read.
    #[error("the files of `{root}` could not be read")]
    Io {
        /// The folder.
        root: Utf8PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The libraries without which a folder is no libtorch that a program can be linked with.
const PARTS: [&str; 4] = ["lib/libtorch_cpu.so", "lib/libtorch.so", "lib/libc10.so", "include/torch"];

/// Reads the facts of the variant in `root`.
///
/// Symbols of 0.5 GB of libraries and 36 MB of headers take about a second; with `cache` (a folder, see
/// [`super::Places::facts`]) a second call costs one `stat` a file. A cache that cannot be read or written is passed over.
///
/// # Errors
/// One variant for each thing that a person can mend.
pub fn inspect(root: &Utf8Path, cache: Option<&Utf8Path>) -> Result<VariantFacts, InspectError> {
    check_shape(root)?;
    // The same tree reached by two spellings must have one cache entry.
    let root = &root.canonicalize_utf8().map_err(|source| InspectError::Io { root: root.to_owned(), source })?;
    let tree = headers::Tree::list(root).map_err(|source| InspectError::Io { root: root.clone(), source })?;
    let fingerprint = tree.fingerprint();
    if let Some(facts) = cache.and_then(|folder| cache::load(folder, root, &fingerprint)) {
        return Ok(facts);
    }
    let facts = read(root, &tree)?;
    if let Some(folder) = cache {
        cache::store(folder, root, &fingerprint, &facts);
    }
    Ok(facts)
}

/// What can be told of a folder at once, without its symbols: its version and its CPU architecture.
///
/// # Errors
/// As [`inspect`].
pub fn peek(root: &Utf8Path) -> Result<(String, String), InspectError> {
    check_shape(root)?;
    let version = version(root).ok_or_else(|| InspectError::NoVersion { root: root.to_owned() })?;
    let file = root.join("lib/libtorch_cpu.so");
    match elf::read(file.as_std_path()) {
        Ok(facts) => Ok((version, facts.arch)),
        Err(source) => Err(InspectError::Library { file, source: Box::new(source) }),
    }
}

pub(super) fn check_shape(root: &Utf8Path) -> Result<(), InspectError> {
    if !root.is_dir() {
        return Err(InspectError::Missing { root: root.to_owned() });
    }
    let Some(part) = PARTS.into_iter().find(|part| !root.join(part).exists()) else { return Ok(()) };
    if let Some(parent) = root.parent()
        && PARTS.iter().all(|part| parent.join(part).exists())
    {
        return Err(InspectError::Inside { root: root.to_owned(), parent: parent.to_owned() });
    }
    // People name the folder into which they unpacked the official archive, which has one `libtorch` in it.
    let nested = root.join("libtorch");
    if PARTS.iter().all(|part| nested.join(part).exists()) {
        return Err(InspectError::Inside { root: root.to_owned(), parent: nested });
    }
    Err(InspectError::NotLibtorch { root: root.to_owned(), part })
}

fn read(root: &Utf8Path, tree: &headers::Tree) -> Result<VariantFacts, InspectError> {
    let io = |source| InspectError::Io { root: root.to_owned(), source };
    let version = version(root).ok_or_else(|| InspectError::NoVersion { root: root.to_owned() })?;
    let survey = survey(root)?;
    let mut digest = Sha256::new();
    digest.update(b"torchlift abi 1\0");
    digest.update(tree.header_digest().map_err(io)?);

    let mut cpu_arch = String::new();
    let mut is_cxx11_abi = true;
    let mut runtime = None;
    for name in &tree.libraries {
        let file = root.join("lib").join(name);
        let read = elf::read(file.as_std_path()).and_then(|facts| Ok((facts, symbols::read(file.as_std_path())?)));
        let (facts, exports) = match read {
            Ok(read) => read,
            // A linker script or a stray text is no part of the ABI, unless it is one of the libraries themselves.
            Err(
                ElfError::NotElf { .. }
                | ElfError::LinkerScript { .. }
                | ElfError::Script { .. }
                | ElfError::Empty { .. },
            ) if !["libtorch_cpu.so", "libc10.so"].contains(&name.as_str()) => continue,
            Err(source) => return Err(InspectError::Library { file, source: Box::new(source) }),
        };
        match name.as_str() {
            "libtorch_cpu.so" => cpu_arch.clone_from(&facts.arch),
            "libc10.so" => is_cxx11_abi = exports.cxx_abi != CxxAbi::PreCxx11,
            "libtorch_cuda.so" | "libtorch_hip.so" => runtime = facts.needed.iter().find_map(|name| toolkit(name)),
            _ => {}
        }
        let soname = facts.soname.unwrap_or_default();
        digest.update(format!("{name}\0{soname}\0{}\0", exports.sha256));
    }
    digest.update(format!("{version}\0{is_cxx11_abi}"));
    Ok(VariantFacts {
        accelerator: accelerator(&tree.libraries, &version, runtime),
        version,
        cpu_arch,
        is_cxx11_abi,
        abi_digest: hex(&digest.finalize()),
        libraries: tree.libraries.clone(),
        gpu_code: survey.libraries.into_iter().filter_map(|library| Some((library.file, library.gpu?))).collect(),
        glibc: survey.glibc,
        size: survey.size,
    })
}

/// `build-version` of the official archive, then `version.py` of a wheel, then the numbers of `version.h`.
fn version(root: &Utf8Path) -> Option<String> {
    if let Ok(text) = file::read_to_string(&root.join("build-version")) {
        let text = text.trim();
        if !text.is_empty() {
            return Some(text.to_owned());
        }
    }
    if let Ok(text) = file::read_to_string(&root.join("version.py"))
        && let Some(version) = text
            .lines()
            .find_map(|line| Some(line.strip_prefix("__version__ = ")?.trim().trim_matches(['\'', '"']).to_owned()))
    {
        return Some(version);
    }
    ["include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h"].iter().find_map(|header| {
        let text = file::read_to_string(&root.join(header)).ok()?;
        let number = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name)?.trim().parse().ok())
        };
        let [major, minor, patch]: [u32; 3] = [number("MAJOR ")?, number("MINOR ")?, number("PATCH ")?];
        Some(format!("{major}.{minor}.{patch}"))
    })
}

/// From the libraries that are there; the toolkit's version from the torch version, else from the runtime it needs.
fn accelerator(libraries: &[String], version: &str, runtime: Option<String>) -> Accelerator {
    let has = |name: &str| libraries.iter().any(|library| library == name);
    let local = version.split_once('+').map_or("", |(_, local)| local);
    let stated =
        |prefix: &str| local.strip_prefix(prefix).map(|rest| rest.split('.').next().unwrap_or(rest).to_owned());
    if has("libtorch_cuda.so") {
        // `cu128` is 12.8 and `cu118` is 11.8: the last digit is the minor version.
        let stated = stated("cu").filter(|digits| digits.len() >= 2 && digits.bytes().all(|b| b.is_ascii_digit()));
        let stated = stated.map(|digits| format!("{}.{}", &digits[..digits.len() - 1], &digits[digits.len() - 1..]));
        Accelerator::Cuda(stated.or(runtime).unwrap_or_default())
    } else if has("libtorch_hip.so") {
        let stated = local.strip_prefix("rocm").map(str::to_owned);
        Accelerator::Rocm(stated.or(runtime).unwrap_or_default())
    } else {
        Accelerator::Cpu
    }
}

/// `12` of `libcudart.so.12`, `6` of `libamdhip64.so.6`.
fn toolkit(needed: &str) -> Option<String> {
    ["libcudart.so.", "libamdhip64.so."].iter().find_map(|prefix| Some(needed.strip_prefix(prefix)?.to_owned()))
}

#[cfg(test)]
mod tests;
