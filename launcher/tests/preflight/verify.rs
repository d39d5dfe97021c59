//! What a build learns of its binary.

use std::path::{Path, PathBuf};

use torchlift::preflight::loader::How;
use torchlift::preflight::verify::{ArtifactQuestion, Inspection, inspect_artifact};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code, digest};
use torchlift_schema::Finding;

use crate::stand_in::{compile, library, libtorch, program, search, sources};
use crate::{Room, text};

fn inspect(binary: &Path, library_path: &str, variant_lib: Option<&Path>) -> Inspection {
    let host = HostLibraries::of_this_host();
    let library_path = LibraryPath::parse(library_path.as_ref());
    let question =
        ArtifactQuestion { binary, library_path: &library_path, variant_lib, cwd: Path::new("/"), is_elsewhere: false };
    inspect_artifact(question, &host, &mut DigestCache::in_memory()).unwrap()
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// A variant `<room>/torch/lib` and a program `<room>/train`.
fn variant(has_cuda: bool, keeps_all: bool) -> (Room, PathBuf, PathBuf) {
    let room = Room::new();
    let lib = room.folder("torch/lib");
    libtorch(&lib, has_cuda);
    let train = room.path("train");
    program(&train, &lib, keeps_all);
    (room, lib, train)
}

#[test]
fn an_envelope_gets_the_binary_and_each_library_of_the_variant_that_it_loads() {
    let (_room, lib, train) = variant(true, true);
    // There and not loaded: it has no place in the envelope.
    fs_err::write(lib.join("libtorch_python.so"), "x").unwrap();
    let found = inspect(&train, text(&lib), Some(&lib));
    assert_eq!(found.findings, []);
    let files: Vec<&str> = found.libraries.iter().map(|library| library.file.as_str()).collect();
    assert_eq!(files, ["libc10.so", "libtorch_cpu.so", "libtorch_cuda.so"]);
    for library in &found.libraries {
        let digest = digest::digest(&lib.join(&library.file)).unwrap();
        assert_eq!((library.size, &library.sha256), (digest.size, &digest.sha256));
    }
    let artifact = found.artifact("x86_64-unknown-linux-gnu", "k", "s");
    assert_eq!(artifact.size, fs_err::metadata(&train).unwrap().len());
    assert_eq!(artifact.sha256, digest::digest(&train).unwrap().sha256);
    assert_eq!(artifact.needed[..3], ["libtorch_cuda.so", "libtorch_cpu.so", "libc10.so"]);
    assert!(artifact.glibc.is_some());
}

/// Report 1: the linker dropped `libtorch_cuda`, because the program refers to no symbol of it.
#[test]
fn a_gpu_library_that_the_linker_dropped_is_an_error() {
    let (_room, lib, train) = variant(true, false);
    let found = inspect(&train, text(&lib), Some(&lib));
    assert_eq!(codes(&found.findings), [code::ACCELERATOR_NOT_LINKED]);
    assert!(found.findings[0].is_error());
    assert!(found.findings[0].message.contains("`libtorch_cuda.so`"), "{:?}", found.findings);
    assert!(found.findings[0].remedy.as_ref().unwrap().contains("-ltorch_cuda"));
}

#[test]
fn a_gpu_library_that_another_library_loads_is_loaded() {
    let (room, lib, train) = variant(true, true);
    // `libtorch.so` needs it, as in the wheels, and the program needs `libtorch.so`.
    let folder = search(&lib);
    let args = ["-Wl,--no-as-needed", folder.as_str(), "-ltorch", "-ltorch_cpu", "-lc10"];
    compile("cc", "program.c", &train, &args);
    assert_eq!(inspect(&train, text(&lib), Some(&lib)).findings, []);
    drop(room);
}

#[test]
fn the_rocm_library_is_asked_for_as_the_cuda_one_is() {
    let (_room, lib, train) = variant(true, true);
    library::<&str>("leaf.c", &lib.join("libtorch_hip.so"), &[]);
    let found = inspect(&train, text(&lib), Some(&lib));
    assert_eq!(codes(&found.findings), [code::ACCELERATOR_NOT_LINKED]);
    assert!(found.findings[0].message.contains("ROCm"));
}

#[test]
fn a_variant_for_cpus_asks_for_no_gpu_library() {
    let (_room, lib, train) = variant(false, false);
    assert_eq!(inspect(&train, text(&lib), Some(&lib)).findings, []);
}

/// Report 2: the library path lacks the trailing `/lib`.
#[test]
fn a_library_path_beside_the_lib_folder_gets_the_folder_that_was_meant() {
    let (room, lib, train) = variant(false, false);
    let include = room.folder("torch/include");
    for wrong in [room.path("torch"), include, room.path("torch/lib64")] {
        let found = inspect(&train, text(&wrong), Some(&lib));
        assert_eq!(codes(&found.findings), [code::LIBRARY_MISSING]);
        let finding = &found.findings[0];
        assert!(finding.message.starts_with("`libtorch_cpu.so` not found in "), "{finding:?}");
        assert!(finding.message.contains(text(&wrong)) && finding.message.contains(text(&train)), "{finding:?}");
        assert_eq!(
            finding.remedy.as_deref().unwrap(),
            format!("did you mean `{}` instead of `{}`?", lib.display(), wrong.display())
        );
    }
}

#[test]
fn a_pipe_or_a_folder_in_a_librarys_place_is_named_and_not_waited_for() {
    let (_room, lib, train) = variant(false, false);
    let library = lib.join("libc10.so");
    for make in [make_pipe, make_folder] {
        let _ = fs_err::remove_file(&library);
        make(&library);
        let found = inspect(&train, text(&lib), Some(&lib));
        assert_eq!(codes(&found.findings), [code::LIBRARY_UNUSABLE]);
        assert!(found.findings[0].message.ends_with("which is not a regular file"), "{:?}", found.findings[0]);
    }
}

fn make_pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn make_folder(path: &Path) {
    fs_err::create_dir(path).unwrap();
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    let (_room, lib, train) = variant(true, true);
    fs_err::remove_file(lib.join("libc10.so")).unwrap();
    fs_err::remove_file(lib.join("libtorch_cuda.so")).unwrap();
    let found = inspect(&train, &format!("{}:", text(&lib)), Some(&lib));
    let mut codes = codes(&found.findings);
    codes.sort_unstable();
    assert_eq!(codes, [code::EMPTY_LIBRARY_PATH_ELEMENT, code::LIBRARY_MISSING, code::LIBRARY_MISSING]);
    for name in ["libc10.so", "libtorch_cuda.so"] {
        assert!(found.findings.iter().any(|finding| finding.message.starts_with(&format!("`{name}` not found"))));
    }
}

#[test]
fn a_binary_and_a_library_for_another_cpu_are_errors() {
    let (room, lib, train) = variant(false, false);
    let for_another = |path: &Path| {
        let mut bytes = fs_err::read(path).unwrap();
        // e_machine: s390x, which neither of our hosts is.
        bytes[18] = 22;
        fs_err::write(path, bytes).unwrap();
    };
    for_another(&lib.join("libc10.so"));
    let found = inspect(&train, text(&lib), Some(&lib));
    assert_eq!(codes(&found.findings), [code::WRONG_ARCHITECTURE]);
    assert!(found.findings[0].message.contains("libc10.so"), "{:?}", found.findings);
    let other = room.path("other");
    fs_err::copy(&train, &other).unwrap();
    for_another(&other);
    let found = inspect(&other, text(&lib), None);
    assert_eq!(found.findings[0].code, code::WRONG_ARCHITECTURE);
    assert!(found.findings[0].message.contains("the host is"), "{:?}", found.findings);
}

#[test]
fn a_torch_library_from_another_place_is_an_error() {
    let (room, lib, train) = variant(false, false);
    let other = room.folder("other torch/lib");
    libtorch(&other, false);
    let found = inspect(&train, &format!("{}:{}", text(&other), text(&lib)), Some(&lib));
    assert_eq!(codes(&found.findings), [code::LIBRARY_FROM_ELSEWHERE, code::LIBRARY_FROM_ELSEWHERE]);
    assert!(found.libraries.is_empty());
    // By a DT_RPATH, which no library path overrides.
    let args = [
        search(&lib),
        "-ltorch_cpu".into(),
        "-lc10".into(),
        format!("-Wl,--disable-new-dtags,-rpath,{}", text(&other)),
    ];
    compile("cc", "program.c", &train, &args);
    let found = inspect(&train, text(&lib), Some(&lib));
    assert!(found.closure.objects.iter().any(|object| object.how == How::Rpath));
    assert!(found.findings[0].remedy.as_ref().unwrap().contains("DT_RPATH"), "{:?}", found.findings);
    // A link that leads to the variant is the variant.
    let link = room.path("link");
    std::os::unix::fs::symlink(&lib, &link).unwrap();
    program(&train, &lib, false);
    let found = inspect(&train, text(&link), Some(&lib));
    assert_eq!(found.findings, []);
    assert_eq!(found.libraries.len(), 2);
}

#[test]
fn a_systems_own_library_may_stand_for_the_variants() {
    let (_room, lib, train) = variant(false, false);
    // The variant has a `libc.so.6`, and the library path does not lead to it.
    fs_err::write(lib.join("libc.so.6"), "x").unwrap();
    let folder = search(&lib);
    let rpath = format!("-Wl,-rpath-link,{}", text(&lib));
    fs_err::rename(lib.join("libc.so.6"), lib.join("libc.so.6 ")).unwrap();
    compile("cc", "program.c", &train, &[folder.as_str(), "-ltorch_cpu", "-lc10", rpath.as_str()]);
    let other = lib.parent().unwrap().join("loaded");
    fs_err::create_dir(&other).unwrap();
    for name in ["libc10.so", "libtorch_cpu.so"] {
        std::os::unix::fs::symlink(lib.join(name), other.join(name)).unwrap();
    }
    fs_err::rename(lib.join("libc.so.6 "), lib.join("libc.so.6")).unwrap();
    assert_eq!(inspect(&train, text(&other), Some(&lib)).findings, []);
}

/// Report 18: "GLIBC_2.38 not found".
#[test]
fn a_binary_that_needs_a_newer_glibc_is_an_error() {
    let room = Room::new();
    let libm = room.path("libm.so.6");
    let map = format!("-Wl,--version-script={}", sources().join("future_libm.map").display());
    library("future_libm.c", &libm, &[map]);
    let train = room.path("future");
    compile("cc", "future_user.c", &train, &[text(&libm)]);
    let found = inspect(&train, "", None);
    assert_eq!(codes(&found.findings), [code::VERSION_MISSING]);
    let message = &found.findings[0].message;
    assert!(message.contains("needs `GLIBC_2.999` of ") && message.contains("which goes up to `GLIBC_2."), "{message}");
    assert_eq!(found.artifact("t", "k", "s").glibc.as_deref(), Some("2.999"));
}

#[test]
fn a_library_without_a_version_that_is_needed_is_an_error_as_it_is_for_the_loader() {
    let room = Room::new();
    let script = |name: &str| format!("-Wl,--version-script={}", sources().join(name).display());
    let library_file = room.path("libversioned.so");
    library("versioned.c", &library_file, &[script("versioned.map")]);
    let user = room.path("user");
    compile("cc", "versioned_user.c", &user, &[search(&room.root), "-lversioned".into()]);
    assert_eq!(inspect(&user, text(&room.root), None).findings, []);
    library("versioned.c", &library_file, &["-DWITHOUT_NEW".into(), script("versioned_old.map")]);
    let found = inspect(&user, text(&room.root), None);
    assert_eq!(codes(&found.findings), [code::VERSION_MISSING]);
    assert!(found.findings[0].message.contains("`STANDIN_1.17`"), "{:?}", found.findings);
    let output = std::process::Command::new(&user).env("LD_LIBRARY_PATH", &room.root).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("STANDIN_1.17"));
    // A library that defines none is taken as it is when its symbols have versions of another library.
    let starts = |args: &[&str]| {
        library("versioned.c", &library_file, args);
        let findings = inspect(&user, text(&room.root), None).findings;
        let status = std::process::Command::new(&user).env("LD_LIBRARY_PATH", &room.root).output().unwrap().status;
        assert_eq!(findings.is_empty(), status.code() == Some(0), "{findings:?}");
        findings.is_empty()
    };
    assert!(starts(&["-DWITH_LIBC"]));
    assert!(!starts(&[]));
}

