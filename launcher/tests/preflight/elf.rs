//! Facts of ELF files, real and damaged.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use torchlift::preflight::elf::{self, ElfError, Kind};
use torchlift::preflight::symbols;

use crate::Room;
use crate::stand_in::{compile, library, search, sources};

#[test]
fn a_program_and_a_library_tell_what_they_are() {
    let room = Room::new();
    let leaf = room.path("libleaf.so");
    library("leaf.c", &leaf, &["-Wl,--build-id=0xC0FFEE"]);
    let facts = elf::read(&leaf).unwrap();
    assert_eq!(facts.kind, Kind::Shared);
    assert_eq!(facts.arch, std::env::consts::ARCH);
    assert_eq!(facts.soname.as_deref(), Some("libleaf.so"));
    assert_eq!(facts.build_id.as_deref(), Some("c0ffee"));
    assert_eq!((facts.interpreter, facts.runpath), (None, None));

    let branch = room.path("libbranch.so");
    let folder = search(&room.root);
    library(
        "branch.c",
        &branch,
        &[folder.as_str(), "-lleaf", "-Wl,--disable-new-dtags,-rpath,/a::/b", "-Wl,-z,nodefaultlib"],
    );
    let facts = elf::read(&branch).unwrap();
    assert_eq!(facts.needed[0], "libleaf.so");
    assert_eq!(
        (facts.rpath.as_slice(), facts.runpath.as_deref()),
        (["/a", "", "/b"].map(str::to_owned).as_slice(), None)
    );
    assert!(facts.has_nodefaultlib);

    let program = room.path("tree");
    let undefined = "-Wl,--allow-shlib-undefined";
    let args = [folder.as_str(), "-lbranch", "-pie", undefined, "-Wl,--enable-new-dtags,-rpath,$ORIGIN"];
    compile("cc", "tree.c", &program, &args);
    let facts = elf::read(&program).unwrap();
    assert_eq!(facts.kind, Kind::PositionIndependent);
    assert_eq!(facts.needed[0], "libbranch.so");
    assert!(facts.interpreter.unwrap().contains("ld-linux"));
    assert_eq!((facts.rpath, facts.runpath), (vec![], Some(vec!["$ORIGIN".to_owned()])));
    compile("cc", "tree.c", &program, &[folder.as_str(), "-lbranch", "-no-pie", undefined]);
    assert_eq!(elf::read(&program).unwrap().kind, Kind::Executable);

    compile("cc", "leaf.c", &room.path("leaf.o"), &["-c"]);
    assert_eq!(elf::read(&room.path("leaf.o")).unwrap().kind, Kind::Other);
}

#[test]
fn a_library_without_section_headers_reads_the_same() {
    let room = Room::new();
    let leaf = room.path("libversioned.so");
    let map = format!("-Wl,--version-script={}", sources().join("versioned.map").display());
    library("versioned.c", &leaf, &[map]);
    let mut bytes = fs_err::read(&leaf).unwrap();
    let (facts, exports) = (elf::read(&leaf).unwrap(), symbols::read(&leaf).unwrap());
    // e_shoff, e_shnum and e_shstrndx of a 64-bit file.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    assert_eq!(elf::parse(&bytes, &leaf).unwrap(), facts);
    assert_eq!(symbols::parse(&bytes, &leaf).unwrap(), exports);
}

/// Report 18: a binary that needs a newer glibc than a host has.
#[test]
fn the_highest_glibc_version_that_a_binary_needs_is_read_from_the_binary() {
    let room = Room::new();
    let libm = room.path("libm.so.6");
    let map = format!("-Wl,--version-script={}", sources().join("future_libm.map").display());
    library("future_libm.c", &libm, &[map]);
    let program = room.path("future");
    compile("cc", "future_user.c", &program, &[libm.to_str().unwrap()]);
    let facts = elf::read(&program).unwrap();
    assert_eq!(facts.glibc().as_deref(), Some("2.999"));
    assert_eq!(facts.libstdcxx(), None);
    assert_eq!(elf::read(&libm).unwrap().version_defs, ["GLIBC_2.999"]);
}

#[test]
fn glibc_and_libstdcxx_versions_are_those_that_readelf_prints() {
    let room = Room::new();
    let greet = room.path("libgreet.so");
    library::<&str>("greet.cpp", &greet, &[]);
    for file in [greet.as_path(), Path::new("/bin/ls"), &std::env::current_exe().unwrap()] {
        let output = Command::new("readelf").args(["-W", "-V"]).arg(file).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let needs = printed.split("Version needs section").nth(1).unwrap_or_default();
        let names: Vec<&str> =
            needs.lines().filter_map(|line| line.split("Name: ").nth(1)?.split(' ').next()).collect();
        let facts = elf::read(file).unwrap();
        let ours: Vec<&str> =
            facts.version_needs.iter().flat_map(|need| &need.versions).map(|version| version.name.as_str()).collect();
        assert_eq!(ours, names);
        assert_eq!(facts.glibc(), elf::highest(names.iter().copied(), "GLIBC_"));
        assert!(facts.glibc().is_some());
    }
    assert!(elf::read(&greet).unwrap().libstdcxx().is_some());
}

