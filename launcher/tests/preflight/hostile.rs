//! Symbol tables that no linker makes: what they cost has to end, however they point at each other.

use torchlift::preflight::elf::ElfError;
use torchlift::preflight::symbols;

use crate::Room;

/// A symbol of the table: where its name stands, and whether it is defined.
type Symbol = (u32, bool);

/// A 64-bit little-endian library in which a relocation refers to each undefined symbol. All symbols from the first
/// defined one on are one chain of its hash table, each with the hash `hash`.
fn library(names: &[u8], symbols: &[Symbol], hash: u32) -> Vec<u8> {
    const DYNAMIC: u64 = 64 + 2 * 56;
    const TAGS: u64 = 7;
    let numbers = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    // Index 0 is that of no symbol.
    let first = 1 + symbols.iter().take_while(|symbol| !symbol.1).count();
    let mut table = vec![0; 24];
    let mut relocations = Vec::new();
    for (index, (name, is_defined)) in symbols.iter().enumerate() {
        table.extend(name.to_le_bytes());
        // Global, of default visibility.
        table.extend([0x10, 0, u8::from(*is_defined), 0]);
        table.extend([0; 16]);
        if !is_defined {
            // R_X86_64_GLOB_DAT.
            relocations.extend(numbers(&[0, (index as u64 + 1) << 32 | 6, 0]));
        }
    }
    let chain = symbols.len() + 1 - first;
    let mut hashes: Vec<u32> = vec![1, first as u32, 1, 0, 0, 0, first as u32];
    hashes.extend((0..chain).map(|step| hash & !1 | u32::from(step + 1 == chain)));
    let hashes: Vec<u8> = hashes.iter().flat_map(|value| value.to_le_bytes()).collect();

    let mut at = DYNAMIC + TAGS * 16;
    let mut place = |content: &[u8]| {
        let start = at;
        at += content.len() as u64;
        start
    };
    let tags = [
        (7, place(&relocations)),
        (8, relocations.len() as u64),
        (6, place(&table)),
        (0x6fff_fef5, place(&hashes)),
        (5, place(names)),
        (10, names.len() as u64),
        (0, 0),
    ];
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    bytes.extend(numbers(&[0, 64, 0]));
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    for (kind, start, size) in [(1_u64, 0, at), (2, DYNAMIC, TAGS * 16)] {
        bytes.extend(numbers(&[kind | 4 << 32, start, start, start, size, size, 8]));
    }
    bytes.extend(tags.iter().flat_map(|(tag, value)| numbers(&[*tag, *value])));
    [bytes, relocations, table, hashes, names.to_vec()].concat()
}

/// The hash of DT_GNU_HASH.
fn hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

#[test]
fn symbols_with_the_hash_of_another_are_compared_up_to_a_limit() {
    let room = Room::new();
    let path = room.path("libalike.so");
    let missing = |others: usize| {
        // `wanted` at 1, and `other` at 8.
        let mut symbols = vec![(1, false)];
        symbols.extend(vec![(8, true); others]);
        symbols.push((1, true));
        fs_err::write(&path, library(b"\0wanted\0other\0", &symbols, hash("wanted"))).unwrap();
        symbols::unresolved(&[&path]).unwrap().into_iter().map(|symbol| symbol.symbol).collect::<Vec<_>>()
    };
    assert!(missing(0).is_empty());
    assert!(missing(15).is_empty(), "a few names may share a hash");
    assert_eq!(missing(16), ["wanted"]);
    assert_eq!(missing(100_000), ["wanted"]);
}

#[test]
fn the_names_of_references_have_a_limit_together() {
    let room = Room::new();
    let path = room.path("liblong.so");
    // All names end where the text does.
    let mut names = vec![b'x'; 100_000];
    names.push(0);
    let long = |count: u32| {
        let symbols: Vec<Symbol> = (0..count).map(|start| (start, false)).collect();
        fs_err::write(&path, library(&names, &symbols, 0)).unwrap();
        symbols::unresolved(&[&path])
    };
    let missing = long(100).unwrap();
    assert_eq!((missing.len(), missing[0].symbol.len()), (16, 100_000));
    match long(3000).unwrap_err() {
        ElfError::Damaged { what, .. } => {
            assert_eq!(what, "its symbols have longer names than those of any real library");
        }
        other => panic!("{other}"),
    }
}
