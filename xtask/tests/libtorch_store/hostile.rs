//! Archives that were made to do harm: each is refused as a whole, and nothing of it is left anywhere.

use camino::Utf8Path;
use tar::EntryType;
use torchlift_schema::exit_code;

use crate::tree::{Entry, fails, file, gzip, link, tar, with_libtorch};
use crate::wheel::{self, Member};
use crate::world::World;

/// Names of all that lies outside of the world's own folders.
fn escaped(world: &World) -> Vec<String> {
    let entries = walkdir::WalkDir::new(&world.base).into_iter().flatten();
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().contains("escaped"));
    found.map(|entry| entry.path().display().to_string()).collect()
}

fn refused(world: &World, archive: &Utf8Path, words: &str) {
    let told = fails(&world.run(&["add", archive.as_str()]), exit_code::BUILD);
    assert!(told.contains(words), "{words}: {told}");
    assert!(told.contains("not made by the usual tools"), "{told}");
    assert_eq!(world.remains(), [""; 0], "{words}");
    assert_eq!(escaped(world), [""; 0], "{words}");
    assert!(!Utf8Path::new("/escaped").exists());
}

#[test]
fn tar_entries_that_leave_the_folder_are_refused() {
    let (world, root) = with_libtorch();
    let device = |name, kind| Entry { name, kind, target: "", content: b"" };
    let cases: Vec<(Vec<Entry<'_>>, &str)> = vec![
        (vec![file("../escaped", b"x")], "would leave the folder"),
        (vec![file("/escaped", b"x")], "would leave the folder"),
        (vec![file("libtorch/../../escaped", b"x")], "would leave the folder"),
        (vec![file("libtorch\\escaped", b"x")], "would leave the folder"),
        (
            vec![file("\u{e9}".repeat(3).as_str(), b"x"), link(EntryType::Symlink, "l", "/etc/passwd")],
            "would leave the folder",
        ),
        (vec![link(EntryType::Symlink, "libtorch/l", "../../escaped")], "would leave the folder"),
        (vec![link(EntryType::Symlink, "libtorch/l", "lib/../../../x")], "would leave the folder"),
        (vec![link(EntryType::Symlink, "libtorch/l", "")], "would leave the folder"),
        (vec![link(EntryType::Link, "libtorch/l", "../escaped")], "would leave the folder"),
        (vec![link(EntryType::Link, "libtorch/l", "/etc/passwd")], "would leave the folder"),
        (
            vec![link(EntryType::Symlink, "libtorch/d", "lib"), file("libtorch/d/escaped", b"x")],
            "leads through the link `libtorch/d`",
        ),
        (
            vec![link(EntryType::Symlink, "libtorch/d", "lib"), link(EntryType::Link, "libtorch/e", "libtorch/d")],
            "leads through the link `libtorch/d`",
        ),
        (vec![device("libtorch/escaped", EntryType::Char)], "which is a device"),
        (vec![device("libtorch/escaped", EntryType::Block)], "which is a device"),
        (vec![device("libtorch/escaped", EntryType::Fifo)], "which is a pipe"),
        (vec![file("libtorch/a", b"x"), file("./libtorch//a", b"y")], "twice"),
        (vec![file("libtorch/lib", b"x")], "twice"),
    ]
    .into_iter()
    .map(|(entries, words)| (entries.into_iter().map(leak).collect(), words))
    .collect();
    for (index, (entries, words)) in cases.iter().enumerate() {
        let bytes = tar(Some((&root, "libtorch")), entries);
        let archive = world.base.join(format!("{index}.tar.gz"));
        fs_err::write(&archive, gzip(&bytes)).unwrap();
        refused(&world, &archive, words);
    }
}

/// The test's own few strings may live as long as it does.
fn leak<'a>(entry: Entry<'a>) -> Entry<'static> {
    Entry {
        name: entry.name.to_owned().leak(),
        kind: entry.kind,
        target: entry.target.to_owned().leak(),
        content: entry.content.to_vec().leak(),
    }
}

