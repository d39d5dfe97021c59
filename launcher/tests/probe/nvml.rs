//! NVIDIA's library, with a stand-in for machines without a card: `fixtures/libs/nvml.c`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift::preflight::gpu::{self, Cards, Nvml, Question, Sources};
use torchlift::preflight::host::Roots;
use torchlift::preflight::{HostLibraries, LibraryPath};
use torchlift_schema::facts;
use torchlift_schema::host::Gpu;

use crate::{hosts, probe, stand_in, stdout, text};

const GIB: u64 = 1 << 30;

/// A folder with the library, which answers by these lines.
fn library(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("nvml é ").tempdir().unwrap();
    // The real one is a link to a file with the version in its name.
    let file = folder.path().join("libnvidia-ml.so.535.183.01");
    stand_in::library("nvml.c", &file, &["-Wl,-soname,libnvidia-ml.so.1"]);
    let link = folder.path().join("libnvidia-ml.so.1");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    fs_err::write(folder.path().join("nvml.txt"), lines).unwrap();
    (folder, link)
}

fn ask(file: &Path, roots: &Roots, smi: Option<PathBuf>, patience: Duration) -> Cards {
    gpu::read(&Question {
        roots,
        arch: "x86_64",
        libraries: &HostLibraries::default(),
        library_path: &LibraryPath::default(),
        cwd: Path::new("/"),
        sources: &Sources {
            nvml: Nvml::File(file),
            asker: Path::new(env!("CARGO_BIN_EXE_torchlift")),
            nvidia_smi: smi,
            patience,
        },
        memory: None,
    })
}

/// What a stand-in with these lines says on a host of this tree; of one that does not exist, nothing.
fn answers(lines: &str, tree: &str) -> Cards {
    let (_folder, file) = library(lines);
    ask(&file, &Roots::below(hosts().join(tree)), None, Duration::from_secs(60))
}

fn shown(gpu: &Gpu) -> String {
    let capability = gpu.capability.map(String::from).unwrap_or_default();
    format!("{} {} {capability} {}", gpu.index, gpu.pci.as_deref().unwrap_or("-"), gpu.uuid.as_deref().unwrap_or("-"))
}

#[test]
fn cards_are_told_with_capability_memory_and_driver_in_the_order_of_the_bus() {
    let cards = answers(
        "driver 575.57.08\ncuda 12090\n\
         card NVIDIA GeForce GTX 1060 6GB|GPU-b|00000000:65:00.0|6|1|6442450944|-\n\
         card NVIDIA GeForce RTX 5060 Ti|GPU-a|00000000:01:00.0|12|0|17103323136|-\n",
        "none",
    );
    assert_eq!(cards.problems, []);
    let driver = cards.nvidia.unwrap();
    assert_eq!((driver.version.as_deref(), driver.cuda.unwrap().to_string().as_str()), (Some("575.57.08"), "12.9"));
    let list: Vec<_> = cards.gpus.iter().map(shown).collect();
    assert_eq!(list, ["0 0000:01:00.0 12.0 GPU-a", "1 0000:65:00.0 6.1 GPU-b"]);
    assert_eq!(cards.gpus[1].memory, Some(6 * GIB));
    assert_eq!(cards.gpus[0].mig, None, "a card that cannot be divided");
}

#[test]
fn a_divided_card_is_told_with_its_parts_and_empty_places_are_none() {
    let cards = answers(
        "driver 550.54.14\ncuda 12040\n\
         card NVIDIA A100-SXM4-40GB|GPU-a|00000000:07:00.0|8|0|42949672960|1\n\
         part NVIDIA A100-SXM4-40GB MIG 3g.20gb|MIG-1|20937965568\n\
         part NVIDIA A100-SXM4-40GB MIG 1g.5gb|MIG-2|0\n\
         card NVIDIA A100-SXM4-40GB|GPU-b|00000000:0F:00.0|8|0|42949672960|0\n",
        "none",
    );
    assert_eq!(cards.problems, []);
    let mig = cards.gpus[0].mig.as_ref().unwrap();
    assert!(mig.enabled && !cards.gpus[1].mig.as_ref().unwrap().enabled);
    let parts: Vec<_> =
        mig.devices.iter().map(|part| (part.uuid.as_str(), part.name.as_deref(), part.memory)).collect();
    assert_eq!(parts, [("MIG-1", Some("3g.20gb"), Some(20_937_965_568)), ("MIG-2", Some("1g.5gb"), None)]);
}

