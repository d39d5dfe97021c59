//! Folders and archives that hold a small libtorch.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use camino::{Utf8Path, Utf8PathBuf};

use crate::wheel;
use crate::world::{World, said};

/// The id that [`libtorch`] gets.
pub(crate) const ID: &str = "precompiled/cpu-2.9.0";

/// Writes a libtorch for a CPU as the official archives hold it, with a link and an executable.
pub(crate) fn libtorch(world: &World, root: &Utf8Path, version: &str) {
    fs_err::create_dir_all(root.join("lib")).unwrap();
    fs_err::create_dir_all(root.join("include/torch")).unwrap();
    for (name, needed) in [
        ("libtorch_cpu.so", &["libc10.so", "libgomp.so.1"][..]),
        ("libtorch.so", &["libtorch_cpu.so"]),
        ("libc10.so", &[]),
        ("libgomp.so.1", &[]),
    ] {
        write(&root.join("lib").join(name), &wheel::library(&world.index(), name, needed), 0o755);
    }
    fs_err::os::unix::fs::symlink("libgomp.so.1", root.join("lib/libgomp.so")).unwrap();
    write(&root.join("include/torch/ü b.h"), b"#pragma once\n", 0o644);
    write(&root.join("build-version"), format!("{version}\n").as_bytes(), 0o644);
}

/// Writes a file with its mode.
pub(crate) fn write(file: &Utf8Path, content: &[u8], mode: u32) {
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    fs_err::write(file, content).unwrap();
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A world, and a libtorch in a folder of it.
pub(crate) fn with_libtorch() -> (World, Utf8PathBuf) {
    let world = World::new();
    let root = world.base.join("mein libtorch");
    libtorch(&world, &root, "2.9.0+cpu");
    (world, root)
}

/// A world whose store has a variant.
pub(crate) fn with_variant() -> (World, Utf8PathBuf) {
    let (world, root) = with_libtorch();
    ok(&world.run(&["add", root.as_str()]));
    let variant = world.store().join(ID);
    (world, variant)
}

/// The command's standard output, when it succeeded.
pub(crate) fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What a command said that failed with this code.
pub(crate) fn fails(output: &Output, code: u8) -> String {
    let told = said(output);
    assert_eq!(output.status.code(), Some(code.into()), "{told}");
    told
}

/// One entry of a tar archive.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: tar::EntryType,
    /// What a link says.
    pub(crate) target: &'a str,
    pub(crate) content: &'a [u8],
}

/// A regular file.
pub(crate) fn file<'a>(name: &'a str, content: &'a [u8]) -> Entry<'a> {
    Entry { name, kind: tar::EntryType::Regular, target: "", content }
}

/// A link of either kind.
pub(crate) fn link<'a>(kind: tar::EntryType, name: &'a str, target: &'a str) -> Entry<'a> {
    Entry { name, kind, target, content: b"" }
}

/// A tar archive with these entries at its end, and the folder `tree` (if any) before them, below `top`. Names are written
/// as they are given: the usual tools would refuse half of them.
pub(crate) fn tar(tree: Option<(&Utf8Path, &str)>, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    if let Some((tree, top)) = tree {
        builder.append_dir_all(top, tree).unwrap();
    }
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        old.linkname[..entry.target.len()].copy_from_slice(entry.target.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_mode(0o644);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        builder.append(&header, entry.content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Packs with gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