#[test]
fn zip_entries_that_leave_the_folder_are_refused() {
    let (world, root) = with_libtorch();
    let good = || Member::new("libtorch/build-version", fs_err::read(root.join("build-version")).unwrap());
    let linked = |name: &str, target: &str| Member { mode: 0o120_777, ..Member::new(name, target) };
    let cases = [
        (vec![Member::new("../escaped", "x")], "would leave the folder"),
        (vec![Member::new("/escaped", "x")], "would leave the folder"),
        (vec![Member::new("libtorch\\..\\escaped", "x")], "would leave the folder"),
        (vec![linked("libtorch/l", "/etc/passwd")], "would leave the folder"),
        (vec![linked("libtorch/l", "../../escaped")], "would leave the folder"),
        (
            vec![linked("libtorch/l", "lib"), Member::new("libtorch/l/escaped", "x")],
            "leads through the link `libtorch/l`",
        ),
        (vec![Member { mode: 0o010_644, ..Member::new("libtorch/p", "") }], "which is a device, a pipe or a socket"),
        (vec![Member::new("libtorch//x", "1"), Member::new("libtorch/x", "2")], "twice"),
    ];
    for (index, (members, words)) in cases.into_iter().enumerate() {
        let archive = world.base.join(format!("{index}.zip"));
        let members: Vec<Member> = std::iter::once(good()).chain(members).collect();
        wheel::archive(&archive, &members);
        set_modes(&archive, &members);
        refused(&world, &archive, words);
    }
}

/// Writes what the usual writer would not: modes of links and pipes, into the archive's directory.
fn set_modes(archive: &Utf8Path, members: &[Member]) {
    let mut bytes = fs_err::read(archive).unwrap();
    for member in members.iter().filter(|member| member.mode > 0o7777) {
        let is_its = |at: &usize| bytes[at + 46..].starts_with(member.name.as_bytes());
        let at = directory(&bytes).into_iter().find(is_its).unwrap();
        bytes[at + 38..at + 42].copy_from_slice(&(member.mode << 16).to_le_bytes());
    }
    fs_err::write(archive, bytes).unwrap();
}

/// Where the entries of a zip archive's directory begin.
fn directory(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len().saturating_sub(46)).filter(|at| bytes[*at..].starts_with(b"PK\x01\x02")).collect()
}

#[test]
fn a_zip_entry_that_is_there_twice_is_refused_though_a_reader_sees_one() {
    let (world, _root) = with_libtorch();
    let archive = world.base.join("twice.zip");
    wheel::archive(&archive, &[Member::new("libtorch/aaaa", "1"), Member::new("libtorch/bbbb", "2")]);
    let bytes = fs_err::read(&archive).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(text.matches("bbbb").count(), 2);
    let mut bytes = bytes;
    while let Some(at) = bytes.windows(4).position(|window| window == b"bbbb") {
        bytes[at..at + 4].copy_from_slice(b"aaaa");
    }
    fs_err::write(&archive, bytes).unwrap();
    refused(&world, &archive, "holds `libtorch/aaaa` twice");
}

#[test]
fn an_archive_that_claims_more_than_a_libtorch_has_is_refused_before_it_is_written() {
    let (world, _root) = with_libtorch();
    let mut header = tar::Header::new_gnu();
    header.set_path("libtorch/escaped").unwrap();
    header.set_size(100 << 30);
    header.set_cksum();
    let archive = world.base.join("bomb.tar.gz");
    fs_err::write(&archive, gzip(header.as_bytes())).unwrap();
    refused(&world, &archive, "would unpack to more than 68.7 GB");

    // Zip states sizes in its directory: 20 times 4 GB here.
    let archive = world.base.join("bomb.zip");
    let names: Vec<String> = (0..20).map(|index| format!("libtorch/{index}")).collect();
    wheel::archive(&archive, &names.iter().map(|name| Member::new(name, "x")).collect::<Vec<_>>());
    let mut bytes = fs_err::read(&archive).unwrap();
    for at in directory(&bytes) {
        bytes[at + 24..at + 28].copy_from_slice(&0xf000_0000_u32.to_le_bytes());
    }
    fs_err::write(&archive, bytes).unwrap();
    refused(&world, &archive, "would unpack to more than 68.7 GB");
}

#[test]
fn a_zip_entry_that_holds_more_than_it_states_is_stopped() {
    let (world, _root) = with_libtorch();
    let archive = world.base.join("grows.zip");
    wheel::archive(&archive, &[Member::new("libtorch/lib/escaped", vec![b'x'; 1 << 20])]);
    let mut bytes = fs_err::read(&archive).unwrap();
    // The sizes in the directory and in front of the entry.
    for (mark, offset) in [(b"PK\x01\x02", 24), (b"PK\x03\x04", 22)] {
        let at = bytes.windows(4).position(|window| window == mark).unwrap() + offset;
        bytes[at..at + 4].copy_from_slice(&16_u32.to_le_bytes());
    }
    fs_err::write(&archive, bytes).unwrap();
    fails(&world.run(&["add", archive.as_str()]), exit_code::BUILD);
    assert_eq!(world.remains(), [""; 0]);
    assert_eq!(escaped(&world), [""; 0]);
}