#[test]
fn an_update_that_left_library_and_kernel_apart_is_named_with_both_versions() {
    let cards = answers("init 18\n", "driver-mismatch");
    let problem = cards.problems.iter().find(|problem| problem.code == "gpu-driver-broken").unwrap();
    assert!(problem.is_error());
    assert!(problem.message.contains("the library is 535.183.01, the kernel's part 535.171.04"), "{}", problem.message);
    assert!(problem.remedy.as_ref().unwrap().starts_with("reboot"), "{problem:?}");
    assert_eq!(cards.gpus.len(), 1, "the kernel has it all the same");
}

#[test]
fn each_failure_of_the_library_says_what_it_is() {
    for (code, words) in [(9, "is not loaded"), (4, "may not use"), (999, "an internal driver error")] {
        let cards = answers(&format!("init {code}\n"), "none");
        let [problem] = cards.problems.as_slice() else { panic!("{code}: {:?}", cards.problems) };
        assert!(problem.message.contains(words), "{code}: {}", problem.message);
        assert_eq!(cards.gpus, []);
    }
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libnvidia-ml.so.1");
    fs_err::write(&file, "no library\n".repeat(100)).unwrap();
    let cards = ask(&file, &Roots::below(folder.path()), None, Duration::from_secs(60));
    assert!(cards.problems[0].message.contains("invalid ELF header"), "{:?}", cards.problems);
    // One that has nothing of what it should have.
    stand_in::library::<&str>("leaf.c", &file, &[]);
    let cards = ask(&file, &Roots::below(folder.path()), None, Duration::from_secs(60));
    assert!(cards.problems[0].message.contains("nvmlInit_v2"), "{:?}", cards.problems);
}

#[test]
fn a_library_that_hangs_is_given_up() {
    let (_folder, file) = library("hang\n");
    let cards = ask(&file, &Roots::below("/nonexistent"), None, Duration::from_millis(100));
    assert!(cards.problems[0].message.contains("gave no answer"), "{:?}", cards.problems);
}

#[test]
fn a_card_that_fell_off_the_bus_is_a_problem_and_the_others_are_there() {
    let cards = answers("driver 550.54.14\ncard A|GPU-a|00000000:01:00.0|8|0|1|-\nlost\n", "none");
    assert_eq!(cards.gpus.len(), 1);
    assert!(
        cards.problems[0].message.contains("card 1") && cards.problems[0].message.contains("fell off the bus"),
        "{:?}",
        cards.problems
    );
}

#[test]
fn what_the_library_leaves_open_is_filled_in_by_the_command_and_a_card_it_does_not_show_is_not_added() {
    let (_folder, file) = library(
        "driver 575.57.08\ncard NVIDIA GeForce GTX 1060 6GB|GPU-1b2c3d4e-0000-1111-2222-333344445555|00000000:02:00.0|0|0|0|-\n",
    );
    let root = hosts().join("pascal-blackwell");
    let cards = ask(&file, &Roots::below(&root), Some(root.join("usr/bin/nvidia-smi")), Duration::from_secs(60));
    let [card] = cards.gpus.as_slice() else { panic!("{:?}", cards.gpus) };
    assert_eq!(
        (card.index, card.memory, card.capability.map(String::from).as_deref()),
        (0, Some(6 * GIB), Some("6.1"))
    );
    assert_eq!(card.from.len(), 2, "{:?}", card.from);
    assert_eq!(cards.nvidia.unwrap().cuda.unwrap().to_string(), "12.9");
}

/// An `nvidia-smi` in a folder of its own.
fn command(script: &str) -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::Builder::new().prefix("smi é ").tempdir().unwrap();
    let file = folder.path().join("nvidia-smi");
    fs_err::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs_err::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    (folder, file)
}

#[test]
fn a_command_that_hangs_is_ended() {
    let (folder, smi) = command("sleep 1000; true");
    let (_library, file) = library("init 999\n");
    let cards = ask(&file, &Roots::below(folder.path()), Some(smi), Duration::from_millis(500));
    assert!(
        cards.problems.iter().any(|problem| problem.message.contains("nvidia-smi` did not answer: it gave no answer")),
        "{:?}",
        cards.problems
    );
}

