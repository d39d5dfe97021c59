//! Where Torchlift does not run, a compiler says so in plain words.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What the gate needs of the standard library, which no machine has for all of these targets: the compiler's own macro.
const PRELUDE: &str = "#![feature(no_core, rustc_attrs)]
#![allow(internal_features, unused_macros)]
#![no_core]
#[rustc_builtin_macro]
macro_rules! compile_error { ($message:expr $(,)?) => {{}}; }
";

/// The beginning of the message of all three packages.
const MESSAGE: &str = "error: Torchlift builds for 64-bit Linux on x86_64 and aarch64 and for nothing else";

/// The gate of a package, as its `lib.rs` has it.
fn gate(package: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src/lib.rs");
    let text = fs_err::read_to_string(file).unwrap();
    let start = text.find("#[cfg(not(all(").unwrap();
    let end = start + text[start..].find("\n);\n").unwrap() + 4;
    text[start..end].to_owned()
}

fn compile(gate: &str, target: &str) -> Output {
    // The one beside the cargo that built this test: the one of `PATH` may be older.
    let beside = Path::new(env!("CARGO")).with_file_name("rustc");
    let rustc = if beside.is_file() { beside.into_os_string() } else { OsString::from("rustc") };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(rustc);
    command.args(["-", "--crate-name", "gate", "--crate-type", "lib", "--edition", "2024", "--emit", "metadata"]);
    command.args(["--target", target]).arg("--out-dir").arg(folder.path());
    // The features above are the compiler's own, and only for this test.
    command.env("RUSTC_BOOTSTRAP", "1").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{PRELUDE}{gate}").as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn every_package_refuses_other_systems_and_cpus_and_builds_for_its_own() {
    let gates = ["envelope-schema", "launcher", "xtask"].map(gate);
    assert!(gates.iter().all(|gate| *gate == gates[0]), "the packages do not refuse the same");
    for target in [
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
        "x86_64-pc-windows-gnu",
        "x86_64-unknown-freebsd",
        "aarch64-linux-android",
        "wasm32-unknown-unknown",
        "i686-unknown-linux-gnu",
        "x86_64-unknown-linux-gnux32",
        "armv7-unknown-linux-gnueabihf",
        "aarch64_be-unknown-linux-gnu",
        "riscv64gc-unknown-linux-gnu",
    ] {
        let output = compile(&gates[0], target);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(MESSAGE), "{target}:\n{said}");
    }
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let output = compile(&gates[0], target);
        assert!(output.status.success(), "{target}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
}
