//! Builds for another CPU than this machine's, and runners that stand before programs: what is verified against what.

use std::path::Path;

use serde_json::{Value, json};
use torchlift::preflight::elf;
use torchlift_schema::exit_code;

use crate::machine::{self, CC, Cross, SYSTEM, TARGET};
use crate::skip::skip;
use crate::stand_in;
use crate::support::Project;

/// A Rust for the other CPU; where there is none, says so for `test`.
fn cross(test: &str) -> Option<Cross> {
    machine::find().map_err(|(reason, remedy)| skip(test, &reason, remedy)).ok()
}

/// One host of this machine's CPU and one of the other.
fn two_cpus(toolchain: &str) -> Project {
    let project = Project::linked();
    project.libtorch_by(CC, "arm", false);
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[kind.here]\nlibtorch = \"test/cpu\"\n\
         [kind.arm]\nlibtorch = \"test/arm\"\ntarget = \"{TARGET}\"\n\
         [[host]]\nname = \"node-here\"\nkind = \"here\"\npath = \".\"\n\
         [[host]]\nname = \"node-arm\"\nkind = \"arm\"\npath = \".\"\n{toolchain}"
    ));
    project
}

fn report(project: &Project) -> Value {
    let ran = project.run(&["verify", "--format", "json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", ran.stdout, ran.stderr))
}

fn host<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["hosts"].as_array().unwrap().iter().find(|host| host["host"] == name).unwrap()
}

/// Label and outcome of a check.
fn check(host: &Value, name: &str) -> (Value, Value) {
    let checks = host["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name}: {checks:#?}"));
    (found["label"].clone(), found["outcome"].clone())
}

#[test]
fn one_run_spans_two_cpus_and_each_binary_is_held_against_a_system_of_its_own_cpu() {
    let test = "one_run_spans_two_cpus_and_each_binary_is_held_against_a_system_of_its_own_cpu";
    let Some(cross) = cross(test) else { return };
    let project = two_cpus(&cross.emulated());
    project.run(&["build"]).ok();
    let envelope = project.envelope("node-arm");
    assert_eq!(envelope.artifact.target, TARGET);
    assert_eq!(elf::read(&project.root.join(&envelope.bin)).unwrap().arch, "aarch64");

    let report = report(&project);
    assert_eq!(report["verdict"], "holds", "{report:#}");
    let arm = host(&report, "node-arm");
    for name in ["libraries", "symbols", "symbol-versions", "system-versions", "cpu"] {
        assert_eq!(check(arm, name), (json!("checked here"), json!("holds")), "{name}");
    }
    let libraries = arm["libraries"].as_array().unwrap();
    assert!(libraries.iter().any(|library| library["name"] == "libc.so.6"), "{libraries:#?}");
    for library in libraries {
        let path = Path::new(library["file"].as_str().unwrap());
        assert_eq!(elf::read(path).unwrap().arch, "aarch64", "{}", path.display());
    }

    let ran = project.run(&["launch", "--no-build"]).ok();
    for line in ["rank 0: the answer is 42", "rank 1: the answer is 42"] {
        assert!(ran.stdout.contains(line), "{}\n{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_program_of_another_cpu_without_a_runner_is_refused_with_both_cpus() {
    let test = "a_program_of_another_cpu_without_a_runner_is_refused_with_both_cpus";
    let Some(cross) = cross(test) else { return };
    let project = two_cpus(&cross.toolchain(""));
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[wrong-architecture]").says("is for aarch64, the host is x86_64").says("node-arm");
    assert!(project.published().is_empty());
}

#[test]
fn what_a_runner_of_unknown_kind_starts_is_not_checked_and_not_refused() {
    let project = Project::linked();
    let runner = project.script("in a container", "exec \"$@\"");
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &cluster.replace("slots = 1", &format!("slots = 1\nrunner = [{runner:?}]")));
    let ran = project.run(&["build"]).ok();
    assert!(ran.stdout.contains("not checked: system libraries"), "{}", ran.stdout);
    let report = report(&project);
    assert_eq!(report["verdict"], "unproven", "{report:#}");
    let node = host(&report, "node-1");
    for name in ["system-libraries", "symbols", "system-versions", "cpu"] {
        assert_eq!(check(node, name), (json!("not checked"), json!(null)), "{name}");
    }
    assert_eq!(check(node, "libraries"), (json!("checked here"), json!("holds")));
    let ran = project.run(&["launch", "--no-build"]).ok();
    assert!(ran.stdout.contains("rank 1: the answer is 42"), "{}", ran.stdout);
    // One that a program does not notice leaves everything to be checked.
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &cluster.replace(&format!("[{runner:?}]"), "[\"nice\", \"-n\", \"1\"]"));
    assert_eq!(self::report(&project)["verdict"], "holds");
}

