//! `xtask schema`, by its built program.

#![expect(clippy::unwrap_used, reason = "a test stops where its ground is not there")]

use std::path::Path;

use assert_cmd::Command;
use fs_err as fs;
use torchlift_schema::{exit_code, schema};
use torchlift_xtask::commands::CHECK_FAILED;

/// `xtask schema` in a folder.
fn xtask(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xtask")).arg("schema").args(args).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A workspace that cargo takes for Torchlift's own, without schemas.
fn checkout() -> tempfile::TempDir {
    let root = tempfile::Builder::new().prefix("check out é ").tempdir().unwrap();
    fs::create_dir_all(root.path().join("envelope-schema/src")).unwrap();
    fs::write(root.path().join("Cargo.toml"), "[workspace]\nresolver = \"3\"\nmembers = [\"envelope-schema\"]\n")
        .unwrap();
    let manifest = "[package]\nname = \"torchlift-schema\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::write(root.path().join("envelope-schema/Cargo.toml"), manifest).unwrap();
    fs::write(root.path().join("envelope-schema/src/lib.rs"), "").unwrap();
    root
}

#[test]
fn the_schemas_of_this_checkout_are_current() {
    let (code, stdout, stderr) = xtask(Path::new(env!("CARGO_MANIFEST_DIR")), &["--check"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("are current"), "{stdout}");
}

#[test]
fn what_is_written_is_current_and_is_what_the_types_say() {
    let root = checkout();
    // A folder below the root does as well as the root.
    let (code, stdout, stderr) = xtask(&root.path().join("envelope-schema/src"), &[]);
    assert_eq!(code, 0, "{stderr}");
    for (name, text) in schema::files() {
        assert_eq!(fs::read_to_string(root.path().join("envelope-schema/schema").join(name)).unwrap(), text);
        assert!(stdout.contains(name), "{stdout}");
    }
    assert_eq!(xtask(root.path(), &["--check"]).0, 0);
    let (code, stdout, _) = xtask(root.path(), &[]);
    assert!(code == 0 && stdout.contains("are current") && !stdout.contains("wrote"), "{stdout}");
}

#[test]
fn a_check_names_each_stale_file_and_changes_none() {
    let root = checkout();
    assert_eq!(xtask(root.path(), &[]).0, 0);
    let folder = root.path().join("envelope-schema/schema");
    fs::write(folder.join("envelope.schema.json"), "{}\n").unwrap();
    fs::remove_file(folder.join("per-host-map.schema.json")).unwrap();
    fs::write(folder.join("gone.schema.json"), "{}\n").unwrap();

    let (code, stdout, stderr) = xtask(root.path(), &["--check"]);
    assert_eq!((code, stdout.as_str()), (i32::from(CHECK_FAILED), ""), "{stderr}");
    for (name, words) in [
        ("envelope.schema.json", "is not what the types say"),
        ("per-host-map.schema.json", "is not there"),
        ("gone.schema.json", "no type has this schema any more"),
    ] {
        assert!(stderr.contains(name) && stderr.contains(words), "{name}: {stderr}");
    }
    assert!(!stderr.contains("per-host-envelope.schema.json"), "{stderr}");
    assert_eq!(fs::read_to_string(folder.join("envelope.schema.json")).unwrap(), "{}\n");

    assert_eq!(xtask(root.path(), &[]).0, 0);
    assert!(!folder.join("gone.schema.json").exists());
    assert_eq!(xtask(root.path(), &["--check"]).0, 0);
}

#[test]
fn elsewhere_it_says_where_it_works() {
    let empty = tempfile::tempdir().unwrap();
    let other = checkout();
    let manifest = "[package]\nname = \"other\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::write(other.path().join("envelope-schema/Cargo.toml"), manifest).unwrap();
    for folder in [empty.path(), other.path()] {
        let (code, stdout, stderr) = xtask(folder, &["--check"]);
        assert_eq!((code, stdout.as_str()), (i32::from(exit_code::USAGE), ""), "{stderr}");
        assert!(stderr.contains("works in Torchlift's own checkout only") && stderr.contains("hint:"), "{stderr}");
    }
}
