//! What is checked before a start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use torchlift::preflight::verify::{ArtifactQuestion, StartQuestion, check_before_start, inspect_artifact};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code, digest};
use torchlift_schema::{Accelerator, Envelope, Finding, LibtorchRecord, PerHostEnvelope, exit_code};

use crate::stand_in::{compile, libtorch, program};
use crate::{Room, text};

/// A variant, a program and the envelope that a build would write for them.
struct Host {
    room: Room,
    lib: PathBuf,
    train: PathBuf,
    envelope: Envelope,
}

impl Host {
    fn new() -> Self {
        let room = Room::new();
        let lib = room.folder("torch/lib");
        libtorch(&lib, true);
        let train = room.path("train");
        program(&train, &lib, true);
        let library_path = LibraryPath::parse(lib.as_ref());
        let question = ArtifactQuestion {
            binary: &train,
            library_path: &library_path,
            variant_lib: Some(&lib),
            cwd: &room.root,
            is_elsewhere: false,
        };
        let host = HostLibraries::of_this_host();
        let found = inspect_artifact(question, &host, &mut DigestCache::in_memory()).unwrap();
        let run =
            PerHostEnvelope { bin: "train".into(), ld_library_path: text(&lib).into(), cwd_subpath: String::new() };
        let mut envelope = Envelope::new("gpu-07", run, found.artifact("x86_64-unknown-linux-gnu", "k", "s"));
        let mut record = LibtorchRecord::new(None, "2.9.0", Accelerator::Cuda("12.8".into()));
        record.libraries = found.libraries;
        envelope.libtorch = Some(record);
        Self { room, lib, train, envelope }
    }

    fn check(&self) -> Vec<Finding> {
        self.check_with(&self.envelope.ld_library_path)
    }

    fn check_with(&self, library_path: &str) -> Vec<Finding> {
        let question = StartQuestion {
            program: &self.train,
            library_path: &LibraryPath::parse(library_path.as_ref()),
            cwd: &self.room.root,
            envelope: Some(&self.envelope),
            host_name: Some("gpu-07"),
        };
        check_before_start(question, &HostLibraries::of_this_host(), &mut DigestCache::in_memory())
    }
}

