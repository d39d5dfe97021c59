//! Which symbols a file refers to by which version: what makes it need a newer C library.

use std::collections::BTreeMap;
use std::path::Path;

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, Sym};

use super::unresolved::Referred;
use super::{HIDDEN, MAX_SYMBOL_NAME, MAX_SYMBOLS};
use crate::preflight::elf::{ElfError, Image, check_magic, with_image};
use crate::preflight::map;

/// The symbols that the file at `path` refers to, by the name of the version, such as `GLIBC_2.34`; each list in the order
/// of the file's table.
///
/// A version that the file needs and none of whose symbols a relocation names has an empty list.
///
/// # Errors
/// As [`crate::preflight::elf::read`].
pub fn by_version(path: &Path) -> Result<BTreeMap<String, Vec<String>>, ElfError> {
    let look = |bytes: &[u8]| {
        check_magic(bytes, path)?;
        with_image!(bytes, image => image.and_then(|image| versioned(&image)))
            .map_err(|what| ElfError::Damaged { path: path.to_owned(), what })
    };
    map::look(path, look).map_err(|source| ElfError::Unreadable { path: path.to_owned(), source })?
}

fn versioned<H: FileHeader<Endian = Endianness>>(
    image: &Image<'_, H>,
) -> Result<BTreeMap<String, Vec<String>>, &'static str> {
    const OUTSIDE: &str = "its symbol table lies outside the file";
    let (_, indices) = image.version_needs_by_index()?;
    let mut found: BTreeMap<String, Vec<String>> = indices.iter().map(|(_, name)| (name.clone(), Vec::new())).collect();
    let names: BTreeMap<u16, &str> = indices.iter().map(|(index, name)| (index & !HIDDEN, name.as_str())).collect();
    let referred = Referred::read(image)?;
    let Some(last) = referred.by_index.keys().next_back() else { return Ok(found) };
    let count = *last as usize + 1;
    if count > MAX_SYMBOLS {
        return Err("it has more symbols than any real library");
    }
    let at = |tag| image.value(tag).and_then(|address| image.at(address)).ok_or(OUTSIDE);
    if image.value(elf::DT_VERSYM).is_none() {
        return Ok(found);
    }
    let symbols: &[H::Sym] = at(elf::DT_SYMTAB)?.read_slice_at(0, count).map_err(|()| OUTSIDE)?;
    let versions: &[elf::Versym<Endianness>] = at(elf::DT_VERSYM)?.read_slice_at(0, count).map_err(|()| OUTSIDE)?;
    for index in referred.by_index.keys().map(|index| *index as usize) {
        let symbol = &symbols[index];
        if symbol.st_shndx(image.endian()) != elf::SHN_UNDEF {
            continue;
        }
        let version = versions[index].0.get(image.endian()).0 & !HIDDEN;
        if let Some(list) = names.get(&version).and_then(|name| found.get_mut(*name)) {
            let name = image.string(symbol.st_name(image.endian()).into(), MAX_SYMBOL_NAME)?;
            list.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(found)
}
