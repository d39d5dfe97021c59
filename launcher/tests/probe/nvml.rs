//! NVIDIA's library, with a stand-in for machines without a card: `fixtures/libs/nvml.c`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift::preflight::gpu::{self, Cards, Nvml, Question, Sources};
use torchlift::preflight::host::Roots;
use torchlift::preflight::{HostLibraries, LibraryPath};
use torchlift_schema::facts;
use torchlift_schema::host::Gpu;

use crate::{hosts, probe, stand_in, stdout};

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
        sources: &Sources { nvml: Nvml::File(file), nvidia_smi: smi, patience },
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

#[test]
fn a_command_that_hangs_is_ended() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let smi = folder.path().join("nvidia-smi");
    fs_err::write(&smi, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs_err::set_permissions(&smi, PermissionsExt::from_mode(0o755)).unwrap();
    let (_library, file) = library("init 999\n");
    let cards = ask(&file, &Roots::below(folder.path()), Some(smi), Duration::from_millis(500));
    assert!(
        cards.problems.iter().any(|problem| problem.message.contains("nvidia-smi` gave no answer")),
        "{:?}",
        cards.problems
    );
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