/// Report 6, its end: "undefined symbol" at the start, because another version of a library is there.
#[test]
fn a_symbol_that_nothing_offers_is_an_error_when_the_start_needs_it() {
    let (_room, lib, train) = variant(false, false);
    let folder = search(&lib);
    for (binding, is_error) in [("-Wl,-z,now", true), ("-Wl,-z,lazy", false)] {
        libtorch(&lib, false);
        compile("cc", "program.c", &train, &[folder.as_str(), "-ltorch_cpu", "-lc10", binding]);
        assert_eq!(inspect(&train, text(&lib), Some(&lib)).findings, []);
        // A libtorch_cpu without the function that the program calls.
        library::<&str>("leaf.c", &lib.join("libtorch_cpu.so"), &[]);
        let found = inspect(&train, text(&lib), Some(&lib));
        assert_eq!(codes(&found.findings), [code::SYMBOL_MISSING], "{binding}");
        assert_eq!(found.findings[0].is_error(), is_error, "{binding}");
        assert!(found.findings[0].message.contains("`torch_cpu_answer`"), "{:?}", found.findings);
        let output = std::process::Command::new(&train).env("LD_LIBRARY_PATH", &lib).output().unwrap();
        assert_eq!(output.status.code(), Some(127));
        assert!(String::from_utf8_lossy(&output.stderr).contains("torch_cpu_answer"));
    }
}

