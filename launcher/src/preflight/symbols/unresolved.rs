//! Symbols that a closure refers to and none of its objects offers: what the linker was told not to look at.
//!
//! The relocations say what is referred to, as they do for the loader. A name is taken as offered whatever its
//! version: versions have a check of their own, in [`crate::preflight::loader`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, Rel, Rela, Sym};

use super::lookup::{Offer, gnu_hash};
use super::{LONG_NAMES, MAX_SYMBOL_NAME, MAX_SYMBOL_TEXT, MAX_SYMBOLS, abi_of};
use crate::preflight::elf::{ElfError, Image, check_magic};
use crate::preflight::map::MappedFile;

/// Symbols that are told of one object; more say nothing more.
const MAX_TOLD: usize = 16;

/// A symbol that nothing offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The object that refers to it.
    pub object: PathBuf,
    /// Its name, mangled as it stands there.
    pub symbol: String,
    /// Whether the program does not start without it. Else it ends when the function is first called.
    pub is_needed_at_start: bool,
}

/// The symbols that `objects` refer to and none of them offers, at most 16 of each object.
///
/// # Errors
/// When one of them cannot be read as ELF.
pub fn unresolved(objects: &[&Path]) -> Result<Vec<Unresolved>, ElfError> {
    // The loader puts only files of one class together; any other is told as damaged.
    look_at(objects, |maps| match maps.first().and_then(|(_, map)| map.get(4)) {
        Some(1) => of_class::<elf::FileHeader32<Endianness>>(maps),
        _ => of_class::<elf::FileHeader64<Endianness>>(maps),
    })
}

/// The symbols with a `std::string` in their names that the first of `objects` refers to and none of them offers, but for
/// those of the C++ library itself; sorted, at most 16.
///
/// Also where not all that is loaded is among `objects`: no other library than the C++ one has names of `std`.
///
/// # Errors
/// When one of them cannot be read as ELF.
pub fn unresolved_strings(objects: &[&Path]) -> Result<Vec<String>, ElfError> {
    look_at(objects, |maps| match maps.first().and_then(|(_, map)| map.get(4)) {
        Some(1) => strings_of_class::<elf::FileHeader32<Endianness>>(maps),
        _ => strings_of_class::<elf::FileHeader64<Endianness>>(maps),
    })
}

