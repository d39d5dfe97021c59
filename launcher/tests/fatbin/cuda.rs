//! NVIDIA's regions.

use super::made::{ARCH, Elf, Entry, FAMILY, LZ4, ZSTD, elf, joined, region, region_of};
use super::{problems, read, read_section, texts};

const SECTION: &str = ".nv_fatbin";

#[test]
fn equal_regions_are_counted_and_entries_are_counted_by_code() {
    let usual = region(&[Entry::sass(70, 0), Entry::sass(90, 0), Entry::ptx(90, 0, (8, 7))]);
    let special = region(&[Entry::sass(70, 0), Entry::sass(90, 0), Entry::sass(90, ARCH), Entry::sass(90, ARCH)]);
    let content = read_section(SECTION, &[usual.clone(), special, usual].concat());
    assert_eq!(texts(&content.regions), ["1 sm_70 sm_90 sm_90a", "2 sm_70 sm_90 compute_90@12.8"]);
    let entries: Vec<String> = content.entries.iter().map(|(code, count)| format!("{code} {count}")).collect();
    assert_eq!(entries, ["sm_70 3", "sm_90 3", "sm_90a 2", "compute_90@12.8 2"]);
    assert_eq!(content.count(), 3);
}

#[test]
fn code_for_one_architecture_and_for_a_family_are_told_apart_whatever_packs_it() {
    for packed in [0, LZ4, ZSTD] {
        let entries = [
            Entry::sass(100, packed),
            Entry::sass(100, packed | ARCH),
            Entry::sass(100, packed | FAMILY | 1 << 24),
            Entry::ptx(100, packed | FAMILY, (8, 8)),
            Entry::ptx(61, packed, (7, 8)),
            // A language that no toolkit of today has.
            Entry::ptx(61, packed, (99, 0)),
        ];
        let content = read_section(SECTION, &region(&entries));
        let expected = ["1 sm_100 sm_100a sm_100f compute_61 compute_61@11.8 compute_100f@12.9"];
        assert_eq!(texts(&content.regions), expected);
    }
}

#[test]
fn names_and_options_in_a_header_do_not_hide_what_follows() {
    let named = Entry { name: Some("foo"), options: Some("-v -O1"), ..Entry::ptx(61, 0, (8, 0)) };
    let content = read_section(SECTION, &region(&[named, Entry::sass(120, 0)]));
    assert_eq!(texts(&content.regions), ["1 sm_120 compute_61@12.0"]);
}

#[test]
fn joined_entries_are_counted_as_if_each_stood_alone() {
    let inner = [
        Entry { options: Some("0123456789abcdef"), ..Entry::sass(100, FAMILY) },
        Entry::sass(61, 0),
        Entry { name: Some("a name"), ..Entry::ptx(90, ARCH, (8, 0)) },
    ];
    let bytes = [joined(&inner), Entry::sass(75, 0).bytes()].concat();
    let content = read_section(SECTION, &region_of(&bytes));
    assert_eq!(texts(&content.regions), ["1 sm_61 sm_75 sm_100f compute_90a@12.0"]);

    let mut broken = joined(&inner);
    broken[64] = 4;
    let bytes = [broken, Entry::sass(75, 0).bytes()].concat();
    let content = read(&elf(&[(SECTION, &region_of(&bytes))])).unwrap();
    assert_eq!(
        problems(&content),
        ["`.nv_fatbin`, at byte 144 of the file: a list of joined entries that is not whole"]
    );
}

#[test]
fn zeros_between_regions_and_behind_them_are_padding() {
    let one = region(&[Entry::sass(75, 0)]);
    let bytes = [vec![0; 8], one.clone(), vec![0; 4096], one, vec![0; 100]].concat();
    assert_eq!(texts(&read_section(SECTION, &bytes).regions), ["2 sm_75"]);
}

