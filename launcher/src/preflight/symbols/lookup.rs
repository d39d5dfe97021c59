//! Whether an object offers a symbol, asked as the loader asks: by the hash table of the object.

use std::collections::HashSet;

use object::elf;
use object::endian::{Endianness, U32};
use object::read::ReadRef;
use object::read::elf::{FileHeader, Sym};

use super::{exports, is_exported};
use crate::preflight::elf::Image;

/// Entries of one chain that are followed; real chains have a handful.
const MAX_CHAIN: usize = 512;
/// Symbols of one chain whose names are compared: those with the same 31 bits of hash. Of two different names in a
/// library that is already rare.
const MAX_ALIKE: usize = 16;

/// The symbols of an object, by name.
pub(super) enum Offer<'i, 'd, H: FileHeader<Endian = Endianness>> {
    /// With a DT_GNU_HASH: nothing has to be read beforehand.
    Hashed(Hashed<'i, 'd, H>),
    /// With the older DT_HASH, or without any.
    Listed(HashSet<&'d [u8]>),
}

/// A DT_GNU_HASH table and the symbols behind it.
pub(super) struct Hashed<'i, 'd, H: FileHeader<Endian = Endianness>> {
    image: &'i Image<'d, H>,
    /// Index of the first symbol that is in the table.
    base: usize,
    buckets: &'d [U32<Endianness>],
    chains: &'d [U32<Endianness>],
    symbols: &'d [u8],
    versions: &'d [u8],
}

impl<'i, 'd, H: FileHeader<Endian = Endianness>> Offer<'i, 'd, H> {
    pub(super) fn of(image: &'i Image<'d, H>) -> Result<Self, &'static str> {
        if image.value(elf::DT_GNU_HASH).is_some() {
            return Hashed::read(image).map(Self::Hashed);
        }
        Ok(Self::Listed(exports(image)?.into_iter().map(|export| export.name).collect()))
    }

    /// Whether it offers `name`, of whatever version.
    pub(super) fn has(&self, name: &[u8], hash: u32) -> bool {
        match self {
            Self::Hashed(table) => table.has(name, hash),
            Self::Listed(names) => names.contains(name),
        }
    }
}

impl<'i, 'd, H: FileHeader<Endian = Endianness>> Hashed<'i, 'd, H> {
    fn read(image: &'i Image<'d, H>) -> Result<Self, &'static str> {
        const OUTSIDE: &str = "its symbol hash table lies outside the file";
        let at = |tag| image.value(tag).and_then(|address| image.at(address));
        let endian = image.endian();
        let bytes = at(elf::DT_GNU_HASH).ok_or(OUTSIDE)?;
        let header: &elf::GnuHashHeader<Endianness> = bytes.read_at(0).map_err(|()| OUTSIDE)?;
        let filter = u64::from(header.bloom_count.get(endian)) * size_of::<H::Word>() as u64;
        let mut offset = size_of::<elf::GnuHashHeader<Endianness>>() as u64 + filter;
        let buckets = bytes.read_slice(&mut offset, header.bucket_count.get(endian) as usize).map_err(|()| OUTSIDE)?;
        let rest = (bytes.len() as u64).saturating_sub(offset) / 4;
        let chains = bytes.read_slice(&mut offset, rest as usize).map_err(|()| OUTSIDE)?;
        let base = header.symbol_base.get(endian) as usize;
        let symbols = at(elf::DT_SYMTAB).ok_or("its symbol table lies outside the file")?;
        Ok(Self { image, base, buckets, chains, symbols, versions: at(elf::DT_VERSYM).unwrap_or_default() })
    }

    fn has(&self, name: &[u8], hash: u32) -> bool {
        let endian = self.image.endian();
        let Some(bucket) = (hash as usize).checked_rem(self.buckets.len()) else { return false };
        let first = self.buckets[bucket].get(endian) as usize;
        let Some(place) = first.checked_sub(self.base) else { return false };
        let chain = self.chains.get(place..).unwrap_or_default();
        let mut alike = 0;
        for (step, value) in chain.iter().take(MAX_CHAIN).enumerate() {
            let value = value.get(endian);
            // The lowest bit says that the chain ends; the others are the hash's.
            if value | 1 == hash | 1 {
                if self.is_named(first + step, name) {
                    return true;
                }
                alike += 1;
            }
            if value & 1 == 1 || alike == MAX_ALIKE {
                return false;
            }
        }
        false
    }

    fn is_named(&self, index: usize, name: &[u8]) -> bool {
        let endian = self.image.endian();
        let Ok(symbol) = self.symbols.read_at::<H::Sym>((index * size_of::<H::Sym>()) as u64) else { return false };
        let version = self.versions.read_at::<elf::Versym<Endianness>>(index as u64 * 2);
        let version = version.map_or(1, |version| version.0.get(endian).0);
        is_exported(symbol, endian, version)
            // The end of a longer name is not looked for.
            && self.image.string(symbol.st_name(endian).into(), name.len()) == Ok(name)
    }
}

/// The hash of DT_GNU_HASH tables.
pub(super) fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_gabi_supplement() {
        assert_eq!(gnu_hash(b""), 0x1505);
        assert_eq!(gnu_hash(b"printf"), 0x156b_2bb8);
    }
}
