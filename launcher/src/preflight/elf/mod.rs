//! What an ELF file says about itself: its machine, what it needs, where that is to be looked for.
//!
//! Purpose: facts of a binary or a library, read from the program headers as the dynamic loader reads them, so that a
//! file without section headers reads the same. Owns the limits that keep a hostile file from costing memory or time.
//! Must not follow a name to another file ([`super::loader`] does) and never panics, whatever the bytes.

mod image;
mod version;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use image::{Image, with_image};
pub use version::{Version, highest};

use super::map;

/// Word size of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// ELFCLASS32.
    Bits32,
    /// ELFCLASS64.
    Bits64,
}

/// Byte order of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A program at a fixed address, dynamically linked or static.
    Executable,
    /// A program that can lie anywhere: ET_DYN with an interpreter, or with DF_1_PIE.
    PositionIndependent,
    /// A shared library.
    Shared,
    /// Anything else, such as an object file or a core.
    Other,
}

/// One version that a file needs of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededVersion {
    /// Such as `GLIBC_2.34`.
    pub name: String,
    /// Whether the loader starts the program without it (VER_FLG_WEAK).
    pub is_weak: bool,
}

/// What a file needs of one library, by version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionNeed {
    /// The library, as in DT_NEEDED.
    pub library: String,
    /// The versions, in the file's order.
    pub versions: Vec<NeededVersion>,
}

/// The facts of one ELF file. Strings are read as UTF-8, with replacement characters where they are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfFacts {
    /// Word size.
    pub class: Class,
    /// Byte order.
    pub byte_order: ByteOrder,
    /// CPU architecture as in a target triple: `x86_64`, `aarch64`; `machine-N` for one without a name here.
    pub arch: String,
    /// What it is for.
    pub kind: Kind,
    /// Whether it has a dynamic section; a program without one is static and needs nothing.
    pub is_dynamic: bool,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// DT_NEEDED in its order.
    pub needed: Vec<String>,
    /// DT_RPATH, split at `:`; empty elements are kept, for the loader reads one as the working directory.
    /// Empty when there is a DT_RUNPATH, which disables it.
    pub rpath: Vec<String>,
    /// DT_RUNPATH, split as `rpath`; none when the file has no DT_RUNPATH, which is not the same as an empty one.
    pub runpath: Option<Vec<String>>,
    /// PT_INTERP.
    pub interpreter: Option<String>,
    /// GNU build id in lower-case hex.
    pub build_id: Option<String>,
    /// What it needs by version (DT_VERNEED).
    pub version_needs: Vec<VersionNeed>,
    /// The versions that it offers (DT_VERDEF), without its base version.
    pub version_defs: Vec<String>,
    /// Whether its symbols have versions at all (DT_VERSYM), be it only those that they need.
    pub has_symbol_versions: bool,
    /// Whether the loader skips the default folders for what it needs (DF_1_NODEFLIB).
    pub has_nodefaultlib: bool,
}

impl ElfFacts {
    /// Highest `GLIBC_x.y` that it needs, as `x.y`. Private versions (`GLIBC_PRIVATE`) have no number and do not count.
    pub fn glibc(&self) -> Option<String> {
        highest(self.needed_versions(), "GLIBC_")
    }

    /// Highest `GLIBCXX_x.y.z` that it needs, as `x.y.z`.
    pub fn libstdcxx(&self) -> Option<String> {
        highest(self.needed_versions(), "GLIBCXX_")
    }

    fn needed_versions(&self) -> impl Iterator<Item = &str> {
        self.version_needs.iter().flat_map(|need| &need.versions).map(|version| version.name.as_str())
    }

    /// Whether the loader of a host would take this file for one with facts `other`: the same class, order and machine.
    pub fn is_same_machine(&self, other: &Self) -> bool {
        self.class == other.class && self.byte_order == other.byte_order && self.arch == other.arch
    }
}

/// Why a file could not be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It is not there, may not be read, or is no regular file.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a text that the *linker* follows and the loader cannot: `INPUT(…)`, `GROUP(…)`.
    #[error("`{}` is a linker script, not a library: it serves to link, and cannot be loaded", path.display())]
    LinkerScript {
        /// The file.
        path: PathBuf,
    },
    /// It is a script that the kernel starts through its `#!` line.
    #[error("`{}` is a script for `{interpreter}`, not an ELF file", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// What stands after `#!`, with its arguments.
        interpreter: String,
    },
    /// It has no bytes.
    #[error("`{}` is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin as an ELF file does.
    #[error("`{}` is not an ELF file", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// It begins as one and does not hold together, such as one that was cut short.
    #[error("`{}` is a damaged ELF file: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: &'static str,
    },
}

/// Reads the facts of the file at `path`, which is mapped and not read whole.
///
/// # Errors
/// One kind for each thing a person can mend.
pub fn read(path: &Path) -> Result<ElfFacts, ElfError> {
    map::look(path, |bytes| parse(bytes, path))
        .map_err(|source| ElfError::Unreadable { path: path.to_owned(), source })?
}

/// The facts of `bytes`; `path` is only named in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<ElfFacts, ElfError> {
    check_magic(bytes, path)?;
    with_image!(bytes, image => image.and_then(|image| image.facts()))
        .map_err(|what| ElfError::Damaged { path: path.to_owned(), what })
}

/// Says what a file is that does not begin with the ELF magic.
pub(super) fn check_magic(bytes: &[u8], path: &Path) -> Result<(), ElfError> {
    let path = || path.to_owned();
    if bytes.is_empty() {
        return Err(ElfError::Empty { path: path() });
    }
    if bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    // A shebang line is at most 255 bytes for the kernel; a linker script is known by its first words.
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned();
    if let Some(line) = head.strip_prefix("#!") {
        // The kernel takes all up to the line feed, a carriage return too.
        let line = line.split('\n').next().unwrap_or_default();
        let interpreter = line.trim_matches([' ', '\t']).chars().take(255).collect();
        return Err(ElfError::Script { path: path(), interpreter });
    }
    let commands = ["INPUT", "GROUP", "OUTPUT_FORMAT", "/* GNU ld script"];
    if !head.contains('\0') && commands.iter().any(|command| head.contains(command)) {
        return Err(ElfError::LinkerScript { path: path() });
    }
    Err(ElfError::NotElf { path: path() })
}