#[test]
fn a_command_that_says_no_list_of_cards_is_no_driver() {
    let (folder, smi) = command("printf 'a\\033[31m\\377 b\\n'");
    let output = probe(folder.path(), &["--host", "a"]).env("PATH", smi.parent().unwrap()).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("no list of cards: a[31m\u{fffd} b"), "{said}");
    assert!(said.contains("gpu-unreadable") && !said.contains("gpu-driver-broken"), "{said}");
    assert!(!stdout(&output).contains("nvidia "), "{}", text(&output.stdout));
}

#[test]
fn what_a_command_says_beyond_the_form_of_facts_is_left_out_and_the_rest_is_saved() {
    let (folder, smi) = command(
        "case \"$1\" in\n\
         --query*) echo '0, GPU-a, 00000000:01:00.0, 99999999999999, Enabled, 8.0, A' ;;\n\
         -q) echo 'Driver Version : N/A' ;;\n\
         -L) echo 'GPU 0: A (UUID: GPU-a)'; echo '  MIG 1g Device 0: (UUID: MIG-x)'; echo '  MIG 1g Device 1: (UUID: MIG-x)' ;;\n\
         esac",
    );
    let mut command = probe(folder.path(), &["--host", "a", "--format", "json", "--save", "f.json"]);
    let output = command.env("PATH", smi.parent().unwrap()).output().unwrap();
    let all = facts::read(stdout(&output).as_bytes()).unwrap();
    let [card] = all.hosts["a"].gpus.as_slice() else { panic!("{:?}", all.hosts["a"].gpus) };
    assert_eq!((card.memory, card.mig.as_ref().unwrap().devices.len()), (None, 1));
    assert_eq!(all.hosts["a"].nvidia.as_ref().unwrap().version, None);
}

/// The built program with a library that answers by these lines.
fn probe_with(lines: &str) -> std::process::Output {
    let (folder, _file) = library(lines);
    let mut command = probe(folder.path(), &["--format", "json", "--host", "a", "--save", "f.json"]);
    let output = command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let left = fs_err::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 4, "the library, its link, what it says, and the facts: no core file");
    output
}

#[test]
fn a_library_that_crashes_or_exits_does_not_take_the_facts_with_it() {
    for (lines, how) in [("crash\n", "signal: 11"), ("exit 0\n", "exit status: 0"), ("exit 3\n", "exit status: 3")] {
        let output = probe_with(lines);
        let all = facts::read(stdout(&output).as_bytes()).unwrap();
        assert!(all.hosts["a"].cpu.level.is_some(), "{lines}");
        let [problem] = all.hosts["a"].problems.as_slice() else { panic!("{:?}", all.hosts["a"].problems) };
        assert_eq!(problem.code, "gpu-driver-broken");
        assert!(problem.message.contains(how) && problem.message.contains("libnvidia-ml.so.1`"), "{}", problem.message);
        assert!(text(&output.stderr).contains(&problem.message));
    }
}

#[test]
fn what_a_library_prints_is_no_part_of_the_facts() {
    let output = probe_with("say {hello}\ncard NVIDIA H100|GPU-a|00000000:1B:00.0|9|0|85899345920|0\n");
    let all = facts::read(stdout(&output).as_bytes()).unwrap();
    assert_eq!(all.hosts["a"].gpus.len(), 1);
    assert!(!text(&output.stderr).contains("hello"));
}

/// The built program finds the library as the loader would, and opens it: also when it was built for an old system.
#[test]
fn the_program_finds_the_library_by_the_search_path_and_opens_it() {
    let (folder, file) =
        library("driver 550.54.14\ncuda 12040\ncard NVIDIA H100|GPU-a|00000000:1B:00.0|9|0|85899345920|0\n");
    let output = probe(folder.path(), &["--format", "json", "--host", "a"])
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let all = facts::read(stdout(&output).as_bytes()).unwrap();
    let [card] = all.hosts["a"].gpus.as_slice() else { panic!("{:?}", all.hosts["a"].gpus) };
    assert_eq!(shown(card), "0 0000:1b:00.0 9.0 GPU-a");
    assert_eq!(card.from, [file.display().to_string()]);
    assert_eq!(all.hosts["a"].loader.library_path, [folder.path().display().to_string()]);
}