#[test]
fn programs_that_run_have_no_unresolved_symbols() {
    for program in ["/bin/true", "/bin/ls", "/bin/bash"].map(PathBuf::from).into_iter().chain(std::env::current_exe()) {
        if program.exists() {
            assert_eq!(inspect(&program, "", None).findings, [], "{}", program.display());
        }
    }
}

/// A program that calls a function with a `std::string`, made for the form `own`, beside a libtorch of the form `theirs`.
fn with_strings(own: u8, theirs: u8) -> (Room, Vec<Finding>) {
    let room = Room::new();
    let lib = room.folder("torch/lib");
    let abi = |form: u8| format!("-D_GLIBCXX_USE_CXX11_ABI={form}");
    let source = room.path("call.cpp");
    fs_err::write(
        &source,
        "#include <string>\nstd::string greet(const std::string &name);\nint main() { return greet(\"x\").empty(); }\n",
    )
    .unwrap();
    // It is linked with its own form: another one ends the linker, which is what is told beforehand.
    library("greet.cpp", &lib.join("libc10.so"), &[abi(own)]);
    let train = room.path("train");
    compile("c++", text(&source), &train, &[abi(own), search(&lib), "-lc10".to_owned()]);
    library("greet.cpp", &lib.join("libc10.so"), &[abi(theirs)]);
    let findings = inspect(&train, text(&lib), Some(&lib)).findings;
    (room, findings)
}

#[test]
fn two_forms_of_string_are_one_error_and_not_a_page_of_names() {
    for (own, theirs, words) in [(1, 0, "new form"), (0, 1, "old form")] {
        let (_room, findings) = with_strings(own, theirs);
        assert_eq!(codes(&findings), [code::CXX_ABI_DIFFERS], "{findings:?}");
        assert!(findings[0].message.contains(words), "{}", findings[0].message);
        let remedy = findings[0].remedy.as_ref().unwrap();
        assert!(remedy.contains(&format!("-D_GLIBCXX_USE_CXX11_ABI={theirs}")), "{remedy}");
    }
    for form in [0, 1] {
        let (_room, findings) = with_strings(form, form);
        assert!(findings.is_empty(), "{findings:?}");
    }
}
