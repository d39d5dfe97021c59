//! Bytes that no tool makes: nothing may panic, and neither memory nor time may run away.

use std::path::Path;

use proptest::prelude::*;
use torchlift::preflight::elf::ElfError;
use torchlift::preflight::fatbin::{self, FatbinDamage};

use super::made::{ARCH, Elf, Entry, bundle, compressed, elf, joined, region, region_of};
use super::{problems, read, read_section, texts};

const SECTION: &str = ".nv_fatbin";

#[test]
fn a_region_that_is_cut_short_is_said_with_its_place() {
    let whole = region(&[Entry::sass(75, 0), Entry::sass(90, 0)]);
    let two = [whole.clone(), whole.clone()].concat();
    for cut in 1..whole.len() {
        let content = read(&elf(&[(SECTION, &two[..two.len() - cut])])).unwrap();
        assert_eq!(texts(&content.regions), ["1 sm_75 sm_90"], "{cut} bytes less");
        assert_eq!((content.problems.len(), content.unlisted_problems), (1, 0), "{:?}", content.problems);
    }
    let content = read(&elf(&[(SECTION, &two[..two.len() - 1])])).unwrap();
    let expected = "`.nv_fatbin`, at byte 320 of the file: a region of 176 bytes in a section that has 175 left";
    assert_eq!(problems(&content), [expected]);
}

#[test]
fn lengths_past_the_end_and_beyond_64_bits_are_refused() {
    let good = region(&[Entry::sass(75, 0)]);
    for size in [good.len() as u64, 1 << 40, i64::MAX as u64, u64::MAX - 15, u64::MAX] {
        let mut long = good.clone();
        long[8..16].copy_from_slice(&size.to_le_bytes());
        let content = read(&elf(&[(SECTION, &long)])).unwrap();
        let room = (good.len() - 16) as u64;
        assert_eq!(content.problems[0].what, FatbinDamage::RegionCut { size, room });

        let mut entry = good.clone();
        entry[24..32].copy_from_slice(&size.to_le_bytes());
        let content = read(&elf(&[(SECTION, &[entry, good.clone()].concat())])).unwrap();
        assert_eq!(content.problems[0].what, FatbinDamage::EntryCut);
        assert_eq!(texts(&content.regions), ["1", "1 sm_75"], "the next region is read");

        let offset_size_and_name = if size > 1 << 32 { [32, 40, 48].as_slice() } else { &[] };
        for field in offset_size_and_name {
            let mut list = bundle(&[("hip-amdgcn-amd-amdhsa--gfx90a", b"code")]);
            list[*field..*field + 8].copy_from_slice(&size.to_le_bytes());
            let content = read(&elf(&[(".hip_fatbin", &list)])).unwrap();
            assert_eq!(content.problems[0].what, FatbinDamage::BundleCut, "{field} {size}");
        }
    }
    for header in [0_u32, 1, 63, u32::MAX] {
        let mut entry = good.clone();
        entry[20..24].copy_from_slice(&header.to_le_bytes());
        let content = read(&elf(&[(SECTION, &entry)])).unwrap();
        assert_eq!(texts(&content.regions), ["1"]);
        assert_eq!(content.problems.len(), 1);
    }
}

#[test]
fn a_section_beyond_the_file_or_within_another_is_said_and_passed_over() {
    let good = region(&[Entry::sass(75, 0)]);
    for excess in [1 << 20, u64::MAX - 200] {
        let content = read(&Elf { excess, ..Elf::default() }.with(&[(SECTION, &good)])).unwrap();
        let expected = "`.nv_fatbin`, at byte 128 of the file: a section that ends beyond the file";
        assert_eq!(problems(&content), [expected]);
    }
    let shared = Elf { excess: 16, ..Elf::default() }.with(&[(SECTION, &good), ("__nv_relfatbin", &good)]);
    let content = read(&shared).unwrap();
    assert_eq!(content.problems[0].what, FatbinDamage::SectionOverlap);
    assert_eq!(texts(&content.regions), ["1 sm_75"]);
}

#[test]
fn files_that_are_no_elf_or_end_early_are_errors() {
    let whole = elf(&[(SECTION, &region(&[Entry::sass(75, 0)]))]);
    let error = |bytes: &[u8]| fatbin::parse(bytes, Path::new("lib.so")).unwrap_err();
    assert!(matches!(error(b"text"), ElfError::NotElf { .. }));
    assert!(matches!(error(b""), ElfError::Empty { .. }));
    assert_eq!(
        error(&whole[..whole.len() - 1]).to_string(),
        "`lib.so` is a damaged ELF file: its section headers lie outside the file"
    );
    assert!(matches!(error(&whole[..40]), ElfError::Damaged { .. }));
}

