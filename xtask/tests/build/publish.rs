//! What lies in its place after a build, and what does not after one that failed.

use std::os::unix::fs::MetadataExt as _;

use torchlift_schema::{exit_code, read};

use crate::skip::skip;
use crate::support::Project;

#[test]
fn every_host_gets_its_binary_and_a_sealed_envelope() {
    let project = Project::linked();
    let ran = project.run(&["build"]).ok();
    assert!(ran.stdout.contains("job train is ready for 2 hosts"), "{}", ran.stdout);
    assert_eq!(
        project.published(),
        [
            "node-1/envelope.json",
            "node-1/test-cpu/quick/linked",
            "node-2/envelope.json",
            "node-2/test-cpu/quick/linked"
        ]
    );
    let envelope = project.envelope("node-2");
    assert_eq!((envelope.host.as_str(), envelope.kind.as_deref()), ("node-2", Some("k")));
    assert_eq!(envelope.bin, "target/cluster/node-2/test-cpu/quick/linked");
    assert_eq!(envelope.ld_library_path, project.root.join("libtorch/test/cpu/lib").to_str().unwrap());
    let libraries: Vec<_> = envelope
        .libtorch
        .iter()
        .flat_map(|libtorch| &libtorch.libraries)
        .map(|library| library.file.as_str())
        .collect();
    assert_eq!(libraries, ["libc10.so", "libtorch_cpu.so"]);
    assert!(envelope.artifact.source_id.starts_with("files:"), "{}", envelope.artifact.source_id);
    let binary = project.root.join(&envelope.bin);
    assert_eq!(fs_err::metadata(&binary).unwrap().len(), envelope.artifact.size);
    assert_eq!(fs_err::metadata(&binary).unwrap().nlink(), 1, "a linker that writes in place must not reach it");
}

#[test]
fn the_envelopes_command_works_with_an_empty_environment() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let envelope = project.envelope("node-1");
    let output = std::process::Command::new(project.root.join(&envelope.bin))
        .env_clear()
        .env("LD_LIBRARY_PATH", &envelope.ld_library_path)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rank 0: the answer is 42, C++ ABI 1\n");
}

#[test]
fn a_gpu_library_that_nothing_calls_is_loaded_all_the_same() {
    let project = Project::linked();
    project.libtorch("cu128", true);
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("test/cpu", "test/cu128"));
    project.run(&["build"]).ok();
    let envelope = project.envelope("node-1");
    assert!(envelope.artifact.needed.contains(&"libtorch_cuda.so".to_owned()), "{:?}", envelope.artifact.needed);
}

#[test]
fn a_second_build_compiles_nothing_and_touches_nothing() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let state = |project: &Project| -> Vec<_> {
        let files = project.published();
        let of = |name: &String| fs_err::metadata(project.root.join("target/cluster").join(name)).unwrap();
        files.iter().map(of).map(|metadata| (metadata.ino(), metadata.mtime_nsec())).collect()
    };
    let before = state(&project);
    let ran = project.run(&["build", "--format", "json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["builds"][0]["compiled"], &report["hosts"][0]["is_new"]), (&0.into(), &false.into()));
    assert_eq!(state(&project), before);
}

#[test]
fn new_library_bytes_with_an_equal_abi_are_verified_and_not_built() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let before = project.envelope("node-1");
    let lib = project.root.join("libtorch/test/cpu/lib");
    crate::stand_in::library("c10.c", &lib.join("libc10.so"), &["-O2", "-g"]);
    let ran = project.run(&["build", "--format", "json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["builds"][0]["compiled"], 0);
    assert_eq!(report["builds"][0]["crates"], serde_json::json!([]));
    let after = project.envelope("node-1");
    assert_eq!(after.artifact, before.artifact);
    assert_ne!(after.libtorch, before.libtorch);
}

#[test]
fn alternating_libtorches_build_twice_and_then_never_again() {
    let project = Project::linked();
    let other = project.libtorch("other", true);
    let mut compiled = Vec::new();
    for _ in 0..2 {
        for arguments in [vec![], vec!["--libtorch", other.to_str().unwrap()]] {
            let arguments: Vec<&str> = ["build", "--format", "json"].into_iter().chain(arguments).collect();
            let ran = project.run(&arguments).ok();
            let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            compiled.push(report["builds"][0]["compiled"].as_u64().unwrap());
        }
    }
    assert_eq!(compiled, [2, 2, 0, 0]);
}

/// Makes the program need a library that its linker finds and its loader will not.
fn needs_a_hidden_library(project: &Project) {
    let hidden = project.beside("hidden");
    crate::stand_in::library::<&str>("leaf.c", &hidden.join("libleaf.so"), &[]);
    let script = fs_err::read_to_string(project.root.join("build.rs")).unwrap();
    let link = format!(
        "fn main() {{\n    println!(\"cargo::rustc-link-search=native={}\");\n    \
         println!(\"cargo::rustc-link-arg=-Wl,--no-as-needed\");\n    println!(\"cargo::rustc-link-arg=-lleaf\");",
        hidden.display()
    );
    project.write("build.rs", &script.replace("fn main() {", &link));
}

#[test]
fn a_library_that_would_be_missing_is_named_for_every_host_and_all_stays_as_it_was() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let state = |project: &Project| -> Vec<Vec<u8>> {
        let read = |name: &String| fs_err::read(project.root.join("target/cluster").join(name)).unwrap();
        project.published().iter().map(read).collect()
    };
    let before = state(&project);
    needs_a_hidden_library(&project);
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[library-missing]").says("libleaf.so").says("host `node-1`").says("host `node-2`");
    ran.says("target/cluster/node-2/test-cpu/quick/linked");
    assert_eq!(state(&project), before);
}

#[test]
fn an_accepted_finding_is_recorded_in_the_envelope() {
    let project = Project::linked();
    needs_a_hidden_library(&project);
    let ran = project.run(&["build", "--accept", "library-missing@node-1"]).fails(exit_code::VERIFY);
    ran.says("warning[library-missing]").says("error[library-missing]");
    project.run(&["build", "--accept", "library-missing"]).ok().says("accepted: on the command line");
    let findings = project.envelope("node-2").findings;
    assert_eq!(findings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["library-missing"]);
    for (wrong, words) in [
        ("library-missing=we know", "is no finding's code"),
        ("program-changed@node-1", "cannot be accepted"),
        ("unknown-host", "mend the file"),
    ] {
        project.run(&["build", "--accept", wrong]).fails(exit_code::USAGE).says(words);
    }
}

#[test]
fn nothing_is_published_unless_every_hosts_build_holds() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write(
        "cluster.toml",
        &format!(
            "{text}\n[kind.loud]\nlibtorch = \"test/cpu\"\nfeatures = [\"loud\"]\n\
             [[host]]\nname = \"loud-1\"\nkind = \"loud\"\npath = \".\"\nreach = \"local\"\n"
        ),
    );
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project
        .write("src/main.rs", &format!("{main}\n#[cfg(not(feature = \"loud\"))]\ncompile_error!(\"not so quiet\");\n"));
    let ran = project.run(&["build"]).fails(exit_code::BUILD);
    ran.says("error: not so quiet").says("`linked` was not built for kind `k` (node-1, node-2)").says("--keep-going");
    assert!(!ran.stderr.contains("for kind `loud`"), "{}", ran.stderr);
    let ran = project.run(&["build", "--keep-going"]).fails(exit_code::BUILD);
    ran.says("building `linked` for kind `loud` (1 host)").says("`linked` was not built for kind `k`");
    assert_eq!(project.published(), Vec::<String>::new());
}

