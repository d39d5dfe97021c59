//! `ld.so.cache`: where `ldconfig` found the system's libraries.
//!
//! Reads the format `glibc-ld.so.cache1.1`, alone or behind the older one in the same file, with the extension that
//! names glibc-hwcaps folders. A damaged cache is an empty one, as it is for the loader.

use std::path::{Path, PathBuf};

use crate::preflight::map;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Bytes of an entry of the old format, and of its header with padding.
const OLD_ENTRY: usize = 12;
const OLD_HEADER: usize = 16;
/// Bytes of the new format's header and of one of its entries.
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
/// First word of the extension directory, and its section that lists glibc-hwcaps names.
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const HWCAPS_SECTION: u32 = 1;
/// Bit of an entry's `hwcap` that says: the low word is an index into that list.
const IS_HWCAPS_INDEX: u64 = 1 << 62;
/// Bytes of a cache that is read at all; a large system's has some 300 KB.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A parsed cache, in the host's own byte order.
#[derive(Clone, Debug, Default)]
pub struct LdCache {
    /// From the header of the new format to the end of the file: its offsets count from there.
    bytes: Vec<u8>,
    count: usize,
    hwcaps: Vec<String>,
}

impl LdCache {
    /// Reads the cache at `path`; empty when there is none or it is damaged.
    pub fn read(path: &Path) -> Self {
        map::look(path, Self::parse).unwrap_or_default()
    }

    /// Reads a cache from its bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_BYTES {
            return Self::default();
        }
        Self::parse_new(bytes).unwrap_or_default()
    }

    fn parse_new(bytes: &[u8]) -> Option<Self> {
        let start = if bytes.starts_with(OLD_MAGIC) {
            let entries = word(bytes, 12)? as usize;
            // The new header is aligned to its 8-byte numbers.
            OLD_HEADER.checked_add(entries.checked_mul(OLD_ENTRY)?)?.checked_next_multiple_of(8)?
        } else {
            0
        };
        let bytes = bytes.get(start..)?;
        if !bytes.starts_with(NEW_MAGIC) {
            return None;
        }
        let count = word(bytes, 20)? as usize;
        bytes.get(NEW_HEADER..NEW_HEADER.checked_add(count.checked_mul(NEW_ENTRY)?)?)?;
        let hwcaps = hwcaps(bytes, word(bytes, 32)? as usize).unwrap_or_default();
        Some(Self { bytes: bytes.to_owned(), count, hwcaps })
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many entries it has; a library has one for each of its builds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The path for `name` among the entries with `flags` (libc and machine), by the best of `hwcaps` (best first).
    pub fn lookup(&self, name: &str, flags: u32, hwcaps: &[String]) -> Option<PathBuf> {
        let mut best: Option<(usize, &str)> = None;
        for index in 0..self.count {
            let at = NEW_HEADER + index * NEW_ENTRY;
            let (key, value) = (word(&self.bytes, at + 4)? as usize, word(&self.bytes, at + 8)? as usize);
            if word(&self.bytes, at)? != flags || !self.is_string_at(key, name) {
                continue;
            }
            let hwcap = u64::from(word(&self.bytes, at + 16)?) | u64::from(word(&self.bytes, at + 20)?) << 32;
            let Some(rank) = self.rank(hwcap, hwcaps) else { continue };
            if best.is_none_or(|(known, _)| rank < known) {
                best = Some((rank, self.string_at(value)?));
            }
        }
        best.map(|(_, path)| PathBuf::from(path))
    }

    /// How good an entry is, 0 being best; none when this machine cannot use it.
    fn rank(&self, hwcap: u64, hwcaps: &[String]) -> Option<usize> {
        if hwcap == 0 {
            return Some(hwcaps.len());
        }
        // Entries of the folders that glibc gave up in 2.37 have other bits.
        if hwcap & IS_HWCAPS_INDEX == 0 {
            return None;
        }
        let name = self.hwcaps.get(hwcap as u32 as usize)?;
        hwcaps.iter().position(|known| known == name)
    }

    fn is_string_at(&self, offset: usize, text: &str) -> bool {
        self.bytes
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(text.as_bytes()) && rest.get(text.len()) == Some(&0))
    }

    fn string_at(&self, offset: usize) -> Option<&str> {
        string(&self.bytes, offset)
    }
}

fn hwcaps(bytes: &[u8], directory: usize) -> Option<Vec<String>> {
    if directory == 0 || word(bytes, directory)? != EXTENSION_MAGIC {
        return None;
    }
    let sections = word(bytes, directory.checked_add(4)?)? as usize;
    for section in 0..sections.min(64) {
        let at = directory.checked_add(8)?.checked_add(section * 16)?;
        if word(bytes, at)? != HWCAPS_SECTION {
            continue;
        }
        let (offset, size) = (word(bytes, at + 8)? as usize, word(bytes, at + 12)? as usize);
        let names = (0..(size / 4).min(1024)).map(|index| {
            let name = word(bytes, offset.checked_add(index * 4)?)? as usize;
            string(bytes, name).map(str::to_owned)
        });
        return names.collect();
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn string(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    std::ffi::CStr::from_bytes_until_nul(rest).ok()?.to_str().ok()
}

#[cfg(test)]
mod tests;
