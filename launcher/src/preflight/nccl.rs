//! Which NCCL or RCCL a library has: what every rank of a run has to have alike.
//!
//! Both have their version in a text that they print at their start; libtorch of the official archives has NCCL linked into
//! its own library. Must not run a library, and reads of a file only where its constants are.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use memchr::memmem;
use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::elf::{ElfError, check_magic};
use super::map;

/// What stands before the version, behind the maker's letter.
const BANNER: &[u8] = b"CCL version ";
/// The section of constants.
const CONSTANTS: &[u8] = b".rodata\0";
/// Longest number that is taken for a version.
const MAX_NUMBER: usize = 24;

/// Whose collectives they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Maker {
    /// NVIDIA's.
    Nccl,
    /// AMD's.
    Rccl,
}

/// A version of one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collectives {
    /// Whose.
    pub maker: Maker,
    /// Such as `2.27.5`, without what it was compiled with.
    pub version: String,
}

impl fmt::Display for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let maker = match self.maker {
            Maker::Nccl => "NCCL",
            Maker::Rccl => "RCCL",
        };
        write!(f, "{maker} {}", self.version)
    }
}

/// The collectives in the file at `path`; none where it has none.
///
/// # Errors
/// When it cannot be read as ELF.
pub fn read(path: &Path) -> Result<Option<Collectives>, ElfError> {
    map::look(path, |bytes| parse(bytes, path))
        .map_err(|source| ElfError::Unreadable { path: path.to_owned(), source })?
}

fn parse(bytes: &[u8], path: &Path) -> Result<Option<Collectives>, ElfError> {
    check_magic(bytes, path)?;
    // There are none for 32 bits.
    if bytes.get(4) != Some(&2) {
        return Ok(None);
    }
    let places = places(bytes).map_err(|what| ElfError::Damaged { path: path.to_owned(), what })?;
    Ok(places.into_iter().find_map(|place| find(&bytes[place])))
}

/// The section of constants, or all that is loaded where sections are not named. Each lies in the file.
fn places(data: &[u8]) -> Result<Vec<Range<usize>>, &'static str> {
    let header = elf::FileHeader64::<Endianness>::parse(data).map_err(|_| "its header is cut short or unknown")?;
    let endian = header.endian().map_err(|_| "its byte order is unknown")?;
    let inside = |offset: u64, size: u64| {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?.min(data.len());
        (start < end).then_some(start..end)
    };
    let sections = header.section_headers(endian, data).map_err(|_| "its section headers lie outside the file")?;
    let names = header.shstrndx(endian, data).ok().and_then(|index| sections.get(index as usize));
    let names = names.and_then(|section| section.data(endian, data).ok()).unwrap_or_default();
    let named = sections
        .iter()
        .filter(|section| section.sh_type(endian) != elf::SHT_NOBITS)
        .find(|section| names.get(section.sh_name(endian) as usize..).is_some_and(|name| name.starts_with(CONSTANTS)));
    if let Some(section) = named {
        return Ok(inside(section.sh_offset(endian), section.sh_size(endian)).into_iter().collect());
    }
    let segments = header.program_headers(endian, data).map_err(|_| "its program headers lie outside the file")?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    Ok(loaded.filter_map(|segment| inside(segment.p_offset(endian), segment.p_filesz(endian))).collect())
}

/// The first banner with a number behind it: `NCCL version 2.27.5+cuda12.9`.
fn find(bytes: &[u8]) -> Option<Collectives> {
    for start in memmem::find_iter(bytes, BANNER) {
        let maker = match start.checked_sub(1).map(|before| bytes[before]) {
            Some(b'N') => Maker::Nccl,
            Some(b'R') => Maker::Rccl,
            _ => continue,
        };
        let number: Vec<u8> = bytes[start + BANNER.len()..]
            .iter()
            .take(MAX_NUMBER)
            .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
            .copied()
            .collect();
        let version = String::from_utf8_lossy(&number).trim_end_matches('.').to_owned();
        if version.starts_with(|first: char| first.is_ascii_digit()) && version.contains('.') {
            return Some(Collectives { maker, version });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_number_behind_the_banner_and_no_other_text_of_it() {
        let text = b"\0NCCL version mismatch with peer\0NCCL version 2.27.5+cuda12.9\0NCCL version 2.1 x";
        assert_eq!(find(text).unwrap().to_string(), "NCCL 2.27.5");
        assert_eq!(find(b"RCCL version 2.22.3+hip6.3").unwrap().to_string(), "RCCL 2.22.3");
        assert_eq!(find(b"CCL version 2.22.3"), None);
        assert_eq!(find(b"NCCL version 2"), None);
        assert_eq!(find(b""), None);
    }
}
