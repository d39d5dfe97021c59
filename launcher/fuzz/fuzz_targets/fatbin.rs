//! The reader of GPU code: what follows the first byte lies in a section of a file that is right in all else.

#![no_main]

mod cost;
#[path = "../../tests/support/fatbin.rs"]
#[expect(dead_code, reason = "the tests of the reader write more than is needed here")]
mod made;
mod seeds;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use torchlift::preflight::fatbin;

/// The sections that hold GPU code, chosen by the first byte.
const SECTIONS: [&str; 3] = [".nv_fatbin", "__nv_relfatbin", ".hip_fatbin"];
/// Bit of the first byte: the file has no section headers, so that the bytes have to be searched for.
const STRIPPED: u8 = 0x80;
/// Bit of the first byte: a region begins before the bytes and ends with them.
const IN_REGION: u8 = 0x40;

fuzz_target!(init: seeds::write(), |bytes: &[u8]| cost::bounded(|| read(bytes)));

fn read(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let section = SECTIONS[usize::from(choice & 0x3f) % SECTIONS.len()];
    let content = if choice & IN_REGION != 0 { made::region_of(rest) } else { rest.to_vec() };
    let file = made::Elf { is_stripped: choice & STRIPPED != 0, ..made::Elf::default() };
    let file = file.with(&[(section, &content)]);
    let found = fatbin::parse(&file, Path::new("input")).expect("the file around it is right");
    let Some(found) = found else { return };
    // A region has at least a header, and problems are counted beyond the first 32.
    assert!(found.count() <= file.len() as u64 / 16);
    assert!(found.problems.len() <= 32);
    assert!(found.coverage().values().all(|regions| *regions <= found.count()));
    assert!(found.problems.iter().all(|problem| problem.offset <= file.len() as u64));
}
