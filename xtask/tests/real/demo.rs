//! The demo and the trainer, as a person starts them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;
use torchlift_schema::{Accelerator, read};

use crate::trainer::{RANKS, after, project, text, xtask};

#[test]
fn the_demo_trains_four_ranks_to_one_set_of_weights_and_a_second_run_has_nothing_to_do() {
    let first = xtask(&["demo"]);
    assert!(first.status.success(), "{}", first.status);
    let stdout = text(&first.stdout);

    let weights = after(&stdout, ": weights sha256 ");
    assert_eq!(weights.len(), RANKS, "each rank tells the digest of its weights");
    assert!(weights.iter().all(|digest| digest.len() == 64 && *digest == weights[0]), "{weights:?}");

    let accuracy: f64 = after(&stdout, "final accuracy ")[0].trim_end_matches(" %").parse().unwrap();
    assert!(accuracy > 95.0, "{accuracy}");
    let losses: Vec<f64> =
        after(&stdout, "  loss ").iter().map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(losses.len() >= 2 && losses[losses.len() - 1] < losses[0] / 2.0, "it learns: {losses:?}");

    for host in ["node-a", "node-b"] {
        assert!(stdout.contains(host), "lines carry the host that they come from");
        let file = project().join(format!("target/cluster/{host}/envelope.json"));
        let envelope = read::envelope(&fs_err::read(&file).unwrap()).unwrap();
        assert_eq!(envelope.host, host);
        let libtorch = envelope.libtorch.unwrap();
        assert!(libtorch.version.starts_with("2.9.0"), "{}", libtorch.version);
        let names: Vec<&str> = libtorch.libraries.iter().map(|library| library.file.as_str()).collect();
        assert!(names.contains(&"libtorch_cpu.so") && names.contains(&"libc10.so"), "{names:?}");
        if libtorch.accelerator == Accelerator::Cpu {
            assert!(!names.contains(&"libtorch_cuda.so"), "{names:?}");
        }
    }

    let second = xtask(&["demo", "--", "--epochs", "2"]);
    assert!(second.status.success(), "{}", second.status);
    let told = text(&second.stderr);
    for work in ["Compiling", "Downloading", "is fetched"] {
        assert!(!told.contains(work), "a second run says `{work}`");
    }
    assert_eq!(after(&text(&second.stdout), ": weights sha256 ").len(), RANKS);
}

#[test]
fn the_trainers_own_tests_pass_with_the_libtorch_and_the_flags_of_its_build() {
    let built = xtask(&["build", "--locked"]);
    assert!(built.status.success(), "{}", built.status);
    let plan = xtask(&["build", "--dry-run", "--format", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let build = &plan["builds"][0];
    let env: BTreeMap<&str, &str> = build["env"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    let libraries = plan["hosts"][0]["ld_library_path"].as_str().unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--locked", "--target-dir", build["dir"].as_str().unwrap()])
        .current_dir(project())
        .env_remove("RUSTFLAGS")
        .envs(env)
        .env("LD_LIBRARY_PATH", libraries)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn what_the_trainer_returns_is_what_the_launch_returns() {
    let built = xtask(&["build", "--locked"]);
    assert!(built.status.success(), "{}", built.status);
    let failed = xtask(&["launch", "--no-build", "--", "--no-such-flag"]);
    assert_eq!(failed.status.code(), Some(2), "the trainer's own code for a wrong command line");
    assert!(text(&failed.stderr).contains("no-such-flag"), "the trainer's own words are shown");
}
