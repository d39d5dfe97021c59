//! Trees of /proc, /sys and /dev as other machines have them, each with the facts that they hold, beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift::preflight::gpu::{Nvml, Sources};
use torchlift::preflight::host::{self, Question, Roots};
use torchlift::preflight::{HostLibraries, LibraryPath};
use torchlift::report::host::render;
use torchlift_schema::host::LibcFlavour;
use torchlift_schema::{ClusterFacts, HostFacts, facts};

use crate::hosts;

/// Names of the trees, sorted.
fn names() -> Vec<String> {
    let entries = fs_err::read_dir(hosts()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The facts of a tree, with nothing of this machine in them.
fn read(name: &str, nvml: Nvml<'_>) -> ClusterFacts {
    let root = fs_err::canonicalize(hosts().join(name)).unwrap();
    let roots = Roots::below(&root);
    let arch = if name.starts_with("jetson") { "aarch64" } else { "x86_64" };
    let smi = root.join("usr/bin/nvidia-smi");
    let sources = Sources {
        nvml,
        asker: Path::new(""),
        nvidia_smi: smi.exists().then_some(smi),
        patience: Duration::from_secs(60),
    };
    let mut facts = host::read(&Question {
        roots: &roots,
        arch,
        libraries: &HostLibraries::default(),
        library_path: &LibraryPath::default(),
        cwd: Path::new("/"),
        folders: &[],
        cards: &sources,
        now: Duration::from_millis(1_796_048_585_118),
    });
    facts.torchlift = "0.0.0".to_owned();
    let all = ClusterFacts::of(name, facts);
    assert_eq!(all.validate(), [], "{name}");
    // Where the tree lies in this checkout is no fact of the host.
    let text = facts::to_text(&all).replace(root.to_str().unwrap(), "");
    facts::read(text.as_bytes()).unwrap()
}

fn expected(name: &str, ending: &str) -> PathBuf {
    hosts().join(format!("{name}{ending}"))
}

#[test]
fn every_tree_reads_as_the_facts_beside_it() {
    let names = names();
    assert!(names.len() >= 8, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        let found = read(name, Nvml::Never);
        for (ending, text) in [(".json", facts::to_text(&found)), (".txt", render(name, &found.hosts[name]))] {
            let there = fs_err::read_to_string(expected(name, ending)).unwrap_or_default();
            if there != text {
                wrong.push(format!("{name}{ending} should be\n{text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_expected_result_is_of_a_tree_that_is_no_more() {
    let names = names();
    for entry in fs_err::read_dir(hosts()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let stem = file.strip_suffix(".json").or_else(|| file.strip_suffix(".txt"));
        assert!(stem.is_none_or(|stem| names.iter().any(|name| name == stem)), "{file}");
    }
}

/// The facts of one tree.
fn facts_of(name: &str) -> torchlift_schema::HostFacts {
    read(name, Nvml::Never).hosts.remove(name).unwrap()
}

#[test]
fn a_driver_that_cannot_be_asked_is_a_problem_and_not_a_host_without_cards() {
    let facts = facts_of("driver-mismatch");
    assert_eq!(facts.gpus.len(), 1);
    let problems: Vec<_> = facts.problems.iter().filter(|problem| problem.code.starts_with("gpu-")).collect();
    assert!(problems.iter().any(|problem| problem.code == "gpu-driver-broken"), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.message.contains("Driver/library version mismatch")), "{problems:?}");
}

#[test]
fn cards_without_a_driver_are_named_by_their_place() {
    let facts = facts_of("no-driver");
    assert_eq!(facts.gpus, []);
    let found: Vec<_> = facts.problems.iter().filter(|problem| problem.code == "gpu-without-driver").collect();
    assert_eq!(found.len(), 2, "one a maker: {found:?}");
    assert!(found[0].message.contains("`0000:17:00.0`, `0000:3d:00.0`"), "{}", found[0].message);
    assert!(!found[0].message.contains("5d:00"), "a switch is no card: {}", found[0].message);
}

#[test]
fn a_host_with_no_card_at_all_has_no_problem_with_cards() {
    let facts = facts_of("hybrid-cgroup");
    assert_eq!(facts.gpus, []);
    assert!(facts.nvidia.is_none() && facts.amd.is_none());
    assert!(facts.problems.iter().all(|problem| !problem.code.starts_with("gpu-")), "{:?}", facts.problems);
}

#[test]
fn an_empty_tree_and_one_of_hostile_files_are_read_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let empty = without_tools(folder.path());
    assert!(empty.problems.len() >= 4, "{:?}", empty.problems);
    assert_eq!((empty.cores.effective(), empty.memory.total, empty.gpus.len()), (None, None, 0));

    // Every file of every tree, each with the bytes of others.
    for name in names() {
        let root = hosts().join(&name);
        let copy = folder.path().join(&name);
        for entry in walk(&root) {
            let target = copy.join(entry.strip_prefix(&root).unwrap());
            fs_err::create_dir_all(target.parent().unwrap()).unwrap();
            let mut bytes = fs_err::read(&entry).unwrap();
            bytes.reverse();
            bytes.extend_from_slice(b"\n\xff\0: 99999999999999999999 - kB\n-:,\n");
            fs_err::write(&target, bytes).unwrap();
        }
        let facts = without_tools(&copy);
        assert_eq!(ClusterFacts::of("x", facts).validate(), [], "{name}");
    }
}

#[test]
fn a_host_whose_c_library_is_musl_says_so_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let question = |version: &str| {
        fs_err::create_dir_all(folder.path().join("lib")).unwrap();
        let text = format!("\x7fELF\0musl libc (x86_64)\nVersion %s\n\0{version}\0");
        fs_err::write(folder.path().join("lib/ld-musl-x86_64.so.1"), text).unwrap();
        let facts = without_tools(folder.path());
        let libc = facts.libc.unwrap();
        assert_eq!((libc.flavour, libc.from.as_str()), (LibcFlavour::Musl, "/lib/ld-musl-x86_64.so.1"));
        libc.version
    };
    assert_eq!(question("1.2.5").as_deref(), Some("1.2.5"));
    assert_eq!(question("git").as_deref(), None);
}

/// A host whose files are below `root`, and of which nothing else is asked.
fn without_tools(root: &Path) -> HostFacts {
    let sources =
        Sources { nvml: Nvml::Never, asker: Path::new(""), nvidia_smi: None, patience: Duration::from_secs(1) };
    host::read(&Question {
        roots: &Roots::below(root),
        arch: "x86_64",
        libraries: &HostLibraries::default(),
        library_path: &LibraryPath::default(),
        cwd: Path::new("/"),
        folders: &[],
        cards: &sources,
        now: Duration::ZERO,
    })
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs_err::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() { files.extend(walk(&entry.path())) } else { files.push(entry.path()) }
    }
    files
}