fn strings_of_class<H: FileHeader<Endian = Endianness>>(maps: &[(&Path, MappedFile)]) -> Result<Vec<String>, ElfError> {
    let damaged = |path: &Path, what| ElfError::Damaged { path: path.to_owned(), what };
    let Some(((program, map), others)) = maps.split_first() else { return Ok(Vec::new()) };
    let image = Image::<H>::parse(map).map_err(|what| damaged(program, what))?;
    let found = references(&image).map_err(|what| damaged(program, what))?;
    let mut names: Vec<&[u8]> =
        found.into_iter().map(|(name, _)| name).filter(|name| abi_of(name).is_some() && !is_of_std(name)).collect();
    // Programs that name no string of another library are the rule, and cost nothing more.
    for (path, map) in others {
        if names.is_empty() {
            break;
        }
        let image = Image::<H>::parse(map).map_err(|what| damaged(path, what))?;
        let offer = Offer::of(&image).map_err(|what| damaged(path, what))?;
        names.retain(|name| !offer.has(name, gnu_hash(name)));
    }
    names.sort_unstable();
    Ok(names.into_iter().take(MAX_TOLD).map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Whether a mangled name is one of namespace `std`, or of what the compiler makes for its types.
fn is_of_std(name: &[u8]) -> bool {
    const STARTS: [&[u8]; 9] =
        [b"_ZNSt", b"_ZNKSt", b"_ZSt", b"_ZNSs", b"_ZNKSs", b"_ZTVNSt", b"_ZTINSt", b"_ZTSNSt", b"_ZGVNSt"];
    STARTS.iter().any(|start| name.starts_with(start))
}

/// Shows `look` all of `objects` at once.
fn look_at<T>(
    objects: &[&Path],
    look: impl FnOnce(&[(&Path, MappedFile)]) -> Result<T, ElfError>,
) -> Result<T, ElfError> {
    let unreadable = |path: &Path, source| ElfError::Unreadable { path: path.to_owned(), source };
    let mut maps = Vec::new();
    for path in objects {
        maps.push((*path, MappedFile::open(path).map_err(|source| unreadable(path, source))?));
    }
    let found = maps.iter().try_for_each(|(path, map)| check_magic(map, path)).and_then(|()| look(&maps));
    // Asked before anything is said of what was found: a file that was cut short meanwhile looks damaged.
    maps.iter().try_for_each(|(path, map)| map.check().map_err(|source| unreadable(path, source)))?;
    found
}

fn of_class<H: FileHeader<Endian = Endianness>>(maps: &[(&Path, MappedFile)]) -> Result<Vec<Unresolved>, ElfError> {
    let damaged = |path: &Path, what| ElfError::Damaged { path: path.to_owned(), what };
    let mut images = Vec::new();
    for (path, map) in maps {
        images.push((*path, Image::<H>::parse(map).map_err(|what| damaged(path, what))?));
    }
    let mut offers = Vec::new();
    for (path, image) in &images {
        offers.push(Offer::of(image).map_err(|what| damaged(path, what))?);
    }
    let mut missing = Vec::new();
    for (path, image) in &images {
        let found = references(image).map_err(|what| damaged(path, what))?;
        let lost = found.into_iter().filter(|(name, _)| {
            let hash = gnu_hash(name);
            !offers.iter().any(|offer| offer.has(name, hash))
        });
        missing.extend(lost.take(MAX_TOLD).map(|(name, is_needed_at_start)| Unresolved {
            object: path.to_path_buf(),
            symbol: String::from_utf8_lossy(name).into_owned(),
            is_needed_at_start,
        }));
    }
    Ok(missing)
}

/// The undefined symbols that an object cannot do without, and whether it needs them at its start.
fn references<'d, H: FileHeader<Endian = Endianness>>(
    image: &Image<'d, H>,
) -> Result<Vec<(&'d [u8], bool)>, &'static str> {
    const OUTSIDE: &str = "its symbol table lies outside the file";
    let referred = Referred::read(image)?;
    let Some(last) = referred.by_index.keys().next_back() else { return Ok(Vec::new()) };
    let count = *last as usize + 1;
    if count > MAX_SYMBOLS {
        return Err("it has more symbols than any real library");
    }
    let table = image.value(elf::DT_SYMTAB).and_then(|address| image.at(address)).ok_or(OUTSIDE)?;
    let symbols: &[H::Sym] = table.read_slice_at(0, count).map_err(|()| OUTSIDE)?;
    let mut found = Vec::new();
    let mut text = 0;
    for (index, is_needed_at_start) in referred.by_index {
        let symbol = &symbols[index as usize];
        // A weak reference is 0 when nothing offers it.
        if symbol.st_bind() != elf::STB_GLOBAL || symbol.st_shndx(image.endian()) != elf::SHN_UNDEF {
            continue;
        }
        let name = image.string(symbol.st_name(image.endian()).into(), MAX_SYMBOL_NAME)?;
        text += name.len();
        if text > MAX_SYMBOL_TEXT {
            return Err(LONG_NAMES);
        }
        found.push((name, is_needed_at_start));
    }
    Ok(found)
}

/// The indices of the symbols that relocations refer to.
#[derive(Default)]
pub(super) struct Referred {
    /// With whether the reference has to be resolved at the start.
    pub(super) by_index: BTreeMap<u32, bool>,
}

impl Referred {
    pub(super) fn read<H: FileHeader<Endian = Endianness>>(image: &Image<'_, H>) -> Result<Self, &'static str> {
        let mut referred = Self::default();
        let flags = elf::DynamicFlags(image.value(elf::DT_FLAGS).unwrap_or(0));
        let flags_1 = elf::DynamicFlags1(image.value(elf::DT_FLAGS_1).unwrap_or(0));
        let binds_now = image.value(elf::DT_BIND_NOW).is_some()
            || flags.contains(elf::DF_BIND_NOW)
            || flags_1.contains(elf::DF_1_NOW);
        // The order of the 64-bit MIPS symbol index is another; no host of ours has it.
        let with_addend = |relocation: &H::Rela| relocation.r_sym(image.endian(), false);
        let without = |relocation: &H::Rel| relocation.r_sym(image.endian());
        referred.table(image, elf::DT_RELA, elf::DT_RELASZ, true, with_addend)?;
        referred.table(image, elf::DT_REL, elf::DT_RELSZ, true, without)?;
        if image.value(elf::DT_PLTREL) == Some(elf::DT_REL.0 as u64) {
            referred.table(image, elf::DT_JMPREL, elf::DT_PLTRELSZ, binds_now, without)?;
        } else {
            referred.table(image, elf::DT_JMPREL, elf::DT_PLTRELSZ, binds_now, with_addend)?;
        }
        Ok(referred)
    }

    fn table<H: FileHeader<Endian = Endianness>, R: object::pod::Pod>(
        &mut self,
        image: &Image<'_, H>,
        address: elf::DynamicTag,
        size: elf::DynamicTag,
        is_needed_at_start: bool,
        symbol: impl Fn(&R) -> u32,
    ) -> Result<(), &'static str> {
        const OUTSIDE: &str = "its relocations lie outside the file";
        let (Some(address), Some(size)) = (image.value(address), image.value(size)) else { return Ok(()) };
        let count = usize::try_from(size).map_err(|_| OUTSIDE)? / size_of::<R>();
        if count == 0 {
            return Ok(());
        }
        let bytes = image.at(address).ok_or(OUTSIDE)?;
        let relocations: &[R] = bytes.read_slice_at(0, count).map_err(|()| OUTSIDE)?;
        let mut previous = 0;
        for relocation in relocations {
            let index = symbol(relocation);
            // Most refer to no symbol, and those of one symbol stand together.
            if index != 0 && index != previous {
                *self.by_index.entry(index).or_insert(false) |= is_needed_at_start;
            }
            previous = index;
        }
        Ok(())
    }
}
