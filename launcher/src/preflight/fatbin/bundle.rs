//! AMD's code: clang's offload bundles, plain and compressed.
//!
//! The format is documented in LLVM's *Clang Offload Bundler*. A bundle is `__CLANG_OFFLOAD_BUNDLE__`, a u64 number of
//! entries, and of each entry three u64 (where its code stands from the beginning of the bundle, how long that is, how
//! long its name is) and the name, such as `hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-`. A compressed one is
//! `CCOB`, u16 version, u16 method, its lengths, and all of a plain one packed. All numbers are little-endian. A bundle
//! is one region.

use memchr::memmem;
use torchlift_schema::gpu::{GfxTarget, GpuCode};

use super::FatbinDamage;
use super::bytes::{after_zeros, end, u16_at, u32_at, u64_at};
use super::section::Place;
use super::tally::{Region, Tally};
use super::unpack::{Method, unpack};

const PLAIN: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const PACKED: &[u8] = b"CCOB";
/// Bytes of a list of targets; one entry has less than 128, and there are fewer than 200 targets.
const MAX_LIST: usize = 32 * 1024;
/// Bytes of the name of a target.
const MAX_NAME: usize = 256;
/// Compressed bundles that are unpacked in one file: what bounds time, since a few bytes may unpack to many.
const MAX_UNPACKED: usize = 16 * 1024;

/// Reads the bundles of a section, one behind the other.
pub(super) fn walk(tally: &mut Tally, place: &Place, data: &[u8]) {
    let bytes = &data[..place.range.end];
    let mut beginnings = Beginnings::new(bytes);
    let mut at = place.range.start;
    while let Some(start) = after_zeros(bytes, at) {
        if tally.is_full() {
            return;
        }
        let next = match bundle(tally, place, &mut beginnings, start) {
            Ok(next) => Some(next),
            Err(what) => {
                tally.problem(place, start, what);
                beginnings.from(start + 1)
            }
        };
        let Some(next) = next else { return };
        at = next;
    }
}

/// Reads the bundles of a place in which other things lie too: only what reads as a bundle is taken for one.
pub(super) fn search(tally: &mut Tally, place: &Place, data: &[u8]) {
    let mut beginnings = Beginnings::new(&data[..place.range.end]);
    let mut at = place.range.start;
    while let Some(start) = beginnings.from(at) {
        if tally.is_full() {
            return;
        }
        at = bundle(tally, place, &mut beginnings, start).unwrap_or(start + 1);
    }
}

/// Where bundles begin, looked for forwards, each byte once.
struct Beginnings<'d> {
    bytes: &'d [u8],
    plain: Next,
    packed: Next,
}

/// The next of one kind: not looked for yet up to some byte, or found, or not there.
enum Next {
    Unknown,
    At(usize),
    None,
}

impl Next {
    /// The first at or behind `at`, which `find` looks for when it is not known.
    fn from(&mut self, at: usize, find: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        match self {
            Self::At(next) if *next >= at => {}
            Self::None => {}
            Self::At(_) | Self::Unknown => *self = find(at).map_or(Self::None, Self::At),
        }
        if let Self::At(next) = self { Some(*next) } else { None }
    }
}

impl<'d> Beginnings<'d> {
    fn new(bytes: &'d [u8]) -> Self {
        Self { bytes, plain: Next::Unknown, packed: Next::Unknown }
    }

    /// Where the next bytes stand that begin a bundle, from `at` on, which never goes back.
    fn from(&mut self, at: usize) -> Option<usize> {
        let bytes = self.bytes;
        let plain = self.plain.from(at, |at| memmem::find(bytes.get(at..)?, PLAIN).map(|offset| at + offset));
        let packed = self.packed.from(at, |at| {
            // Four letters are found in code by chance; with a version and a method behind them they are not.
            let is_packed =
                |offset: usize| Packed::parse(&bytes[at + offset..]).is_some_and(|packed| packed.is_known());
            memmem::find_iter(bytes.get(at..)?, PACKED).find(|offset| is_packed(*offset)).map(|offset| at + offset)
        });
        plain.into_iter().chain(packed).min()
    }
}