#[test]
fn all_sections_of_a_name_are_read_and_regions_that_wait_for_a_linker_stand_apart() {
    let (old, new) = (region(&[Entry::sass(61, 0)]), region(&[Entry::sass(120, 0)]));
    let file = elf(&[(SECTION, &old), ("__nv_relfatbin", &new), (".rodata", &new), (SECTION, &old)]);
    let content = read(&file).unwrap();
    assert_eq!(texts(&content.regions), ["2 sm_61"]);
    assert_eq!(texts(&content.relocatable), ["1 sm_120"]);

    // A library of relocatable PTX alone has a linked region with nothing in it: the driver links.
    let ptx = region(&[Entry::ptx(90, 0, (8, 0))]);
    let content = read(&elf(&[(SECTION, &region(&[])), ("__nv_relfatbin", &ptx)])).unwrap();
    assert_eq!(texts(&content.regions), ["1 compute_90@12.0"]);
    assert_eq!(texts(&content.relocatable), Vec::<String>::new());
}

#[test]
fn a_file_without_gpu_code_has_none_and_a_region_without_entries_asks_nothing_of_a_card() {
    assert_eq!(read(&elf(&[(".rodata", b"text")])), None);
    assert_eq!(read(&elf(&[(SECTION, &[])])), None);
    assert_eq!(read(&elf(&[(SECTION, &region(&[]))])), None);
    let bytes = [region(&[]), region(&[Entry::sass(75, 0)])].concat();
    assert_eq!(texts(&read_section(SECTION, &bytes).regions), ["1 sm_75"]);
    // The debug information of a library has its sections without their bytes.
    assert_eq!(read(&Elf { is_without_bits: true, ..Elf::default() }.with(&[(SECTION, &bytes)])), None);
}

#[test]
fn intermediate_code_is_no_code_for_a_card() {
    let lto = Entry { kind: 8, ..Entry::sass(90, 0) };
    let content = read_section(SECTION, &region(&[lto]));
    assert_eq!(texts(&content.regions), ["1"]);
    assert_eq!(content.others.into_iter().collect::<Vec<_>>(), [("fatbin kind 8".to_owned(), 1)]);
}

#[test]
fn code_is_found_where_sections_have_no_names_or_other_ones() {
    let one = region(&[Entry::sass(75, 0), Entry::sass(90, 0)]);
    let between: Vec<u8> = (0..4099_u32).map(|n| (n % 251) as u8).collect();
    let sections: [(&str, &[u8]); 5] =
        [(".text", &between), (SECTION, &one), (".rodata", &between), (SECTION, &one), (".data", &between)];
    let stripped = Elf { is_stripped: true, ..Elf::default() };
    let content = read(&stripped.with(&sections)).unwrap();
    assert_eq!((texts(&content.regions), problems(&content)), (vec!["2 sm_75 sm_90".to_owned()], Vec::new()));

    // A linker script gathered the code elsewhere; what points at it tells that there is some.
    let content = read(&elf(&[(".gathered", &one), (".nvFatBinSegment", &[0; 24])])).unwrap();
    assert_eq!(texts(&content.regions), ["1 sm_75 sm_90"]);
    assert_eq!(read(&elf(&[(".gathered", &one)])), None);
}

#[test]
fn what_is_not_known_is_passed_over_and_said_and_the_rest_is_read() {
    let good = region(&[Entry::sass(75, 0)]);
    let mut other_format = good.clone();
    other_format[4] = 2;
    let strange = region(&[
        Entry { version: 0x201, ..Entry::sass(80, 0) },
        Entry::sass(0, 0),
        Entry::ptx(1000, 0, (8, 0)),
        Entry::sass(90, 0),
    ]);
    let bytes = [other_format, b"what is this    ".to_vec(), good, strange].concat();
    let content = read(&elf(&[(SECTION, &bytes)])).unwrap();
    assert_eq!(texts(&content.regions), ["1 sm_75", "1 sm_90"]);
    assert_eq!(
        problems(&content),
        [
            "`.nv_fatbin`, at byte 128 of the file: a region of version 2 with a header of 16 bytes, which is not known here",
            "`.nv_fatbin`, at byte 368 of the file: an entry of version 0x201 with a header of 64 bytes, which is not known here",
            "`.nv_fatbin`, at byte 456 of the file: an entry for architecture 0, which does not exist",
            "`.nv_fatbin`, at byte 544 of the file: an entry for architecture 1000, which does not exist",
        ]
    );
}
