//! Stores and hosts as they are met, and what is chosen.

use torchlift::preflight::fatbin::RegionGroup;
use torchlift::preflight::fit::{Device, Driver, Isa};

use super::*;

fn content(codes: &[&str]) -> GpuContent {
    let codes = codes.iter().map(|code| code.parse().unwrap()).collect();
    GpuContent { regions: vec![RegionGroup { codes, count: 397 }], ..GpuContent::default() }
}

fn candidate(name: &str, accelerator: Accelerator, codes: &[&str], gigabytes: u64) -> Candidate {
    let library = match &accelerator {
        Accelerator::Cuda(_) => Some("libtorch_cuda.so"),
        Accelerator::Rocm(_) => Some("libtorch_hip.so"),
        _ => None,
    };
    Candidate {
        name: name.to_owned(),
        version: "2.9.0".to_owned(),
        accelerator,
        cpu_arch: "x86_64".to_owned(),
        gpu_code: library.map(|library| (library.to_owned(), content(codes))).into_iter().collect(),
        glibc: Some("2.28".parse().unwrap()),
        size: gigabytes * 1_000_000_000,
    }
}

fn cuda(version: &str) -> Accelerator {
    Accelerator::Cuda(version.to_owned())
}

/// The variants of one version as they are published, and a build for two old and new cards.
fn store() -> Vec<Candidate> {
    let seven = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"];
    vec![
        candidate("precompiled/cpu-2.9.0", Accelerator::Cpu, &[], 1),
        candidate(
            "precompiled/cu126-2.9.0",
            cuda("12.6"),
            &["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
            4,
        ),
        candidate("precompiled/cu128-2.9.0", cuda("12.8"), &seven, 5),
        candidate(
            "precompiled/cu130-2.9.0",
            cuda("13.0"),
            &["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
            4,
        ),
        candidate("builds/sm61-sm120", cuda("12.8"), &["sm_61", "sm_120"], 2),
        candidate("precompiled/rocm64-2.9.0", Accelerator::Rocm("6.4".to_owned()), &["gfx90a", "gfx942", "gfx1100"], 6),
        Candidate { version: "2.8.0".to_owned(), ..candidate("precompiled/cu129-2.8.0", cuda("12.9"), &seven, 5) },
        Candidate { cpu_arch: "aarch64".to_owned(), ..candidate("precompiled/cu128-arm", cuda("12.8"), &["sm_90"], 5) },
    ]
}

fn machine(name: &str, cards: &[&str], driver: Option<&str>) -> Machine {
    let isa = |text: &&str| match text.parse() {
        Ok(capability) => Isa::Cuda(capability),
        Err(_) => Isa::Gfx(text.parse().unwrap()),
    };
    let device = |(index, text): (usize, &&str)| {
        let index = u32::try_from(index).unwrap();
        Device::found(index, Some("Card"), Some(&format!("GPU-{index}")), isa(text))
    };
    Machine {
        name: name.to_owned(),
        gpus: Gpus::Known(cards.iter().enumerate().map(device).collect()),
        driver: driver.map(|version| Driver { version: Some(version.parse().unwrap()), ..Driver::default() }),
        gfx_override: None,
        libc: Some(Libc::Glibc("2.36".parse().unwrap())),
    }
}

fn shown(machines: &[Machine], candidates: &[Candidate]) -> String {
    let wish = Wish { version: Some("2.9.0"), cpu_arch: "x86_64", machines };
    let mut text = String::new();
    match choose(&wish, candidates) {
        Ok(chosen) => {
            let _ = writeln!(text, "  {}: {}", candidates[chosen.index].name, chosen.reason);
        }
        Err(none) => {
            let _ = writeln!(text, "  none");
            let refused = none.refused.iter().map(ToString::to_string);
            for line in none.machines.into_iter().chain(refused) {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    text
}

#[test]
fn the_best_fit_of_a_store_is_taken_and_says_why() {
    let store = store();
    let hosts: &[(&str, Vec<Machine>)] = &[
        ("no GPU", vec![machine("a", &[], None)]),
        ("one card, a new driver", vec![machine("a", &["8.6"], Some("580.65.06"))]),
        ("the same card, a driver for CUDA 12", vec![machine("a", &["8.6"], Some("550.54.14"))]),
        (
            "cards that one build alone serves",
            vec![machine("a", &["6.1"], Some("580.65.06")), machine("b", &["12.0"], Some("580.65.06"))],
        ),
        ("an old card", vec![machine("a", &["6.0"], Some("535.54.03"))]),
        ("a card of AMD", vec![machine("a", &["gfx1100"], None)]),
        ("cards of both vendors", vec![machine("a", &["8.6", "gfx1036"], Some("535.54.03"))]),
        ("a host with and one without", vec![machine("a", &["8.6"], Some("535.54.03")), machine("b", &[], None)]),
        ("nobody looked, and this machine has none", vec![Machine::unknown("a", false)]),
        ("nobody looked, and this machine has one", vec![Machine::unknown("a", true)]),
    ];
    let texts: Vec<String> = hosts.iter().map(|(what, hosts)| format!("{what}\n{}", shown(hosts, &store))).collect();
    insta::assert_snapshot!("chosen", texts.concat());
}

#[test]
fn where_none_fits_everything_that_was_looked_at_is_told() {
    let store = store();
    let old_libc =
        Machine { libc: Some(Libc::Glibc("2.17".parse().unwrap())), ..machine("old", &["8.6"], Some("535.54.03")) };
    let musl = Machine { libc: Some(Libc::Musl), ..machine("alpine", &[], None) };
    let texts = [
        shown(&[machine("a", &["6.1", "3.5"], Some("450.80.02"))], &store),
        shown(&[old_libc], &store[1..2]),
        shown(&[musl], &store[..1]),
        shown(&[machine("a", &[], None)], &[]),
    ];
    insta::assert_snapshot!("none", texts.concat());
}

#[test]
fn native_code_goes_before_ptx_and_ptx_before_a_driver_that_is_too_old() {
    let candidates = [
        candidate("ptx", cuda("12.9"), &["sm_80", "compute_90"], 1),
        candidate("native", cuda("12.6"), &["sm_80", "sm_120"], 9),
        candidate("new", cuda("13.0"), &["sm_120"], 1),
    ];
    let choose_for = |driver: &str, from: &[Candidate]| {
        let machines = [machine("a", &["12.0"], Some(driver))];
        let wish = Wish { version: None, cpu_arch: "x86_64", machines: &machines };
        choose(&wish, from).map(|chosen| from[chosen.index].name.clone())
    };
    assert_eq!(choose_for("575.57.08", &candidates).unwrap(), "native");
    assert_eq!(choose_for("580.65.06", &candidates).unwrap(), "new");
    assert_eq!(choose_for("575.57.08", &[candidates[0].clone(), candidates[2].clone()]).unwrap(), "ptx");
    let none = choose_for("570.26", &[candidates[0].clone(), candidates[2].clone()]).unwrap_err();
    assert_eq!(none.refused.len(), 2);
}

#[test]
fn of_variants_that_serve_alike_the_smallest_is_taken_and_the_first_of_equal_ones() {
    let machines = [machine("a", &["8.6"], Some("570.26"))];
    let wish = Wish { version: None, cpu_arch: "x86_64", machines: &machines };
    let of = |name: &str, size| candidate(name, cuda("12.8"), &["sm_86"], size);
    let chosen = choose(&wish, &[of("a/large", 3), of("a/small", 1), of("b/small", 1)]).unwrap();
    assert_eq!(chosen.index, 1);
    assert!(chosen.reason.ends_with("`b/small` does as well, and is found after it"), "{}", chosen.reason);
}

#[test]
fn a_variant_for_gpus_without_any_code_for_them_is_refused() {
    let mut empty = candidate("a/empty", cuda("12.8"), &[], 1);
    empty.gpu_code.clear();
    let machines = [machine("a", &["8.6"], None)];
    let wish = Wish { version: None, cpu_arch: "x86_64", machines: &machines };
    assert_eq!(choose(&wish, &[empty]).unwrap_err().refused[0].reasons, [Refusal::NoCode]);
}