/// A system for the other CPU in `root`, made of the files of Debian's cross packages, with a library that nothing else has.
fn sysroot(root: &Path) {
    let lib = root.join("usr/lib");
    fs_err::create_dir_all(&lib).unwrap();
    for name in ["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"] {
        fs_err::copy(Path::new(SYSTEM).join("lib").join(name), lib.join(name)).unwrap();
    }
    fs_err::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
    stand_in::library_by::<&str>(CC, "leaf.c", &lib.join("libonly_there.so"), &[]);
}

#[test]
fn a_sysroot_is_what_is_linked_with_and_what_is_looked_at_behind_a_runner_of_unknown_kind() {
    let test = "a_sysroot_is_what_is_linked_with_and_what_is_looked_at_behind_a_runner_of_unknown_kind";
    let Some(cross) = cross(test) else { return };
    let project = two_cpus("");
    let root = project.beside("system");
    sysroot(&root);
    let runner = project.script("in it", &format!("exec qemu-aarch64-static -L '{}' \"$@\"", root.display()));
    let build = fs_err::read_to_string(project.root.join("build.rs")).unwrap();
    let linking = "if std::env::var(\"CARGO_CFG_TARGET_ARCH\").unwrap() == \"aarch64\" {\n        \
                   println!(\"cargo::rustc-link-arg=-Wl,--no-as-needed,-lonly_there\");\n    }\n    let libtorch =";
    project.write("build.rs", &build.replace("let libtorch =", linking));
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let with = |further: &str| {
        let toolchain = cross.toolchain(&format!("runner = [{runner:?}]\n{further}"));
        project.write("cluster.toml", &format!("{cluster}{toolchain}"));
    };
    with("");
    project.run(&["build"]).fails(exit_code::BUILD).says("only_there");
    with(&format!("sysroot = {root:?}"));
    project.run(&["build"]).ok();

    let report = report(&project);
    let arm = host(&report, "node-arm");
    for name in ["libraries", "symbols", "symbol-versions", "system-versions"] {
        assert_eq!(check(arm, name), (json!("checked here"), json!("holds")), "{name}");
    }
    assert_eq!(check(arm, "cpu").0, "not checked", "what runs it is not known");
    for library in arm["libraries"].as_array().unwrap() {
        let file = library["file"].as_str().unwrap();
        assert!(file.starts_with(root.to_str().unwrap()) || file.contains("libtorch/test/arm"), "{file}");
    }
    let ran = project.run(&["launch", "--no-build"]).ok();
    assert!(ran.stdout.contains("rank 1: the answer is 42"), "{}", ran.stdout);

    fs_err::remove_file(root.join("usr/lib/libonly_there.so")).unwrap();
    project
        .run(&["verify"])
        .fails(exit_code::VERIFY)
        .says("error[library-missing]")
        .says("`libonly_there.so` not found");
    with("sysroot = \"/no/such/system\"");
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("error[sysroot-missing]").says("`/no/such/system`");
}

