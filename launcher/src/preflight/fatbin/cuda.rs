//! NVIDIA's fatbins: regions, each with entries for several architectures.
//!
//! The format is not documented; what is read here was made with NVIDIA's `fatbinary` and is held against `cuobjdump` in
//! the tests that have both. All numbers are little-endian.
//!
//! | region | | entry | |
//! | --- | --- | --- | --- |
//! | 0 | u32 magic `0xBA55ED50` | 0 | u16 kind: 1 PTX, 2 SASS, 0x100 several entries in one |
//! | 4 | u16 version, 1 | 2 | u16 version, 0x101 |
//! | 6 | u16 length of this header, 16 | 4 | u32 length of this header |
//! | 8 | u64 length of the entries | 8 | u64 length of the payload |
//! | | | 20 | u32 where the options of the compiler stand in the header, 0 for none |
//! | | | 24 | u16 minor, u16 major version of the code: of PTX, that of its language |
//! | | | 28 | u32 architecture, such as 90 |
//! | | | 32 | u32 where, u32 how long a name in the header is |
//! | | | 40 | u64 flags: bit 13 LZ4, bit 15 zstd, bit 20 for this architecture alone, bit 21 for its family |
//!
//! Whether the payload is compressed makes no difference to what is read: the header never is.

use memchr::memmem;
use torchlift_schema::gpu::{CudaArch, GpuCode, Specificity};

use super::FatbinDamage;
use super::bytes::{after_zeros, end, u16_at, u32_at, u64_at};
use super::isa;
use super::section::Place;
use super::tally::{Region, Tally};

const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
const REGION_VERSION: u16 = 1;
const REGION_HEADER: u16 = 16;
/// How a region begins: magic, version and length of its header.
const BEGINNING: [u8; 8] = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], REGION_VERSION as u8, 0, REGION_HEADER as u8, 0];
/// Regions and entries begin at multiples of this many bytes.
const ALIGNMENT: usize = 8;

const ENTRY_VERSION: u16 = 0x101;
/// The part of an entry's header that every entry has.
const ENTRY_HEADER: usize = 64;
const KIND_PTX: u16 = 1;
const KIND_SASS: u16 = 2;
/// `fatbinary --concat`: entries whose payloads were joined before they were compressed. Their headers follow in this one.
const KIND_JOINED: u16 = 0x100;
const FLAG_ARCH: u64 = 1 << 20;
const FLAG_FAMILY: u64 = 1 << 21;

/// Reads the regions of a section, one behind the other.
pub(super) fn walk(tally: &mut Tally, place: &Place, data: &[u8]) {
    let bytes = &data[..place.range.end];
    let mut at = place.range.start;
    while let Some(start) = after_zeros(bytes, at) {
        if tally.is_full() {
            return;
        }
        let next = match region(tally, place, bytes, start) {
            Ok(next) => Some(next),
            Err(what) => {
                let is_cut = matches!(what, FatbinDamage::RegionCut { .. });
                tally.problem(place, start, what);
                // What follows a region that is too long would be read as regions of their own, were they parts of it.
                if is_cut { None } else { beginning(bytes, start + 1) }
            }
        };
        let Some(next) = next else { return };
        at = next;
    }
}

/// Reads the regions of a place in which other things lie too: only what begins as a region does is taken for one.
pub(super) fn search(tally: &mut Tally, place: &Place, data: &[u8]) {
    let bytes = &data[..place.range.end];
    let mut at = place.range.start;
    while let Some(start) = beginning(bytes, at) {
        if tally.is_full() {
            return;
        }
        at = region(tally, place, bytes, start).unwrap_or(start + ALIGNMENT);
    }
}

/// Where the next bytes stand that begin a region, from `at` on.
fn beginning(bytes: &[u8], mut at: usize) -> Option<usize> {
    let finder = memmem::Finder::new(&BEGINNING);
    loop {
        at += finder.find(bytes.get(at..)?)?;
        if at.is_multiple_of(ALIGNMENT) {
            return Some(at);
        }
        at += 1;
    }
}

/// Reads the region at `start`; gives where it ends. `bytes` end with their section.
fn region(tally: &mut Tally, place: &Place, bytes: &[u8], start: usize) -> Result<usize, FatbinDamage> {
    let head = &bytes[start..];
    if !head.starts_with(&MAGIC) {
        return Err(FatbinDamage::Unknown);
    }
    let fields = || Some((u16_at(head, 4)?, u16_at(head, 6)?, u64_at(head, 8)?));
    let (version, header, size) = fields().ok_or(FatbinDamage::RegionCut { size: 0, room: 0 })?;
    if version != REGION_VERSION || header != REGION_HEADER {
        return Err(FatbinDamage::RegionFormat { version, header });
    }
    let room = head.len() - usize::from(header);
    let first = start + usize::from(header);
    let stop = end(first, &[size]).filter(|stop| *stop <= bytes.len());
    let stop = stop.ok_or(FatbinDamage::RegionCut { size, room: room as u64 })?;

    let mut region = Region::default();
    let mut at = first;
    while at < stop && !tally.is_full() {
        match entry(tally, place, &mut region, &bytes[..stop], at) {
            Ok(next) => at = next,
            Err(_) if after_zeros(&bytes[..stop], at).is_none() => break,
            // Where the next entry would be is not known; the next region is.
            Err(what) => {
                tally.unreadable(place, at, &mut region, what);
                break;
            }
        }
    }
    tally.region(place, start, region);
    Ok(stop)
}