/// Reads the bundle at `start`; gives where it ends. The bytes of `beginnings` end with their section.
fn bundle(
    tally: &mut Tally,
    place: &Place,
    beginnings: &mut Beginnings<'_>,
    start: usize,
) -> Result<usize, FatbinDamage> {
    let bytes = beginnings.bytes;
    let head = &bytes[start..];
    if head.starts_with(PLAIN) {
        let list = &head[..head.len().min(MAX_LIST)];
        return targets(tally, place, start, list, head.len()).map(|length| start + length);
    }
    if !head.starts_with(PACKED) {
        return Err(FatbinDamage::Unknown);
    }
    let packed = Packed::parse(head).ok_or(FatbinDamage::BundleCut)?;
    let Some(method) = packed.method().filter(|_| packed.is_known()) else {
        return Err(FatbinDamage::BundleFormat { version: packed.version, method: packed.method });
    };
    let stop = match packed.length {
        Some(length) => end(0, &[length]).filter(|stop| (packed.header..=head.len()).contains(stop)),
        // Version 1 does not say where it ends.
        None => Some(beginnings.from(start + packed.header).map_or(head.len(), |next| next - start)),
    };
    let stop = stop.ok_or(FatbinDamage::BundleCut)?;
    tally.unpacked += 1;
    if tally.unpacked > MAX_UNPACKED {
        tally.stop(place, start, FatbinDamage::TooMany);
        return Ok(start + stop);
    }
    let read = match unpack(method, &head[packed.header..stop], MAX_LIST) {
        Some(list) => {
            let length = end(0, &[packed.unpacked]).unwrap_or(usize::MAX);
            targets(tally, place, start, &list, length).map(|_| ())
        }
        None => Err(FatbinDamage::BundlePacked),
    };
    // Where the next one begins is known all the same.
    if let Err(what) = read {
        tally.problem(place, start, what);
    }
    Ok(start + stop)
}

/// The header of a compressed bundle.
struct Packed {
    version: u16,
    method: u16,
    /// Bytes of the header.
    header: usize,
    /// Bytes of all of it; none in version 1.
    length: Option<u64>,
    /// Bytes of what it unpacks to.
    unpacked: u64,
}

impl Packed {
    fn parse(head: &[u8]) -> Option<Self> {
        let (version, method) = (u16_at(head, 4)?, u16_at(head, 6)?);
        let (header, length, unpacked) = match version {
            1 => (20, None, u32_at(head, 8)?.into()),
            2 => (24, Some(u32_at(head, 8)?.into()), u32_at(head, 12)?.into()),
            3 => (32, Some(u64_at(head, 8)?), u64_at(head, 16)?),
            // Of another version nothing more is known.
            _ => (8, None, 0),
        };
        (head.len() >= header).then_some(Self { version, method, header, length, unpacked })
    }

    fn is_known(&self) -> bool {
        (1..=3).contains(&self.version) && self.method().is_some()
    }

    fn method(&self) -> Option<Method> {
        match self.method {
            0 => Some(Method::Zlib),
            1 => Some(Method::Zstd),
            _ => None,
        }
    }
}

/// Counts the targets in `list`, the beginning of a bundle of at most `length` bytes that stands at `start` of the file;
/// gives how long the bundle is. Nothing is counted of a list that does not hold together.
fn targets(tally: &mut Tally, place: &Place, start: usize, list: &[u8], length: usize) -> Result<usize, FatbinDamage> {
    let (targets, stop) = parse_list(list, length).ok_or(FatbinDamage::BundleCut)?;
    let mut region = Region::default();
    for name in targets {
        match gfx(name) {
            Some(target) => tally.code(place, start, &mut region, GpuCode::Gfx(target)),
            None => tally.other(place, &mut region, shown(name)),
        }
    }
    tally.region(place, start, region);
    Ok(stop)
}

/// The names of those entries that have code for another machine than the host, and where the bundle ends.
fn parse_list(list: &[u8], length: usize) -> Option<(Vec<&[u8]>, usize)> {
    let number = u64_at(list, PLAIN.len())?;
    let mut at = PLAIN.len() + 8;
    let mut stop = at;
    let mut names = Vec::new();
    // The list ends, or has an entry without a name, before the number is reached when that is wrong.
    for _ in 0..number {
        let (offset, size, name) = (u64_at(list, at)?, u64_at(list, at + 8)?, u64_at(list, at + 16)?);
        let name = usize::try_from(name).ok().filter(|name| (1..=MAX_NAME).contains(name))?;
        let text = list.get(at + 24..at + 24 + name)?;
        at += 24 + name;
        stop = stop.max(end(0, &[offset, size])?).max(at);
        if size > 0 && !text.starts_with(b"host-") {
            names.push(text);
        }
    }
    (stop <= length).then_some((names, stop))
}

/// The target in a name such as `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`. The four parts before it were written with one
/// dash, two, and `unknown` between, as years went by.
fn gfx(name: &[u8]) -> Option<GfxTarget> {
    let name = str::from_utf8(name).ok()?;
    let start = name.rfind("-gfx")? + 1;
    name[start..].parse().ok()
}

/// A name for people, without what could disturb a terminal.
fn shown(name: &[u8]) -> &str {
    match str::from_utf8(name) {
        Ok(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) => text,
        _ => "without a name",
    }
}
