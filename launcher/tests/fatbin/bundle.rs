//! AMD's bundles.

use std::io::Write as _;

use super::made::{Elf, bundle, compressed, elf};
use super::{problems, read, read_section, texts};

const SECTION: &str = ".hip_fatbin";
const HOST: &str = "host-x86_64-unknown-linux-gnu-";

fn usual() -> Vec<u8> {
    bundle(&[
        (HOST, b""),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", &[1; 5000]),
        ("hipv4-amdgcn-amd-amdhsa--gfx1100", &[2; 100]),
        ("hipv4-amdgcn-amd-amdhsa--gfx11-generic", &[3; 100]),
    ])
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn the_targets_of_bundles_are_read_with_their_features() {
    let other =
        bundle(&[(HOST, b""), ("hip-amdgcn-amd-amdhsa-gfx906", b"code"), ("hip-amdgcn-amd-amdhsa--gfx900", b"")]);
    let mut bytes = usual();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let content = read_section(SECTION, &[bytes.clone(), other, bytes].concat());
    // What is named without code is not there.
    assert_eq!(texts(&content.regions), ["1 gfx906", "2 gfx90a:sramecc+:xnack- gfx1100 gfx11-generic"]);
}

#[test]
fn compressed_bundles_of_every_version_are_read() {
    for (method, packed) in [(0, zlib(&usual())), (1, zstd(&usual()))] {
        for version in 1..=3 {
            let mut one = compressed(version, method, &packed, usual().len());
            one.resize(one.len().next_multiple_of(4096), 0);
            let content = read_section(SECTION, &[one.clone(), usual(), vec![0; 31], one].concat());
            assert_eq!(
                texts(&content.regions),
                ["3 gfx90a:sramecc+:xnack- gfx1100 gfx11-generic"],
                "{version} {method}"
            );
        }
    }
}

#[test]
fn only_the_beginning_of_a_compressed_bundle_is_unpacked() {
    // 64 MiB that pack to a few KiB, and an end that is missing.
    let large = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx942", &vec![0; 64 << 20])]);
    let mut packed = zstd(&large);
    packed.truncate(packed.len() - 16);
    let content = read_section(SECTION, &compressed(2, 1, &packed, large.len()));
    assert_eq!(texts(&content.regions), ["1 gfx942"]);
}

#[test]
fn code_that_is_for_no_card_of_amd_is_counted_by_its_name() {
    let bytes = bundle(&[("hip-spirv64-amd-amdhsa--amdgcnspirv", b"code"), ("\u{1b}[2J", b"code")]);
    let content = read_section(SECTION, &bytes);
    assert_eq!(texts(&content.regions), ["1"]);
    let others: Vec<_> = content.others.into_iter().collect();
    assert_eq!(others, [("hip-spirv64-amd-amdhsa--amdgcnspirv".to_owned(), 1), ("without a name".to_owned(), 1)]);
}

#[test]
fn bundles_are_found_where_sections_have_no_names() {
    let letters = b"CCOB is no bundle by itself".as_slice();
    let packed = compressed(3, 1, &zstd(&usual()), usual().len());
    let stripped = Elf { is_stripped: true, ..Elf::default() };
    let content = read(&stripped.with(&[(".rodata", letters), (SECTION, &packed), (SECTION, &usual())])).unwrap();
    assert_eq!(texts(&content.regions), ["2 gfx90a:sramecc+:xnack- gfx1100 gfx11-generic"]);
    assert_eq!(problems(&content), Vec::<String>::new());
}

#[test]
fn a_bundle_that_is_not_whole_is_said_and_the_next_one_is_read() {
    let mut list = usual();
    list[24] = 9;
    let garbage = compressed(2, 1, &[0xff; 40], 9999);
    let unknown = compressed(2, 7, &[0xff; 40], 9999);
    let bytes = [list, garbage, unknown, usual()].concat();
    let content = read(&elf(&[(SECTION, &bytes)])).unwrap();
    assert_eq!(texts(&content.regions), ["1 gfx90a:sramecc+:xnack- gfx1100 gfx11-generic"]);
    let what: Vec<String> = content.problems.iter().map(|problem| problem.what.to_string()).collect();
    assert_eq!(
        what,
        [
            "a bundle that is not whole",
            "a compressed bundle that cannot be unpacked",
            "a compressed bundle of version 2 by method 7, which is not known here",
        ]
    );
}