/// The toolchain of this machine's own target.
fn own_toolchain(keys: &str) -> String {
    format!("\n[toolchain.\"{}-unknown-linux-gnu\"]\n{keys}\n", std::env::consts::ARCH)
}

#[test]
fn a_program_above_its_glibc_floor_is_refused_with_the_symbols_and_the_crate_that_need_more() {
    let project = Project::linked();
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &format!("{cluster}{}", own_toolchain("glibc = \"2.99\"")));
    project.run(&["build"]).ok();
    let report = report(&project);
    assert_eq!(check(host(&report, "node-1"), "glibc-floor"), (json!("checked here"), json!("holds")));
    let published = project.published();

    // Since glibc 2.25.
    project.write("src/random.rs", "unsafe extern \"C\" { fn getentropy(at: *mut u8, size: usize) -> i32; }\n\
                                    pub fn random() -> i32 { let mut at = [0_u8; 4]; unsafe { getentropy(at.as_mut_ptr(), 4) } }\n");
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write(
        "src/main.rs",
        &main.replace("fn main() {", "mod random;\nfn main() {\n    assert_eq!(random::random(), 0);"),
    );
    project.write("cluster.toml", &format!("{cluster}{}", own_toolchain("glibc = \"2.5\"")));
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[glibc-above-floor]").says("may need glibc 2.5 at most, and needs `GLIBC_2.");
    ran.says("`getentropy` by `linked`");
    assert_eq!(project.published(), published, "nothing is published");
    project.run(&["verify"]).fails(exit_code::VERIFY).says("error[glibc-above-floor]");
}

#[test]
fn zig_is_refused_by_name_for_a_program_on_libtorch_before_anything_is_built() {
    let project = Project::linked();
    let cluster = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project
        .write("cluster.toml", &format!("{cluster}{}", own_toolchain("cargo = \"cargo-zigbuild\"\nglibc = \"2.17\"")));
    let ran = project.run(&["build"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[cxx-library-differs]").says("`cargo-zigbuild` cannot build").says("the kind has a `libtorch`");
    assert!(!project.root.join("target/torchlift").exists());
}

#[test]
fn zig_builds_what_is_no_cxx_for_an_old_glibc_and_the_file_is_held_to_it() {
    let test = "zig_builds_what_is_no_cxx_for_an_old_glibc_and_the_file_is_held_to_it";
    let zig = std::process::Command::new("cargo-zigbuild").arg("--version").output();
    if zig.is_err() {
        return skip(test, "there is no `cargo-zigbuild`", "`pip install cargo-zigbuild ziglang`");
    }
    let project = Project::linked();
    project.write("build.rs", "fn main() {}\n");
    project.write("src/main.rs", "fn main() {\n    println!(\"rank {}\", std::env::var(\"RANK\").unwrap());\n}\n");
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[[host]]\nname = \"node-1\"\npath = \".\"\n{}",
        own_toolchain("cargo = \"cargo-zigbuild\"\nglibc = \"2.17\"")
    ));
    let own = std::env::var("CARGO_ZIGBUILD_ZIG_PATH").unwrap_or_default();
    let env: &[(&str, &str)] = if own.is_empty() { &[] } else { &[("CARGO_ZIGBUILD_ZIG_PATH", &own)] };
    project.run_with(&["build"], env).ok();
    let needed: elf::Version = project.envelope("node-1").artifact.glibc.unwrap().parse().unwrap();
    assert!(needed <= "2.17".parse().unwrap(), "it needs glibc {needed}");
    let report = report(&project);
    let node = host(&report, "node-1");
    for name in ["glibc-floor", "cxx-library"] {
        assert_eq!(check(node, name), (json!("checked here"), json!("holds")), "{name}");
    }
    let ran = project.run_with(&["launch", "--no-build"], env).ok();
    assert!(ran.stdout.contains("rank 0"), "{}", ran.stdout);
}