/// Reads the entry at `at` of a region, with which `bytes` end; gives where the entry ends. An error is one that hides
/// that place too.
fn entry(
    tally: &mut Tally,
    place: &Place,
    region: &mut Region,
    bytes: &[u8],
    at: usize,
) -> Result<usize, FatbinDamage> {
    let head = &bytes[at..];
    let fields = || Some((u16_at(head, 0)?, u16_at(head, 2)?, u32_at(head, 4)?, u64_at(head, 8)?));
    let (kind, version, header, payload) = fields().ok_or(FatbinDamage::EntryCut)?;
    let format = FatbinDamage::EntryFormat { version, header };
    let next = end(at, &[header.into(), payload]).filter(|next| *next <= bytes.len()).ok_or(FatbinDamage::EntryCut)?;
    let header = &head[..next - at][..header as usize];
    if header.len() < ENTRY_HEADER {
        return Err(format);
    }
    if version != ENTRY_VERSION {
        tally.unreadable(place, at, region, format);
    } else if kind == KIND_JOINED {
        if joined(tally, place, region, header, at).is_none() {
            tally.unreadable(place, at, region, FatbinDamage::JoinedEntries);
        }
    } else if count(tally, place, region, header, at).is_none() {
        return Err(format);
    }
    Ok(next)
}

/// Counts what the header of one entry says, which stands at byte `at` of the file.
fn count(tally: &mut Tally, place: &Place, region: &mut Region, header: &[u8], at: usize) -> Option<()> {
    let (kind, number) = (u16_at(header, 0)?, u32_at(header, 28)?);
    let (minor, major, flags) = (u16_at(header, 24)?, u16_at(header, 26)?, u64_at(header, 40)?);
    let specificity = if flags & FLAG_ARCH != 0 {
        Specificity::Arch
    } else if flags & FLAG_FAMILY != 0 {
        Specificity::Family
    } else {
        Specificity::Plain
    };
    let arch = CudaArch::from_number(number, specificity);
    match (kind, arch) {
        (KIND_SASS, Some(arch)) => tally.code(place, at, region, GpuCode::Sass(arch)),
        (KIND_PTX, Some(arch)) => tally.code(place, at, region, GpuCode::Ptx(arch, isa::toolkit(major, minor))),
        (KIND_SASS | KIND_PTX, None) => tally.unreadable(place, at, region, FatbinDamage::EntryArch { number }),
        _ => tally.other(place, region, &format!("fatbin kind {kind}")),
    }
    Some(())
}

/// Counts the entries whose headers stand in `header`, behind their number and the length of them all; none when they
/// do not fill that length.
///
/// Each is a header as above, in which the place of its payload stands where its length would: how long it is follows
/// from the texts at its end.
fn joined(tally: &mut Tally, place: &Place, region: &mut Region, header: &[u8], at: usize) -> Option<()> {
    let number = u32_at(header, ENTRY_HEADER)?;
    let size = usize::try_from(u32_at(header, ENTRY_HEADER + 4)?).ok()?;
    let table = header.get(ENTRY_HEADER..)?.get(..size)?;
    let mut rest = table.get(8..)?;
    for _ in 0..number {
        if tally.is_full() {
            return Some(());
        }
        let length = joined_length(rest)?;
        let own = rest.get(..length)?;
        // Nested lists do not exist, and are counted as what they are: a kind without code for a card.
        count(tally, place, region, own, at)?;
        rest = &rest[length..];
    }
    rest.is_empty().then_some(())
}

/// How long the header is with which `header` begins.
fn joined_length(header: &[u8]) -> Option<usize> {
    // Both texts end with a zero byte, and what follows begins at the next multiple of 8.
    let after =
        |offset: u32, length: u32| end(0, &[offset.into(), length.into(), 1])?.checked_next_multiple_of(ALIGNMENT);
    let (name, options) = (u32_at(header, 32)?, usize::try_from(u32_at(header, 20)?).ok()?);
    let mut length = ENTRY_HEADER;
    if name != 0 {
        length = length.max(after(name, u32_at(header, 36)?)?);
    }
    if options != 0 {
        length = length.max(after(u32_at(header, options)?, u32_at(header, options.checked_add(4)?)?)?);
    }
    Some(length)
}
