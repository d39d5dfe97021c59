//! The store with real wheels: torch's for CUDA, 0.9 GB, whole, and torch's for another CPU.
//!
//! NVIDIA's wheels, 2.3 GB more, are left out: that a variant without them says what it lacks is tested here, and that
//! they come along is tested on small ones.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_xtask::libtorch::{Places, record};

use crate::skip;

/// A home of its own, with the user's downloads.
struct Home {
    temp: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        // Below the target folder: 1.6 GB are too much for a /tmp in memory.
        Self { temp: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn base(&self) -> &Utf8Path {
        Utf8Path::from_path(self.temp.path()).unwrap()
    }

    fn store(&self) -> Utf8PathBuf {
        self.base().join("héim/libtorch")
    }

    /// stdout and stderr of a command that has to succeed; none where no wheel can be had, which is said.
    fn run(&self, args: &[&str], test: &str) -> Option<(String, String)> {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
        // The official archive would do for a CPU as well; what is tested here is the wheel.
        command.env("TORCHLIFT_LIBTORCH_URL", "file:///nowhere").env("TORCHLIFT_HOME", self.base().join("héim"));
        let output = command.arg("libtorch").args(args).current_dir(self.base()).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        if told.contains("could not be fetched") {
            let reason = told.lines().find(|line| line.contains("caused by")).unwrap_or_default().trim().to_owned();
            skip::skip(test, &reason, "make `python3 -m pip` able to reach a package index");
            return None;
        }
        assert!(output.status.success(), "{args:?}: {told}");
        Some((String::from_utf8(output.stdout).unwrap(), told))
    }
}

#[test]
fn the_cuda_wheel_is_added_whole_verified_and_removed() {
    let test = "the_cuda_wheel_is_added_whole_verified_and_removed";
    let home = Home::new();
    let env = std::env::vars_os().collect();
    let downloads = Places::from_env(&env).unwrap().downloads();
    let find = || {
        let wheels = downloads.read_dir_utf8().into_iter().flatten().flatten().map(|entry| entry.into_path());
        wheels.into_iter().find(|path| {
            let name = path.file_name().unwrap();
            name.starts_with("torch-2.9.0-") && name.ends_with("x86_64.whl")
        })
    };
    // The other tests leave it among the downloads, unless they had their libtorch from elsewhere.
    if find().is_none() && home.run(&["fetch", "cpu", "--torch", "2.9.0", "--platform", "x86_64"], test).is_none() {
        return;
    }
    let wheel = find().unwrap();

    let (root, told) = home.run(&["add", wheel.as_str()], test).unwrap();
    let variant = home.store().join("precompiled/cu128-2.9.0");
    assert_eq!(root, format!("{variant}\n"));
    for library in ["libcublas.so.12", "libcudnn.so.9"] {
        assert!(told.contains("warning[libtorch-incomplete]") && told.contains(library), "{told}");
    }
    for library in ["libtorch_cuda.so", "libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so", "libtorch.so"] {
        assert!(variant.join("lib").join(library).is_file(), "{library}");
    }
    for file in ["lib/libtorch_python.so", "__init__.py"] {
        assert!(!variant.join(file).exists(), "{file}");
    }
    let arch = fs_err::read_to_string(variant.join(".arch")).unwrap();
    assert!(arch.starts_with("torch=2.9.0+cu128\ncuda=12.8\n"), "{arch}");
    assert_eq!(record::read(&variant).unwrap().sources[0].origin, "added");

    let (text, _) = home.run(&["verify", "precompiled/cu128-2.9.0"], test).unwrap();
    assert!(text.contains("as it was put in"), "{text}");
    home.run(&["remove", "precompiled/cu128-2.9.0"], test).unwrap();
    assert!(!variant.exists());
}

#[test]
fn a_libtorch_for_another_cpu_is_fetched_beside_and_never_taken_for_this_one() {
    let test = "a_libtorch_for_another_cpu_is_fetched_beside_and_never_taken_for_this_one";
    let home = Home::new();
    let Some((root, _)) = home.run(&["fetch", "2.9.0", "--platform", "aarch64"], test) else { return };
    let variant = home.store().join("precompiled/cpu-2.9.0-aarch64");
    assert_eq!(root, format!("{variant}\n"));
    let (json, _) = home.run(&["list", "--format", "json"], test).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let facts = &json["variants"][0]["facts"];
    assert_eq!((facts["cpu_arch"].as_str(), facts["accelerator"].as_str()), (Some("aarch64"), Some("cpu")));
    assert_eq!(json["variants"][0]["findings"], serde_json::Value::Null, "its `.arch` agrees with its libraries");
    let (text, _) = home.run(&["verify", "precompiled/cpu-2.9.0-aarch64"], test).unwrap();
    assert!(text.contains("as it was put in"), "{text}");
    let here = ["path", "--cpu", "--torch", "2.9.0", "--arch", "x86_64"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env("TORCHLIFT_HOME", home.base().join("héim")).env_remove("LIBTORCH").env("PATH", "/nowhere");
    let output = command.arg("libtorch").args(here).current_dir(home.base()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && told.contains("it is for aarch64, and x86_64 is needed"), "{told}");
}
