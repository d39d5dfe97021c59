//! Where in an ELF file GPU code may lie.

use std::ops::Range;

use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::FatbinDamage;
use super::tally::Tally;

/// Sections with GPU code that are read; linkers make one of each name.
const MAX_PLACES: usize = 64;

/// Whose format lies in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// NVIDIA's regions, as the driver is given them.
    Cuda,
    /// NVIDIA's regions of objects that are to be linked.
    CudaRelocatable,
    /// AMD's bundles.
    Hip,
}

/// The sections that hold GPU code. NVIDIA's own tools look for these names.
const NAMES: [(&str, Maker); 3] =
    [(".nv_fatbin", Maker::Cuda), ("__nv_relfatbin", Maker::CudaRelocatable), (".hip_fatbin", Maker::Hip)];

/// Sections of pointers to GPU code: where one of these is and none of [`NAMES`], the code lies under another name.
const POINTERS: [&str; 2] = [".nvFatBinSegment", ".hipFatBinSegment"];

/// A part of the file that holds GPU code.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Its section, for people.
    pub(super) name: &'static str,
    /// Whose format it has.
    pub(super) maker: Maker,
    /// Its bytes in the file, which are there.
    pub(super) range: Range<usize>,
}

impl Place {
    /// A place, as yet empty, in a file that does not say where its sections are.
    pub(super) fn unnamed(maker: Maker) -> Self {
        Self { name: "LOAD", maker, range: 0..0 }
    }
}

/// What is to be read.
#[derive(Debug)]
pub(super) enum Layout {
    /// Exactly these, which share no byte.
    Places(Vec<Place>),
    /// Sections are not named: what is loaded has to be searched. The ranges share no byte.
    Unnamed(Vec<Range<usize>>),
}

/// Finds out where GPU code may lie in `data`, which begin with the ELF magic. Sections that cannot be read are problems.
pub(super) fn layout(data: &[u8], tally: &mut Tally) -> Result<Layout, &'static str> {
    match data.get(4) {
        Some(1) => layout_of::<elf::FileHeader32<Endianness>>(data, tally),
        Some(2) => layout_of::<elf::FileHeader64<Endianness>>(data, tally),
        _ => Err("its class is neither 32 nor 64 bits"),
    }
}

fn layout_of<H: FileHeader<Endian = Endianness>>(data: &[u8], tally: &mut Tally) -> Result<Layout, &'static str> {
    let header = H::parse(data).map_err(|_| "its header is cut short or unknown")?;
    let endian = header.endian().map_err(|_| "its byte order is unknown")?;
    let headers = header.section_headers(endian, data).map_err(|_| "its section headers lie outside the file")?;
    let names = match header.shstrndx(endian, data) {
        Ok(index) => {
            headers.get(index as usize).and_then(|section| section.data(endian, data).ok()).unwrap_or_default()
        }
        Err(_) => &[],
    };
    let is_named = |section: &H::SectionHeader, name: &str| {
        let rest = names.get(section.sh_name(endian) as usize..).and_then(|text| text.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut places = Vec::new();
    for section in headers.iter().filter(|section| section.sh_type(endian) != elf::SHT_NOBITS) {
        let Some((name, maker)) = NAMES.iter().find(|(name, _)| is_named(section, name)) else { continue };
        let (offset, size) = (section.sh_offset(endian).into(), section.sh_size(endian).into());
        if size > 0 {
            add(&mut places, Place { name, maker: *maker, range: 0..0 }, offset, size, data.len(), tally);
        }
    }
    let is_elsewhere = || headers.iter().any(|section| POINTERS.iter().any(|name| is_named(section, name)));
    if !places.is_empty() || tally.has_problems() || (!names.is_empty() && !is_elsewhere()) {
        return Ok(Layout::Places(places));
    }
    let segments = header.program_headers(endian, data).map_err(|_| "its program headers lie outside the file")?;
    let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    Ok(Layout::Unnamed(disjoint(
        loaded.filter_map(|segment| {
            clipped(segment.p_offset(endian).into(), segment.p_filesz(endian).into(), data.len())
        }),
    )))
}

/// Adds a section to `places` if it lies in the file and shares no byte with the others.
fn add(places: &mut Vec<Place>, place: Place, offset: u64, size: u64, length: usize, tally: &mut Tally) {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let problem = match offset.checked_add(size).and_then(|end| usize::try_from(end).ok()) {
        Some(end) if end <= length => {
            let is_shared = places.iter().any(|other| other.range.start < end && at < other.range.end);
            if !is_shared && places.len() < MAX_PLACES {
                places.push(Place { range: at..end, ..place });
                return;
            }
            if is_shared { FatbinDamage::SectionOverlap } else { FatbinDamage::TooMany }
        }
        _ => FatbinDamage::SectionCut,
    };
    tally.problem(&place, at, problem);
}

/// The part of `offset` and `size` that lies in a file of `length` bytes; none when that is nothing.
fn clipped(offset: u64, size: u64, length: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)).min(length);
    (start < end).then_some(start..end)
}

/// Joins ranges that share bytes, so that none is looked at twice however many there are.
fn disjoint(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut sorted: Vec<Range<usize>> = ranges.collect();
    sorted.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_share_bytes_are_looked_at_once() {
        let joined = disjoint([10..20, 0..5, 15..30, 30..31, 12..13].into_iter());
        assert_eq!(joined, [0..5, 10..30, 30..31]);
        assert_eq!(clipped(4, u64::MAX, 10), Some(4..10));
        assert_eq!(clipped(10, 1, 10), None);
    }
}
