//! The `torchlift` that is built for systems from glibc 2.17 on: what its file needs, and that it works.
//!
//! `.ci/run` builds it with cargo-zigbuild and names it in a variable; the build's own flag is not believed.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use torchlift::env_vars::TORCHLIFT_TEST_OLD_HOSTS_BINARY;
use torchlift::preflight::elf::{self, ElfFacts, Version};
use torchlift_schema::facts;

#[path = "support/stand_in.rs"]
#[expect(dead_code, reason = "of the stand-ins only one is needed here")]
mod stand_in;

/// The glibc of CentOS 7, the oldest system that this is for.
const FLOOR: &str = "2.17";
/// Libraries that every system has: all of them glibc's own.
const OWN: [&str; 7] =
    ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "ld-linux-"];

fn binary() -> PathBuf {
    let named = std::env::var_os(TORCHLIFT_TEST_OLD_HOSTS_BINARY);
    let named = named.unwrap_or_else(|| panic!("`{TORCHLIFT_TEST_OLD_HOSTS_BINARY}` names no binary; see `.ci/run`"));
    named.into()
}

fn facts_of_binary() -> ElfFacts {
    elf::read(&binary()).unwrap()
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn it_needs_no_newer_glibc_than_the_oldest_system_has() {
    let needed = facts_of_binary().glibc().expect("it is linked with glibc");
    assert!(version(&needed) <= version(FLOOR), "it needs GLIBC_{needed}");
}

#[test]
fn the_systems_own_tool_finds_the_same_floor() {
    let output = Command::new("objdump").arg("-T").arg(binary()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let named = text
        .split(['(', ')', ' ', '\n'])
        .filter_map(|word| word.strip_prefix("GLIBC_"))
        .filter_map(|word| word.parse().ok());
    let highest: Version = named.max().expect("objdump names versions");
    assert_eq!(Some(highest.to_string()), facts_of_binary().glibc());
}

#[test]
fn it_needs_nothing_but_the_c_library() {
    let facts = facts_of_binary();
    assert!(facts.is_dynamic, "a static program could not open NVIDIA's library");
    for library in &facts.needed {
        assert!(OWN.iter().any(|own| library.starts_with(own)), "it needs `{library}`");
    }
}

fn run(arguments: &[&str], cwd: &Path, library_path: Option<&Path>) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(cwd);
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    command.output().unwrap()
}

#[test]
fn it_opens_nvidias_library() {
    let folder = tempfile::tempdir().unwrap();
    stand_in::library::<&str>("nvml.c", &folder.path().join("libnvidia-ml.so.1"), &[]);
    fs_err::write(
        folder.path().join("nvml.txt"),
        "driver 550.54.14\ncuda 12040\ncard NVIDIA H100|GPU-a|00000000:1B:00.0|9|0|85899345920|0\n",
    )
    .unwrap();
    let output = run(&["probe", "--format", "json", "--host", "a"], folder.path(), Some(folder.path()));
    let all = facts::read(&output.stdout).unwrap();
    let capability = all.hosts["a"].gpus[0].capability.map(String::from);
    assert_eq!(capability.as_deref(), Some("9.0"), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_runs_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        run(&["run", "--nproc", "2", "--", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"], folder.path(), None);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("rank 0 of 2") && text.contains("rank 1 of 2"), "{text}");
}
