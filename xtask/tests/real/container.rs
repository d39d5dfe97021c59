//! Builds in a container of a real engine: an older C library than this machine's, and nothing of the container left behind.
//!
//! The image is Debian 11, made once by `fixtures/containers/image.sh`; it has a C and a C++ compiler and no Rust.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift_schema::exit_code;

use crate::skip::skip;
use crate::support::{Project, Ran};

const IMAGE: &str = "localhost/torchlift-test:bullseye-1";
/// What podman asks for by default is more than a small virtual machine hands out. A build needs no network.
const ARGS: &str =
    r#"["--network=none", "--cgroups=no-conmon", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]"#;
/// The newest glibc that a program from the image may need.
const OLD_GLIBC: (u32, u32) = (2, 31);

/// The image, made where it is not there; none where it cannot be had, which is told.
fn image(test: &str) -> Option<&'static str> {
    let is_there =
        |program: &str| Command::new("which").arg(program).output().is_ok_and(|output| output.status.success());
    let has_image =
        || Command::new("podman").args(["image", "exists", IMAGE]).status().is_ok_and(|status| status.success());
    let remedy = "as root: `apt-get install podman runc debootstrap`, then `fixtures/containers/image.sh localhost/torchlift-test:bullseye-1`";
    if !is_there("podman") {
        skip(test, "podman is not installed", remedy);
        return None;
    }
    if has_image() {
        return Some(IMAGE);
    }
    if !is_there("debootstrap") || !nix::unistd::geteuid().is_root() {
        skip(test, "the image cannot be made: that takes root and debootstrap", remedy);
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/containers/image.sh");
    let made = Command::new(script).arg(IMAGE).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(IMAGE)
}

fn kind(name: &str, image: &str) -> String {
    format!(
        "[kind.{name}]\nlibtorch = \"test/cpu\"\ncontainer = {{ engine = \"podman\", image = \"{image}\", args = {ARGS} }}\n"
    )
}

fn host(name: &str, kind: &str) -> String {
    format!("[[host]]\nname = \"{name}\"\nkind = \"{kind}\"\npath = \".\"\nreach = \"local\"\nslots = 1\n")
}

/// The fixture with C++ in it and a dependency beside the workspace; one host is built for here, one in the container.
fn project(image: &str) -> Project {
    let project = Project::linked();
    let beside = project.root.parent().unwrap().join("daneben ü");
    fs_err::create_dir_all(beside.join("src")).unwrap();
    fs_err::write(beside.join("Cargo.toml"), "[package]\nname = \"beside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .unwrap();
    fs_err::write(beside.join("src/lib.rs"), "pub fn word() -> &'static str {\n    \"beside\"\n}\n").unwrap();
    let manifest = fs_err::read_to_string(project.root.join("Cargo.toml")).unwrap();
    project.write("Cargo.toml", &format!("{manifest}\n[dependencies]\nbeside = {{ path = \"../daneben ü\" }}\n"));
    fs_err::remove_file(project.root.join("Cargo.lock")).unwrap();
    project.write(
        "shim.cpp",
        "#include <string>\n#include <stdexcept>\nextern \"C\" int shim(int value) {\n    \
         try { if (value > 100) throw std::runtime_error(std::to_string(value)); } catch (const std::exception& e) { return -1; }\n    \
         return value + 1;\n}\n",
    );
    let build = fs_err::read_to_string(project.root.join("build.rs")).unwrap();
    let (head, tail) = build.rsplit_once('}').unwrap();
    project.write(
        "build.rs",
        &format!(
            "{head}    println!(\"cargo::rerun-if-changed=shim.cpp\");\n    \
             let out = std::env::var(\"OUT_DIR\").unwrap();\n    \
             let run = |name: &str, args: &[&str]| assert!(std::process::Command::new(name).args(args).status().unwrap().success());\n    \
             let (object, archive) = (format!(\"{{out}}/shim.o\"), format!(\"{{out}}/libshim.a\"));\n    \
             run(\"c++\", &[\"-c\", \"-fPIC\", \"shim.cpp\", \"-o\", &object]);\n    run(\"ar\", &[\"crs\", &archive, &object]);\n    \
             println!(\"cargo::rustc-link-search=native={{out}}\");\n    println!(\"cargo::rustc-link-lib=static=shim\");\n    \
             println!(\"cargo::rustc-link-lib=dylib=stdc++\");\n    \
             let seen: Vec<String> = std::env::vars().map(|(name, value)| format!(\"{{name}}={{value}}\")).collect();\n    \
             std::fs::write(format!(\"{{out}}/seen\"), seen.join(\"\\n\")).unwrap();\n}}{tail}"
        ),
    );
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    let main =
        main.replace("safe fn torch_cpu_answer", "safe fn shim(value: i32) -> i32;\n    safe fn torch_cpu_answer");
    let main = main.replace("    let args:", "    println!(\"{} {}\", beside::word(), shim(41));\n    let args:");
    project.write("src/main.rs", &main);
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[kind.here]\nlibtorch = \"test/cpu\"\n{}{}{}",
        kind("old", image),
        host("a", "here"),
        host("b", "old")
    ));
    project
}

