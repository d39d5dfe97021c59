//! The symbols that a library offers: their digest, and the C++ ABI that they tell.
//!
//! Purpose: two libraries with the same digest can stand for each other at link time, and whether strings are
//! `std::__cxx11::basic_string` is read where it is true, in the symbols, and never from a variable. And what a closure
//! refers to and none of it offers ([`unresolved()`]).
//! Must not read a library whole: only its hash, symbol and string tables are touched.

mod lookup;
mod unresolved;
mod versioned;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, GnuHashTable, HashTable, Sym};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::digest::hex;
use super::elf::{ElfError, Image, check_magic, with_image};
use super::map;

pub use unresolved::{Unresolved, unresolved, unresolved_strings};
pub use versioned::by_version;

/// Symbols that are read of one file; the largest libtorch library has under 200,000.
const MAX_SYMBOLS: usize = 4_000_000;
/// Bytes of one mangled name; templates of libtorch reach some thousands.
const MAX_SYMBOL_NAME: usize = 256 * 1024;
/// Bytes of all names together; `libtorch_cpu` has about 10 MB.
const MAX_SYMBOL_TEXT: usize = 256 * 1024 * 1024;
/// What is said of a file beyond that.
const LONG_NAMES: &str = "its symbols have longer names than those of any real library";

/// Which of libstdc++'s two string ABIs a library speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CxxAbi {
    /// It exports names with `std::__cxx11` (`_GLIBCXX_USE_CXX11_ABI=1`).
    Cxx11,
    /// It exports names with the old `std::string` and none with the new (`_GLIBCXX_USE_CXX11_ABI=0`).
    PreCxx11,
    /// No exported name has a string in it, so that both fit.
    Unknown,
}

impl CxxAbi {
    /// Whether objects of the two can be linked with each other.
    pub fn fits(self, other: Self) -> bool {
        self == other || self == Self::Unknown || other == Self::Unknown
    }
}

/// What a library exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedSymbols {
    /// SHA-256 in lower-case hex over the sorted lines `name`, `name@version` or `name@@version`.
    pub sha256: String,
    /// How many there are.
    pub count: usize,
    /// The C++ ABI that the names tell.
    pub cxx_abi: CxxAbi,
}

/// Reads what the file at `path` exports: its defined dynamic symbols that are global, weak or unique, of default or
/// protected visibility.
///
/// # Errors
/// As [`super::elf::read`].
pub fn read(path: &Path) -> Result<ExportedSymbols, ElfError> {
    map::look(path, |bytes| parse(bytes, path))
        .map_err(|source| ElfError::Unreadable { path: path.to_owned(), source })?
}

/// What `bytes` export; `path` is only named in errors.
///
/// # Errors
/// As [`super::elf::read`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<ExportedSymbols, ElfError> {
    check_magic(bytes, path)?;
    with_image!(bytes, image => image.and_then(|image| exported(&image)))
        .map_err(|what| ElfError::Damaged { path: path.to_owned(), what })
}

/// An exported symbol.
struct Export<'d> {
    name: &'d [u8],
    /// Index into the version definitions, with the hidden bit.
    version: u16,
    /// Whether it has no section (SHN_ABS).
    is_absolute: bool,
}

/// Bit of a version index that says: not the default version (`name@version` with one `@`).
const HIDDEN: u16 = 0x8000;

