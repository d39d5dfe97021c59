//! `libtorch verify`: every byte is read, and every file that differs is named.

use std::os::unix::fs::MetadataExt as _;

use torchlift_schema::exit_code;

use crate::tree::{ID, fails, libtorch, ok, with_libtorch, with_variant, write};
use crate::world::said;

#[test]
fn a_library_that_changed_without_its_size_and_time_is_found() {
    let (world, variant) = with_variant();
    ok(&world.run(&["verify"]));
    let file = variant.join("lib/libtorch_cpu.so");
    let before = fs_err::metadata(&file).unwrap();
    let mut bytes = fs_err::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&file, bytes).unwrap();
    let open = fs_err::OpenOptions::new().write(true).open(&file).unwrap();
    open.file().set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(fs_err::metadata(&file).unwrap().mtime_nsec(), before.mtime_nsec());
    let told = fails(&world.run(&["verify", ID]), exit_code::INTEGRITY);
    assert!(told.contains("error[libtorch-file-changed]") && told.contains(file.as_str()), "{told}");
    assert_eq!(told.matches("sha256").count(), 2, "both digests are shown: {told}");
}

#[test]
fn each_changed_missing_and_additional_file_is_named_in_one_run() {
    let (world, variant) = with_variant();
    fs_err::remove_file(variant.join("lib/libtorch.so")).unwrap();
    nix::unistd::mkfifo(variant.join("lib/libtorch.so").as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs_err::remove_file(variant.join("lib/libc10.so")).unwrap();
    fs_err::remove_file(variant.join("lib/libgomp.so")).unwrap();
    fs_err::os::unix::fs::symlink("libc10.so", variant.join("lib/libgomp.so")).unwrap();
    write(&variant.join("lib/ü extra.so"), b"", 0o644);
    let output = world.run(&["verify", ID, "--format", "json"]);
    let told = fails(&output, exit_code::INTEGRITY);
    for (code, file) in [
        ("libtorch-file-changed", "lib/libtorch.so"),
        ("libtorch-file-changed", "lib/libgomp.so"),
        ("libtorch-file-missing", "lib/libc10.so"),
        ("libtorch-file-added", "lib/ü extra.so"),
    ] {
        let is_named = told.lines().any(|line| line.contains(code)) && told.contains(file);
        assert!(is_named, "{code} {file}: {told}");
    }
    assert_eq!(told.matches("error[").count(), 4, "{told}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let variant = &json["variants"][0];
    assert_eq!((variant["id"].as_str(), variant["outcome"].as_str()), (Some(ID), Some("differs")));
    assert_eq!(variant["differences"].as_array().unwrap().len(), 4);
}

#[test]
fn a_list_that_was_changed_along_with_a_file_is_no_proof() {
    let (world, variant) = with_variant();
    let list = variant.join("torchlift.sha256");
    let text = fs_err::read_to_string(&list).unwrap();
    duct::cmd!("sha256sum", "--check", "--strict", "--quiet", "torchlift.sha256").dir(&variant).run().unwrap();
    fs_err::write(&list, text.replacen(|c: char| c.is_ascii_hexdigit(), "0", 1)).unwrap();
    fs_err::write(&list, format!("{text}\n")).unwrap();
    let told = fails(&world.run(&["verify", ID]), exit_code::INTEGRITY);
    assert!(told.contains("error[libtorch-list-changed]") && told.contains("the record says"), "{told}");
    fs_err::remove_file(&list).unwrap();
    let told = fails(&world.run(&["verify", ID]), exit_code::INTEGRITY);
    assert!(told.contains("`torchlift.sha256` is gone"), "{told}");
    fs_err::write(&list, &text).unwrap();
    fs_err::write(variant.join("torchlift.json"), "{}").unwrap();
    let told = fails(&world.run(&["verify", ID]), exit_code::INTEGRITY);
    assert!(told.contains("`torchlift.json` is gone, or cannot be read"), "{told}");
}

#[test]
fn a_variant_that_a_person_put_there_is_a_warning_among_all_and_an_error_by_name() {
    let (world, _variant) = with_variant();
    libtorch(&world, &world.store().join("mine/own"), "2.9.0");
    let output = world.run(&["verify"]);
    let text = ok(&output);
    assert!(text.contains("mine/own\tnothing says what it was") && text.contains("as it was put in"), "{text}");
    assert!(said(&output).contains("warning[libtorch-unrecorded]"), "{}", said(&output));
    let told = fails(&world.run(&["verify", "mine/own"]), exit_code::INTEGRITY);
    assert!(told.contains("error[libtorch-unrecorded]") && told.contains("libtorch add"), "{told}");
    fails(&world.run(&["verify", "mine/none"]), exit_code::USAGE);
}

#[test]
fn inspect_tells_every_damaged_library_and_all_the_rest_and_fails() {
    let (world, root) = with_libtorch();
    let whole = fs_err::read(root.join("lib/libtorch.so")).unwrap();
    for name in ["libtorch.so", "libextra ü.so"] {
        write(&root.join("lib").join(name), &whole[..whole.len() / 3], 0o755);
    }
    let told = fails(&world.run(&["inspect", root.as_str()]), exit_code::USAGE);
    assert_eq!(told.matches("warning[libtorch-library-damaged]").count(), 2, "{told}");
    assert!(told.contains("error: `") && told.contains("cannot be read as a library"), "{told}");
    let output = world.run(&["inspect", root.as_str(), "--format", "json"]);
    fails(&output, exit_code::USAGE);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["libtorch"]["version"], "2.9.0+cpu");
    assert_eq!(json["libtorch"]["findings"].as_array().unwrap().len(), 2, "{json:#}");
    assert_eq!(json.get("abi_digest"), None, "what was not read whole has none");
}