/// What stands against a program that was named on the command line.
fn check_plain(program: &Path, library_path: &str, cwd: &Path) -> Vec<Finding> {
    let library_path = LibraryPath::parse(library_path.as_ref());
    let question = StartQuestion { program, library_path: &library_path, cwd, envelope: None, host_name: None };
    check_before_start(question, &HostLibraries::of_this_host(), &mut DigestCache::in_memory())
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

#[test]
fn what_was_built_and_not_touched_starts() {
    let host = Host::new();
    assert_eq!(host.check(), []);
    assert_eq!(code::exit_code(&host.check()), None);
}

/// Report 98: the binary was swapped after the build.
#[test]
fn a_swapped_binary_is_refused_with_both_digests() {
    let host = Host::new();
    let expected = digest::digest(&host.train).unwrap();
    program(&host.train, &host.lib, false);
    let found = digest::digest(&host.train).unwrap();
    assert_ne!(expected, found);
    let findings = host.check();
    assert_eq!(codes(&findings), [code::PROGRAM_CHANGED]);
    for part in [&expected.sha256, &found.sha256, &expected.size.to_string(), &found.size.to_string()] {
        assert!(findings[0].message.contains(part.as_str()), "{findings:?}");
    }
    assert_eq!(findings[0].place.host.as_deref(), Some("gpu-07"));
    assert_eq!(code::exit_code(&findings), Some(exit_code::INTEGRITY));
}

/// Report 98: a library was swapped after the build, for one of the same size.
#[test]
fn a_swapped_library_is_refused_with_both_digests() {
    let host = Host::new();
    let path = host.lib.join("libtorch_cpu.so");
    let expected = digest::digest(&path).unwrap();
    let mut bytes = fs_err::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs_err::write(&path, bytes).unwrap();
    let found = digest::digest(&path).unwrap();
    let findings = host.check();
    assert_eq!(codes(&findings), [code::LIBRARY_CHANGED]);
    for part in [text(&path), &expected.sha256, &found.sha256] {
        assert!(findings[0].message.contains(part), "{findings:?}");
    }
    assert_eq!(code::exit_code(&findings), Some(exit_code::INTEGRITY));
}

/// Report 3: a library was deleted; the program would have ended with 127.
#[test]
fn a_deleted_library_is_named_before_the_start() {
    let host = Host::new();
    fs_err::remove_file(host.lib.join("libtorch_cpu.so")).unwrap();
    let findings = host.check();
    assert_eq!(codes(&findings), [code::LIBRARY_MISSING]);
    let message = &findings[0].message;
    assert!(message.starts_with("`libtorch_cpu.so` not found in "), "{message}");
    assert!(message.contains(text(&host.lib)) && message.contains(text(&host.train)), "{message}");
    assert_eq!(code::exit_code(&findings), Some(exit_code::VERIFY));
}

/// Report 2, at the start: the envelope's library path is the parent of `lib`.
#[test]
fn an_envelope_with_the_parent_of_lib_is_stopped_with_the_folder_that_was_meant() {
    let host = Host::new();
    let findings = host.check_with(text(&host.room.path("torch")));
    let first = &findings[0];
    assert_eq!(first.code, code::LIBRARY_MISSING);
    let remedy = first.remedy.as_deref().unwrap();
    assert!(remedy.starts_with(&format!("did you mean `{}`", host.lib.display())), "{remedy}");
    assert!(codes(&findings).iter().all(|code| *code == code::LIBRARY_MISSING), "{findings:?}");
    assert_eq!(code::exit_code(&findings), Some(exit_code::VERIFY));
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_integrity_gives_the_exit_code() {
    let host = Host::new();
    program(&host.train, &host.lib, false);
    fs_err::remove_file(host.lib.join("libc10.so")).unwrap();
    fs_err::write(host.lib.join("libtorch_cuda.so"), "swapped").unwrap();
    let findings = host.check();
    let mut codes = codes(&findings);
    codes.sort_unstable();
    assert_eq!(codes, [code::LIBRARY_CHANGED, code::LIBRARY_MISSING, code::PROGRAM_CHANGED]);
    assert_eq!(code::exit_code(&findings), Some(exit_code::INTEGRITY));
}

/// Report 21: an empty element makes the loader search the working directory.
#[test]
fn an_empty_element_is_an_error_in_an_envelope_and_a_warning_in_what_the_user_brings() {
    let host = Host::new();
    let lib = text(&host.lib);
    for library_path in [format!(":{lib}"), format!("{lib}:"), format!("{lib}::/x"), format!("{lib};")] {
        let findings = host.check_with(&library_path);
        assert_eq!(codes(&findings), [code::EMPTY_LIBRARY_PATH_ELEMENT], "{library_path}");
        assert!(findings[0].is_error());
        let findings = check_plain(&host.train, &library_path, &host.room.root);
        assert_eq!(codes(&findings), [code::EMPTY_LIBRARY_PATH_ELEMENT]);
        assert!(!findings[0].is_error());
    }
    assert_eq!(check_plain(Path::new("/bin/true"), "", Path::new("/")), []);
}

#[test]
fn a_wrong_record_in_the_digest_cache_accuses_nobody() {
    let host = Host::new();
    // A cache that remembers other bytes for the same stamps cannot be made from outside; reading anew is tested
    // with the cache. Here: the same cache over two starts, with a swap between them.
    let mut cache = DigestCache::in_memory();
    let library_path = LibraryPath::parse(host.lib.as_ref());
    let question = StartQuestion {
        program: &host.train,
        library_path: &library_path,
        cwd: &host.room.root,
        envelope: Some(&host.envelope),
        host_name: None,
    };
    let libraries = HostLibraries::of_this_host();
    assert_eq!(check_before_start(question, &libraries, &mut cache), []);
    program(&host.train, &host.lib, false);
    assert_eq!(codes(&check_before_start(question, &libraries, &mut cache)), [code::PROGRAM_CHANGED]);
    program(&host.train, &host.lib, true);
    assert_eq!(check_before_start(question, &libraries, &mut cache), []);
}

#[test]
fn a_program_that_cannot_be_started_is_told_by_its_kind() {
    let room = Room::new();
    let check = |path: &Path| {
        let findings = check_plain(path, "", &room.root);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(code::exit_code(&findings), Some(exit_code::VERIFY));
        (findings[0].code.clone(), findings[0].message.clone())
    };
    let file = |name: &str, mode: u32, bytes: &[u8]| {
        let path = room.path(name);
        fs_err::write(&path, bytes).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    assert_eq!(check(&room.path("gone")).0, code::PROGRAM_MISSING);
    assert_eq!(check(&room.root).0, code::PROGRAM_NOT_A_FILE);
    let (found, message) = check(&file("plain", 0o644, b"\x7fELF"));
    assert_eq!(found, code::PROGRAM_NOT_EXECUTABLE);
    assert!(message.contains("0644"), "{message}");
    assert_eq!(check(&file("text", 0o755, b"echo hello\n")).0, code::PROGRAM_UNUSABLE);
    assert_eq!(check(&file("empty", 0o755, b"")).0, code::PROGRAM_UNUSABLE);
    let (found, message) = check(&file("cut", 0o755, &fs_err::read("/bin/true").unwrap()[..200]));
    assert_eq!(found, code::PROGRAM_UNUSABLE);
    assert!(message.contains("damaged"), "{message}");
    let (found, message) = check(&file("script", 0o755, b"#!/nowhere/python3 -u\n"));
    assert_eq!(found, code::INTERPRETER_MISSING);
    assert!(message.contains("`/nowhere/python3` is not there"), "{message}");
    assert_eq!(check(&file("dos", 0o755, b"#!/bin/sh\r\necho\r\n")).0, code::INTERPRETER_MISSING);
    assert_eq!(check(&file("nothing", 0o755, b"#!\n")).0, code::INTERPRETER_MISSING);
    let own = room.path("loop");
    assert_eq!(check(&file("loop", 0o755, format!("#!{}\n", own.display()).as_bytes())).0, code::INTERPRETER_MISSING);
}

#[test]
fn scripts_and_static_programs_start() {
    let room = Room::new();
    let script = room.path("skript");
    for line in ["#!/bin/sh -e", "#! /usr/bin/env python3", "#!/usr/bin/env\tpython3"] {
        fs_err::write(&script, format!("{line}\n")).unwrap();
        fs_err::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(check_plain(&script, "", &room.root), [], "{line}");
    }
    // A static program needs nothing, not even of a library path that leads nowhere.
    let fixed = room.path("static");
    for kind in ["-static", "-static-pie"] {
        compile("cc", "leaf.c", &fixed, &["-Dleaf=main", "-DLEAF=0", kind]);
        assert_eq!(check_plain(&fixed, "/nowhere", &room.root), [], "{kind}");
    }
}

#[test]
fn a_program_whose_loader_is_not_there_is_an_error() {
    let room = Room::new();
    let program = room.path("train");
    compile("cc", "leaf.c", &program, &["-Dleaf=main", "-Wl,--dynamic-linker,/lib/ld-musl-nowhere.so.1"]);
    let findings = check_plain(&program, "", &room.root);
    assert_eq!(codes(&findings), [code::INTERPRETER_MISSING]);
    assert!(findings[0].message.contains("`/lib/ld-musl-nowhere.so.1`"), "{findings:?}");
}

#[test]
fn a_plain_program_gets_the_loaders_search_only() {
    let host = Host::new();
    program(&host.train, &host.lib, false);
    assert_eq!(check_plain(&host.train, text(&host.lib), &host.room.root), []);
    let findings = check_plain(&host.train, "", &host.room.root);
    assert_eq!(codes(&findings), [code::LIBRARY_MISSING]);
}