fn exported<H: FileHeader<Endian = Endianness>>(image: &Image<'_, H>) -> Result<ExportedSymbols, &'static str> {
    let mut exports = exports(image)?;
    let defs = image.version_defs()?;
    // There may be millions of symbols and thousands of versions: neither is looked for in a list of the other.
    let names: BTreeSet<&[u8]> = defs.iter().map(|def| def.1.as_bytes()).collect();
    let by_index: BTreeMap<u16, &str> = defs.iter().rev().map(|def| (def.0, def.1.as_str())).collect();
    // A version has an absolute symbol of its own name, which says nothing that its definition does not.
    exports.retain(|export| !export.is_absolute || !names.contains(export.name));
    let version = |index: u16| by_index.get(&(index & !HIDDEN)).copied().unwrap_or_default();
    // Versions compare by their names, for an index means nothing outside of its file.
    exports.sort_unstable_by(|a, b| {
        let by_version = || version(a.version).cmp(version(b.version));
        a.name.cmp(b.name).then_with(by_version).then_with(|| (a.version & HIDDEN).cmp(&(b.version & HIDDEN)))
    });
    let mut sha = Sha256::new();
    let (mut has_new, mut has_old) = (false, false);
    for Export { name, version: index, .. } in &exports {
        has_new = has_new || contains(name, b"7__cxx11");
        has_old = has_old || has_old_string(name);
        sha.update(name);
        let version = version(*index);
        if !version.is_empty() {
            sha.update(if index & HIDDEN == 0 { "@@" } else { "@" });
            sha.update(version);
        }
        sha.update("\n");
    }
    let cxx_abi = match (has_new, has_old) {
        (true, _) => CxxAbi::Cxx11,
        (false, true) => CxxAbi::PreCxx11,
        (false, false) => CxxAbi::Unknown,
    };
    Ok(ExportedSymbols { sha256: hex(&sha.finalize()), count: exports.len(), cxx_abi })
}

/// The string ABI that a mangled name tells; none when there is no string in it.
pub fn abi_of(name: &[u8]) -> Option<CxxAbi> {
    if contains(name, b"7__cxx11") { Some(CxxAbi::Cxx11) } else { has_old_string(name).then_some(CxxAbi::PreCxx11) }
}

/// The exported symbols in the file's order.
fn exports<'d, H: FileHeader<Endian = Endianness>>(image: &Image<'d, H>) -> Result<Vec<Export<'d>>, &'static str> {
    const OUTSIDE: &str = "its symbol table lies outside the file";
    let endian = image.endian();
    let Some((first, end)) = hashed_range(image)? else { return Ok(Vec::new()) };
    if end > MAX_SYMBOLS {
        return Err("it has more symbols than any real library");
    }
    let table = image.value(elf::DT_SYMTAB).and_then(|address| image.at(address)).ok_or(OUTSIDE)?;
    let symbols: &[H::Sym] = table.read_slice_at(0, end).map_err(|()| OUTSIDE)?;
    let versions: &[elf::Versym<Endianness>] = match image.value(elf::DT_VERSYM) {
        Some(address) => {
            let table = image.at(address).ok_or(OUTSIDE)?;
            table.read_slice_at(0, end).map_err(|()| OUTSIDE)?
        }
        None => &[],
    };
    let mut exports = Vec::new();
    let mut text = 0;
    for (index, symbol) in symbols.iter().enumerate().skip(first) {
        let version = versions.get(index).map_or(1, |version| version.0.get(endian).0);
        if !is_exported(symbol, endian, version) {
            continue;
        }
        let name = image.string(symbol.st_name(endian).into(), MAX_SYMBOL_NAME)?;
        text += name.len();
        if text > MAX_SYMBOL_TEXT {
            return Err(LONG_NAMES);
        }
        exports.push(Export { name, version, is_absolute: symbol.st_shndx(endian) == elf::SHN_ABS });
    }
    Ok(exports)
}

/// Whether the loader binds others to a symbol with this version index; index 0 is local.
fn is_exported<S: Sym<Endian = Endianness>>(symbol: &S, endian: Endianness, version: u16) -> bool {
    matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE)
        && matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED)
        && symbol.st_shndx(endian) != elf::SHN_UNDEF
        && version & !HIDDEN != 0
}

/// The part of the symbol table that the loader can find by name.
fn hashed_range<H: FileHeader<Endian = Endianness>>(
    image: &Image<'_, H>,
) -> Result<Option<(usize, usize)>, &'static str> {
    const OUTSIDE: &str = "its symbol hash table lies outside the file";
    if let Some(address) = image.value(elf::DT_GNU_HASH) {
        let bytes = image.at(address).ok_or(OUTSIDE)?;
        let table = GnuHashTable::<H>::parse(image.endian(), bytes).map_err(|_| OUTSIDE)?;
        let end = table.symbol_table_length(image.endian());
        return Ok(end.map(|end| (table.symbol_base() as usize, end as usize)));
    }
    if let Some(address) = image.value(elf::DT_HASH) {
        let bytes = image.at(address).ok_or(OUTSIDE)?;
        let table = HashTable::<H>::parse(image.endian(), bytes).map_err(|_| OUTSIDE)?;
        return Ok(Some((0, table.symbol_table_length() as usize)));
    }
    Ok(None)
}

/// Whether `text` has `part` in it.
fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether a mangled name has the old `std::string` in it, which is mangled as `Ss`.
///
/// Identifiers are skipped by their length, so that `Ss` inside of one does not count, and so are the numbers of
/// substitutions (`S0_`) and template parameters (`T0_`), which are no lengths.
fn has_old_string(name: &[u8]) -> bool {
    let Some(mut rest) = name.strip_prefix(b"_Z") else { return false };
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'S', [b's', ..]) => return true,
            (b'S' | b'T', [b'0'..=b'9' | b'A'..=b'Z', ..]) => {
                let digits = tail.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'Z')).count();
                rest = &tail[if tail.get(digits) == Some(&b'_') { digits + 1 } else { 0 }..];
            }
            (b'1'..=b'9', _) => {
                let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let length = rest[..digits]
                    .iter()
                    .fold(0_usize, |length, digit| length.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
                rest = rest.get(digits.saturating_add(length)..).unwrap_or_default();
            }
            _ => rest = tail,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_string_counts_only_as_a_type() {
        assert!(has_old_string(b"_Z5greetSs"));
        assert!(has_old_string(b"_ZN3c105ErrorC1ESsS0_"));
        assert!(has_old_string(b"_ZN3c106detailIT0_EERKSs"));
        assert!(!has_old_string(b"_ZN8ClassSs_3fooEv"));
        assert!(!has_old_string(b"_Z5greetNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"));
        assert!(!has_old_string(b"Ss_of_c"));
        assert!(!has_old_string(b"_Z99999999999999999999999Ss"));
    }

    #[test]
    fn an_unknown_abi_fits_both() {
        assert!(CxxAbi::Unknown.fits(CxxAbi::PreCxx11) && CxxAbi::Cxx11.fits(CxxAbi::Unknown));
        assert!(!CxxAbi::Cxx11.fits(CxxAbi::PreCxx11));
    }
}
