//! Fetching libtorch for real: the machine's own pip and index, a wheel of 0.9 GB, the cut, and the real loader.
//!
//! Downloads are kept in `TORCHLIFT_CACHE` as a user's are, so that only the first run on a machine downloads.

use camino::{Utf8Path, Utf8PathBuf};

use crate::skip;

#[test]
fn a_fetched_libtorch_is_stored_whole_and_a_program_that_needs_all_of_it_starts() {
    // Below the target folder: 0.5 GB is too much for a /tmp in memory.
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = Utf8Path::from_path(temp.path()).unwrap().join("Heim mit Leerzeichen");
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("libtorch").args(args).env("TORCHLIFT_HOME", &home).current_dir(temp.path());
        command.output().unwrap()
    };
    let fetched = run(&["fetch", "--cpu", "--torch", "2.9.0"]);
    let said = String::from_utf8(fetched.stderr).unwrap();
    if said.contains("could not be fetched") {
        let reason = said.lines().find(|line| line.contains("caused by")).unwrap_or_default().trim().to_owned();
        let test = "a_fetched_libtorch_is_stored_whole_and_a_program_that_needs_all_of_it_starts";
        skip::skip(test, &reason, "make `python3 -m pip` able to reach a package index");
        return;
    }
    assert!(fetched.status.success(), "{said}");
    let root = Utf8PathBuf::from(String::from_utf8(fetched.stdout).unwrap().trim_end());
    assert!(root.starts_with(&home), "{root}");

    let list = run(&["list", "--format", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let facts = &list["variants"][0]["facts"];
    assert_eq!(facts["accelerator"], "cpu");
    assert_eq!(facts["is_cxx11_abi"], true);
    assert_eq!(facts["cpu_arch"], std::env::consts::ARCH);
    assert!(facts["version"].as_str().unwrap().starts_with("2.9.0"), "{facts}");

    // `--no-as-needed` keeps `libtorch.so` in the program, so that the loader has to find all that it needs.
    let folder = Utf8Path::from_path(temp.path()).unwrap();
    fs_err::write(folder.join("main.c"), "int main(void) { return 0; }\n").unwrap();
    let search = format!("-L{root}/lib");
    duct::cmd!("cc", "main.c", "-o", "main", search, "-Wl,--no-as-needed", "-ltorch").dir(folder).run().unwrap();
    let started = duct::cmd!(folder.join("main").as_std_path())
        .env("LD_LIBRARY_PATH", root.join("lib").as_str())
        .unchecked()
        .run()
        .unwrap();
    assert_eq!(started.status.code(), Some(0), "127 is the loader's");

    let again = run(&["fetch", "--cpu", "--torch", "2.9.0"]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.success() && !said.contains("downloading") && !said.contains("unpacking"), "{said}");
}