#[test]
fn what_is_no_elf_file_is_told_apart() {
    let room = Room::new();
    let read = |bytes: &[u8]| {
        let path = room.path("file");
        fs_err::write(&path, bytes).unwrap();
        elf::read(&path).unwrap_err()
    };
    assert!(matches!(read(b""), ElfError::Empty { .. }));
    assert!(matches!(read(b"INPUT(libtorch_cpu.so libc10.so)\n"), ElfError::LinkerScript { .. }));
    assert!(matches!(
        read(b"/* GNU ld script\n*/\nGROUP ( AS_NEEDED ( libtorch_cpu.so ) )"),
        ElfError::LinkerScript { .. }
    ));
    assert!(matches!(read(b"hello"), ElfError::NotElf { .. }));
    assert!(matches!(read(b"INPUT\0"), ElfError::NotElf { .. }));
    assert!(matches!(read(b"\x7fELF"), ElfError::Damaged { .. }));
    assert!(matches!(read(b"\x7fELF\x02\x01\x01"), ElfError::Damaged { .. }));
    match read(b"#! /usr/bin/env  python3 -u\nprint()") {
        ElfError::Script { interpreter, .. } => assert_eq!(interpreter, "/usr/bin/env  python3 -u"),
        other => panic!("{other}"),
    }
    assert!(matches!(elf::read(&room.path("gone")).unwrap_err(), ElfError::Unreadable { .. }));
    assert!(matches!(elf::read(&room.root).unwrap_err(), ElfError::Unreadable { .. }));
    let error = elf::read(&room.path("gone")).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(!error.to_string().contains(&source), "an error does not repeat its source");
}

#[test]
fn a_file_cut_short_anywhere_is_an_error_or_a_file_and_never_a_panic() {
    let room = Room::new();
    let leaf = room.path("libleaf.so");
    library::<&str>("leaf.c", &leaf, &[]);
    let bytes = fs_err::read(&leaf).unwrap();
    for end in (0..bytes.len()).step_by(7) {
        let _ = elf::parse(&bytes[..end], &leaf);
        let _ = symbols::parse(&bytes[..end], &leaf);
    }
    assert!(matches!(elf::parse(&bytes[..100], &leaf), Err(ElfError::Damaged { .. })));
}

/// Real files whose bytes are then changed: with version definitions and needs, of C++, and a whole program.
fn real_files() -> Vec<Vec<u8>> {
    let room = Room::new();
    let map = format!("-Wl,--version-script={}", sources().join("versioned.map").display());
    library("versioned.c", &room.path("libversioned.so"), &[map]);
    library::<&str>("greet.cpp", &room.path("libgreet.so"), &[]);
    library("leaf.c", &room.path("libleaf.so"), &["-Wl,--hash-style=sysv", "-nostdlib"]);
    let args = [search(&room.root), "-lversioned".to_owned()];
    compile("cc", "versioned_user.c", &room.path("user"), &args);
    ["libversioned.so", "libgreet.so", "libleaf.so", "user"].map(|name| fs_err::read(room.path(name)).unwrap()).into()
}

#[test]
fn no_change_of_bytes_makes_the_readers_panic() {
    let files = real_files();
    let longest = files.iter().map(Vec::len).max().unwrap();
    // Most of what is read lies at the front: headers, symbols, strings, versions; the dynamic section is behind.
    let place = prop_oneof![3 => 0..4096_usize, 2 => 0..longest];
    let value = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(1), Just(8)];
    let changes = prop::collection::vec((place, value, 1..9_usize), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let path = Path::new("changed");
    let room = Room::new();
    let on_disk = room.path("changed");
    runner
        .run(&(0..files.len(), changes), |(file, changes)| {
            let mut bytes = files[file].clone();
            for (at, value, count) in changes {
                let at = at % bytes.len();
                let end = (at + count).min(bytes.len());
                bytes[at..end].fill(value);
            }
            let _ = elf::parse(&bytes, path);
            let _ = symbols::parse(&bytes, path);
            fs_err::write(&on_disk, &bytes).unwrap();
            let _ = symbols::unresolved(&[&on_disk]);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_hostile_file_costs_no_more_memory_than_its_limits() {
    // Every entry of a large dynamic section needs the same long name.
    let room = Room::new();
    let leaf = room.path("libleaf.so");
    library::<&str>("leaf.c", &leaf, &[]);
    let mut bytes = fs_err::read(&leaf).unwrap();
    let header = 64;
    let count = u16::from_le_bytes([bytes[56], bytes[57]]) as usize;
    let segment = |index: usize| header + index * 56;
    let dynamic = (0..count).map(segment).find(|at| bytes[*at] == 2).unwrap();
    let load = (0..count).map(segment).find(|at| bytes[*at] == 1).unwrap();
    let start = bytes.len().next_multiple_of(16);
    bytes.resize(start, 0);
    let base = 0x10_0000_u64;
    let entries = 50_000_u64;
    let strings = entries * 16 + 32;
    let mut push = |tag: u64, value: u64| {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    };
    push(5, base + strings);
    for _ in 0..entries {
        push(1, 0);
    }
    push(0, 0);
    let name = 4000;
    bytes.extend(vec![b'x'; name]);
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let size = (bytes.len() - start) as u64;
    for (at, kind) in [(dynamic, 2_u32), (load, 1)] {
        bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        for (field, value) in [(8, start as u64), (16, base), (32, size), (40, size)] {
            bytes[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let facts = elf::parse(&bytes, &leaf).unwrap();
    assert!(facts.needed.len() <= 4096, "{}", facts.needed.len());
    assert_eq!(facts.needed[0].len(), name);
}
