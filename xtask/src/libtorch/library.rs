//! What a variant's facts need of one shared library: architecture, soname, needs, exported names.
//!
//! Reads headers and dynamic tables only, so that a library of 1 GB costs what its symbol table costs. Judges nothing.

use std::io;

use camino::Utf8Path;
use object::elf;
use object::read::ReadCache;
use object::read::elf::ElfFile64;
use object::{Architecture, Object as _, ObjectSymbol as _};
use sha2::{Digest as _, Sha256};

use super::archive::hex;

/// Facts of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Library {
    /// As in a target triple; `unknown` for one that Torchlift has no word for.
    pub cpu_arch: String,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in file order.
    pub needed: Vec<String>,
    /// SHA-256 over the sorted names of all defined dynamic symbols, lower-case hex.
    pub exports: String,
    /// Whether one of them mangles a type of `std::__cxx11`.
    pub has_cxx11: bool,
    /// Whether one of them mangles `std::string` of the old ABI (`Ss` stands for it in a mangled name).
    pub has_old_string: bool,
}

/// Why a file could not be read as a library.
#[derive(Debug, thiserror::Error)]
pub(super) enum LibraryError {
    /// It could not be read at all.
    #[error("a library could not be read")]
    Io(#[source] io::Error),
    /// It is no 64-bit little-endian ELF file.
    #[error("it is no 64-bit ELF library")]
    Format(#[source] object::read::Error),
}

impl Library {
    /// Reads one file.
    ///
    /// `with_exports` also reads its symbols; without it `exports` is empty and both ABI marks are false.
    pub(super) fn read(path: &Utf8Path, with_exports: bool) -> Result<Self, LibraryError> {
        let file = fs_err::File::open(path).map_err(LibraryError::Io)?;
        let cache = ReadCache::new(file.into_parts().0);
        let parsed: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).map_err(LibraryError::Format)?;
        let mut library = Self {
            cpu_arch: match parsed.architecture() {
                Architecture::X86_64 => "x86_64",
                Architecture::Aarch64 => "aarch64",
                Architecture::PowerPc64 => "powerpc64le",
                Architecture::Riscv64 => "riscv64gc",
                Architecture::S390x => "s390x",
                _ => "unknown",
            }
            .to_owned(),
            soname: None,
            needed: Vec::new(),
            exports: String::new(),
            has_cxx11: false,
            has_old_string: false,
        };
        let table = parsed.elf_dynamic_table().map_err(LibraryError::Format)?;
        for entry in table.iter() {
            if entry.tag != elf::DT_NEEDED && entry.tag != elf::DT_SONAME {
                continue;
            }
            let text = table.string(entry).map_err(LibraryError::Format)?;
            let text = String::from_utf8_lossy(text).into_owned();
            if entry.tag == elf::DT_NEEDED {
                library.needed.push(text);
            } else {
                library.soname = Some(text);
            }
        }
        if with_exports {
            let mut names = Vec::new();
            for symbol in parsed.dynamic_symbols() {
                if !symbol.is_undefined() && !symbol.is_local() {
                    names.push(symbol.name_bytes().map_err(LibraryError::Format)?);
                }
            }
            names.sort_unstable();
            names.dedup();
            let mut digest = Sha256::new();
            for name in names {
                library.has_cxx11 |= contains(name, b"7__cxx11");
                library.has_old_string |= contains(name, b"Ss");
                digest.update(name);
                digest.update([0]);
            }
            library.exports = hex(&digest.finalize());
        }
        Ok(library)
    }
}

fn contains(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|window| window == part)
}