#[test]
fn a_hundred_thousand_entries_and_as_many_regions_are_counted_in_little_room() {
    let mut entry = Entry::sass(90, 0);
    entry.payload.clear();
    let many = region(&vec![entry.clone(); 100_000]);
    let content = read_section(SECTION, &many);
    assert_eq!(texts(&content.regions), ["1 sm_90"]);
    assert_eq!(content.entries.into_values().collect::<Vec<_>>(), [100_000]);

    let content = read_section(SECTION, &region(&[entry]).repeat(100_000));
    assert_eq!(texts(&content.regions), ["100000 sm_90"]);
}

#[test]
fn more_combinations_than_any_real_file_has_end_the_reading() {
    // Each region has another set of architectures: the bits of its number.
    let entries: Vec<Vec<u8>> = (0..14).map(|bit| Entry::sass(50 + bit, 0).bytes()).collect();
    let one = |number: u32| {
        let chosen = entries.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
        region_of(&chosen.flat_map(|(_, entry)| entry.clone()).collect::<Vec<_>>())
    };
    let content = read(&elf(&[(SECTION, &(1..1 << 14).flat_map(one).collect::<Vec<_>>())])).unwrap();
    assert_eq!(content.regions.len(), 1024);
    assert_eq!(content.problems.iter().map(|problem| &problem.what).collect::<Vec<_>>(), [&FatbinDamage::TooVaried]);

    let codes: Vec<Entry> = (10..1000).map(|arch| Entry::sass(arch, 0)).collect();
    let content = read(&elf(&[(SECTION, &region(&codes))])).unwrap();
    assert_eq!(content.entries.len(), 512);
    assert_eq!(content.problems.iter().map(|problem| &problem.what).collect::<Vec<_>>(), [&FatbinDamage::TooVaried]);
}

#[test]
fn a_flood_of_problems_is_counted_and_not_kept() {
    let strange = region(&[Entry::sass(0, 0)]);
    let content = read(&elf(&[(SECTION, &strange.repeat(10_000))])).unwrap();
    assert_eq!((content.problems.len(), content.unlisted_problems), (32, 9_968));

    let strange = region(&(0..1000).map(|kind| Entry { kind: 1000 + kind, ..Entry::sass(75, 0) }).collect::<Vec<_>>());
    assert!(read_section(SECTION, &strange).others.len() <= 33);
}

#[test]
fn bundles_that_unpack_to_much_more_than_they_are_end_the_reading() {
    // Each of these is 60 bytes and unpacks to a MiB.
    let packed = zstd::encode_all(vec![0_u8; 1 << 20].as_slice(), 3).unwrap();
    let one = compressed(2, 1, &packed, 1 << 20);
    let content = read(&elf(&[(".hip_fatbin", &one.repeat(20_000))])).unwrap();
    let last = content.problems.last().unwrap();
    assert_eq!(last.what, FatbinDamage::TooMany);
}

/// Something that begins well, and then bytes of it replaced.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let cuda = [
        region(&[Entry::sass(75, 0), Entry::sass(90, ARCH), Entry::ptx(90, 0, (8, 0))]),
        vec![0; 24],
        region_of(&joined(&[Entry::sass(100, 0), Entry::ptx(61, 0, (7, 8))])),
    ]
    .concat();
    let hip = bundle(&[("host-x86_64", b""), ("hip-amdgcn-amd-amdhsa--gfx90a:xnack+", b"code")]);
    let packed =
        [0, 1, 2].map(|version| compressed(version + 1, 1, &zstd::encode_all(hip.as_slice(), 3).unwrap(), hip.len()));
    let hip = [hip, packed.concat()].concat();
    let files: Vec<Vec<u8>> = [false, true]
        .map(|is_stripped| Elf { is_stripped, ..Elf::default() }.with(&[(SECTION, &cuda), (".hip_fatbin", &hip)]))
        .to_vec();
    let change = (any::<prop::sample::Index>(), prop_oneof![Just(0), Just(0xff), any::<u8>()]);
    (prop::sample::select(files), prop::collection::vec(change, 1..12), any::<prop::sample::Index>(), any::<bool>())
        .prop_map(|(mut file, changes, end, is_cut)| {
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if is_cut {
                file.truncate(end.index(file.len()));
            }
            file
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic_or_grow(file in mutated()) {
        if let Ok(Some(content)) = fatbin::parse(&file, Path::new("lib.so")) {
            // A region has at least 16 bytes and an entry 64.
            prop_assert!(content.count() <= file.len() as u64 / 16);
            prop_assert!(content.entries.values().sum::<u64>() <= file.len() as u64 / 16);
            prop_assert!(content.regions.is_sorted() && content.regions.iter().all(|group| group.count > 0));
            // What is read can be written and read again.
            let text = serde_json::to_string(&content).unwrap();
            prop_assert_eq!(serde_json::from_str::<fatbin::GpuContent>(&text).unwrap(), content);
        }
    }

    #[test]
    fn arbitrary_sections_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), hip in any::<bool>()) {
        let section = if hip { ".hip_fatbin" } else { SECTION };
        let _content = read(&elf(&[(section, &bytes)]));
        // Behind a true beginning.
        let _content = read(&elf(&[(section, &region_of(&bytes))]));
    }
}