fn version(text: &str) -> (u32, u32) {
    let (major, minor) = text.split_once('.').unwrap();
    (major.parse().unwrap(), minor.split('.').next().unwrap().parse().unwrap())
}

/// Crates that each build of a report compiled, by its first host.
fn compiled(ran: &Ran) -> Vec<(String, u64)> {
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let builds = report["builds"].as_array().unwrap().iter();
    let mut compiled: Vec<_> = builds
        .map(|build| (build["hosts"][0].as_str().unwrap().to_owned(), build["compiled"].as_u64().unwrap()))
        .collect();
    compiled.sort();
    compiled
}

/// Names of the containers of a project's builds, in whatever state.
fn containers(project: &Project) -> Vec<String> {
    let keys: Vec<String> = fs_err::read_dir(project.root.join("target/torchlift/builds"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let listed = Command::new("podman").args(["ps", "--all", "--format", "{{.Names}}"]).output().unwrap();
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    names.lines().filter(|name| keys.iter().any(|key| name.contains(key))).map(str::to_owned).collect()
}

#[test]
fn a_build_in_a_container_needs_the_older_glibc_of_its_image_and_runs_here() {
    let test = "a_build_in_a_container_needs_the_older_glibc_of_its_image_and_runs_here";
    let Some(image) = image(test) else { return };
    let project = project(image);
    // What is in this shell must not get in.
    let shell = [("MY_OWN", "secret"), ("CARGO_BUILD_JOBS", "2")];
    let first = project.run_with(&["build", "--format", "json", "--builds", "2", "-j", "2"], &shell).ok();
    assert_eq!(compiled(&first), [("a".to_owned(), 3), ("b".to_owned(), 3)]);

    let (here, old) = (project.envelope("a").artifact, project.envelope("b").artifact);
    assert_ne!(here.build_key, old.build_key);
    assert!(version(old.glibc.as_deref().unwrap()) <= OLD_GLIBC, "{:?}", old.glibc);
    assert!(version(here.glibc.as_deref().unwrap()) > OLD_GLIBC, "{:?}", here.glibc);
    // Another reader than ours says the same.
    let bin = project.root.join(&project.envelope("b").bin);
    let symbols = Command::new("objdump").arg("-T").arg(&bin).output().unwrap();
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    assert!(symbols.contains("GLIBC_2.") && !symbols.contains("GLIBC_2.34"), "{symbols}");

    let launched = project.run(&["launch", "--no-build"]).ok();
    assert_eq!(launched.stdout.matches("beside 42").count(), 2, "{}", launched.stdout);

    let build = project.root.join("target/torchlift/builds").join(&old.build_key);
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let mut seen = String::new();
    for entry in walkdir::WalkDir::new(&build) {
        let entry = entry.unwrap();
        let metadata = fs_err::symlink_metadata(entry.path()).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (user, group), "{}", entry.path().display());
        if entry.file_name() == "seen" {
            seen = fs_err::read_to_string(entry.path()).unwrap();
        }
    }
    assert!(seen.contains("LIBTORCH=") && !seen.contains("secret"), "{seen}");

    let again = project.run(&["build", "--format", "json"]).ok();
    assert_eq!(compiled(&again), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write("src/main.rs", &main.replace("the answer is", "the reply is"));
    let edited = project.run(&["build", "--format", "json"]).ok();
    assert_eq!(compiled(&edited), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(containers(&project), Vec::<String>::new());

    let plan = project.run(&["build", "--dry-run"]).ok();
    for line in
        ["container podman, image `localhost/torchlift-test:bullseye-1`", "with glibc 2.31", "container image (`"]
    {
        assert!(plan.stdout.contains(line), "no {line:?} in:\n{}", plan.stdout);
    }
}

/// A project whose build script says that it is there, and stays.
fn endless(image: &str) -> (Project, std::path::PathBuf) {
    let project = Project::linked();
    let mark = project.root.join("target/mark");
    project.write(
        "build.rs",
        &format!(
            "fn main() {{\n    let child = std::process::Command::new(\"sleep\").arg(\"600\").spawn().unwrap();\n    \
             std::fs::write({mark:?}, child.id().to_string()).unwrap();\n    std::thread::park();\n}}\n"
        ),
    );
    // A key of its own: containers are told apart by it, and other tests may run beside this one.
    let own = "build_env = { THIS_TEST = \"signals\" }\n";
    project.cluster(&format!("[job.train]\nprofile = \"quick\"\n{}{own}{}", kind("old", image), host("b", "old")));
    (project, mark)
}

fn start_and_wait(project: &Project, mark: &Path) -> Child {
    let _ = fs_err::remove_file(mark);
    let mut command = project.command(&["build"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    bounded("the build script runs", || {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before its build script ran");
        mark.is_file()
    });
    let running = containers(project);
    if running.len() != 1 {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("one container was to run, and there are {running:?}");
    }
    child
}

#[track_caller]
fn bounded(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = torchlift::clock::Clock::start();
    let limit = clock.now().plus(std::time::Duration::from_secs(300));
    while !is_so() {
        assert!(clock.now() < limit, "not within 300 s: {what}");
        let _ = nix::poll::poll(&mut [], 50_u8);
    }
}

#[test]
fn a_signal_ends_the_container_and_all_in_it_and_so_does_a_kill() {
    let Some(image) = image("a_signal_ends_the_container_and_all_in_it_and_so_does_a_kill") else { return };
    let (project, mark) = endless(image);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let child = start_and_wait(&project, &mark);
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let ran = Ran::of(&child.wait_with_output().unwrap()).fails(exit_code::INTERRUPTED);
        ran.says(&format!("interrupted by {signal}"));
        assert_eq!(containers(&project), Vec::<String>::new(), "{signal}");
    }
    let mut child = start_and_wait(&project, &mark);
    child.kill().unwrap();
    child.wait().unwrap();
    bounded("the container of a killed build is gone", || containers(&project).is_empty());
    assert_eq!(project.published(), Vec::<String>::new());
}

#[test]
fn what_a_container_lacks_is_told_before_a_build_with_the_engines_own_words() {
    let Some(image) = image("what_a_container_lacks_is_told_before_a_build_with_the_engines_own_words") else { return };
    let project = Project::linked();
    let with = |container: &str, more: &str| {
        project.cluster(&format!(
            "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cpu\"\ncontainer = {{ {container} }}\n{more}{}",
            host("b", "k")
        ));
        project.run(&["build"]).fails(exit_code::CLUSTER_FILE)
    };
    let ran = with("engine = \"podman\", image = \"localhost/not-there:1\"", "");
    ran.says("container-image-missing").says("podman pull localhost/not-there:1").says("localhost/not-there:1");
    with("engine = \"/nowhere/podman\", image = \"i\"", "")
        .says("container-engine-missing")
        .says("apt-get install podman");
    let ran = with(&format!("engine = \"podman\", image = \"{image}\", args = [\"--no-such-option\"]"), "");
    ran.says("container-run-fails").says("unknown flag: --no-such-option");
    let ran = with(&format!("engine = [\"podman\", \"--runtime=nowhere\"], image = \"{image}\""), "");
    ran.says("nowhere");
    let own = format!("engine = \"podman\", image = \"{image}\", args = {ARGS}");
    with(&own, "build_env = { CXX = \"no-such-c++\" }\n")
        .says("container-compiler-missing")
        .says("has no `no-such-c++`");
    with(&own, "target = \"aarch64-unknown-linux-gnu\"\n").says("toolchain-missing");
    assert!(!project.root.join("target/torchlift").exists());
}