#[test]
fn the_map_for_other_launchers_has_the_published_three_fields() {
    let project = Project::linked();
    let ran = project.run(&["build", "--print-map"]).ok();
    let map = read::per_host_map(ran.stdout.trim_end().as_bytes()).unwrap();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["node-1", "node-2"]);
    assert_eq!(map["node-2"], project.envelope("node-2").per_host());
}

#[test]
fn a_running_program_keeps_its_file_while_a_new_one_is_published() {
    keeps_its_file(&Project::linked());
}

#[test]
fn a_running_program_keeps_its_file_when_the_linker_writes_into_the_old_one() {
    let test = "a_running_program_keeps_its_file_when_the_linker_writes_into_the_old_one";
    if std::process::Command::new("mold").arg("--version").output().is_err() {
        return skip(test, "there is no `mold`", "install the package `mold`");
    }
    let project = Project::linked();
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let flags = "[kind.k]\nrustflags = [\"-Clink-arg=-fuse-ld=mold\"]";
    project.write("cluster.toml", &cluster.replace("[kind.k]", flags));
    keeps_its_file(&project);
    let binary = fs_err::read(project.root.join(project.envelope("node-1").bin)).unwrap();
    assert!(binary.windows(5).any(|bytes| bytes == b"mold "), "mold signs what it links");
}

/// Starts what is published, builds and publishes something else, and sees both do their own.
fn keeps_its_file(project: &Project) {
    project.run(&["build"]).ok();
    let envelope = project.envelope("node-1");
    let binary = project.root.join(&envelope.bin);
    let fifo = project.beside("run").join("go");
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    let waiting = main.replace(
        "fn main() {",
        "fn main() { if let Some(fifo) = std::env::var_os(\"WAIT\") { let _ = std::fs::read(fifo); }",
    );
    project.write("src/main.rs", &waiting);
    project.run(&["build"]).ok();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let running = std::process::Command::new(&binary)
        .env("LD_LIBRARY_PATH", &envelope.ld_library_path)
        .env("WAIT", &fifo)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    project.write("src/main.rs", &waiting.replace("the answer is", "the new answer is"));
    project.run(&["build"]).ok();
    // Opening for writing waits for the reader, so that the program is known to be in the middle of its work.
    fs_err::write(&fifo, "go").unwrap();
    let output = running.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rank 0: the answer is 42, C++ ABI 1\n");
    let now = std::process::Command::new(&binary).env("LD_LIBRARY_PATH", &envelope.ld_library_path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&now.stdout), "rank 0: the new answer is 42, C++ ABI 1\n");
}
