//! What `libtorch inspect` says of the published wheels, held against checked-in expectations.
//!
//! The wheels come from the user's cache of downloads, where the fetch tests and earlier runs leave them.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use torchlift_xtask::libtorch::Places;
use torchlift_xtask::toolchain::Env;

const VERSION: &str = "2.9.0";

fn xtask(args: &[&str], home: &Utf8Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("libtorch").args(args).env("TORCHLIFT_HOME", home).current_dir(home).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    // Below the target folder: 1.7 GB is too much for a /tmp in memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The wheel of this machine's CPU in the cache of downloads, which a fetch for a CPU leaves there.
fn wheel(home: &Utf8Path) -> Option<Utf8PathBuf> {
    let fetched = xtask(&["fetch", "--cpu", "--torch", VERSION], home);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let env: Env = std::env::vars_os().collect();
    let downloads = Places::from_env(&env).unwrap().cache.join("downloads");
    let is_it = |name: &str| name.starts_with("torch-2.9.0") && name.ends_with("x86_64.whl");
    let mut found = downloads.read_dir_utf8().unwrap().flatten().filter(|entry| is_it(entry.file_name()));
    found.next().map(|entry| entry.into_path())
}

fn inspected(root: &Utf8Path, home: &Utf8Path) -> Value {
    let output = xtask(&["inspect", root.as_str(), "--format", "json"], home);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["libtorch"]["root"], root.as_str());
    value["libtorch"].as_object_mut().unwrap().remove("root");
    value
}

/// Compares with `fixtures/libtorch/<name>.json`; what was found instead lies beside the test's other files.
fn hold_against(value: &Value, name: &str) {
    let file = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/libtorch").join(format!("{name}.json"));
    let expected: Value = serde_json::from_slice(&fs_err::read(&file).unwrap_or_default()).unwrap_or_default();
    let found = Utf8Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    fs_err::write(&found, serde_json::to_string_pretty(value).unwrap() + "\n").unwrap();
    assert!(*value == expected, "the facts differ from `{file}`; those found are in `{found}`");
}

/// Every `sm_…` of NVIDIA's list with its number of entries.
fn entries(library: &Value) -> Vec<(String, u64)> {
    let entries = library["gpu"]["entries"].as_object().unwrap();
    entries.iter().map(|(code, count)| (code.clone(), count.as_u64().unwrap())).collect()
}

#[test]
fn the_facts_of_the_cuda_wheel_are_those_that_are_known_of_it() {
    if std::env::consts::ARCH != "x86_64" {
        return;
    }
    let temp = folder();
    let home = Utf8Path::from_path(temp.path()).unwrap();
    let wheel = wheel(home).expect("a fetch for a CPU takes the CUDA wheel where the official archive is out of reach");
    let site = home.join("site packages é");
    let unpack = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2], [name for name in \
                  zipfile.ZipFile(sys.argv[1]).namelist() if name.startswith(('torch/lib/', 'torch/include/', \
                  'torch/version.py')) or name.endswith('/METADATA')])";
    duct::cmd!("python3", "-c", unpack, wheel.as_str(), site.as_str()).run().unwrap();
    let root = site.join("torch");
    let value = inspected(&root, home);
    hold_against(&value, "torch-2.9.0-cu128-x86_64");

    // What NVIDIA's own tool and the library itself say, spelled out so that the expectation cannot drift unseen.
    let libraries = value["libtorch"]["libraries"].as_array().unwrap();
    let kernels = libraries.iter().find(|library| library["file"] == "libtorch_cuda.so").unwrap();
    let known = [
        ("sm_70", 397),
        ("sm_75", 397),
        ("sm_80", 397),
        ("sm_86", 397),
        ("sm_89", 1),
        ("sm_90", 397),
        ("sm_90a", 4),
        ("sm_100", 397),
        ("sm_100a", 2),
        ("sm_120", 397),
        ("sm_120a", 1),
    ];
    let known: BTreeSet<_> = known.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
    assert_eq!(entries(kernels).into_iter().collect::<BTreeSet<_>>(), known);

    let text = xtask(&["inspect", root.as_str()], home);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("\nGPU code     sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120\n"), "{text}");
    assert!(text.contains("sm_89 only in 1 of 397 regions"), "{text}");

    // The names of the table are in the libraries that load them.
    let loader = root.join("lib/libtorch_cuda.so");
    for name in ["libtorch_cuda_linalg.so", "libnvrtc.so."] {
        let found = duct::cmd!("grep", "--quiet", "--text", "--fixed-strings", name, loader.as_str()).unchecked().run();
        assert!(found.unwrap().status.success(), "`{name}` is nowhere in `{loader}`");
    }
    // The compiler is needed by the library that stands between, and by no other.
    for (file, needed_by) in
        [("libcaffe2_nvrtc.so", &[][..]), ("libtorch_cuda_linalg.so", &[]), ("libnvrtc.so.12", &["libcaffe2_nvrtc.so"])]
    {
        let needs = |library: &&Value| library["needed"].as_array().is_some_and(|needed| needed.contains(&file.into()));
        let by: Vec<_> = libraries.iter().filter(needs).map(|library| library["file"].as_str().unwrap()).collect();
        assert_eq!(by, needed_by, "{file}");
    }
}

#[test]
fn the_facts_of_the_aarch64_wheel_are_those_that_are_known_of_it() {
    let temp = folder();
    let home = Utf8Path::from_path(temp.path()).unwrap();
    let fetched = xtask(&["fetch", "--cpu", "--torch", VERSION, "--arch", "aarch64"], home);
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let root = Utf8PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim_end());
    hold_against(&inspected(&root, home), "torch-2.9.0-cpu-aarch64");
}
