//! The rules as tables, and libraries as they were published.

use torchlift_schema::gpu::{Capability, CudaArch, GfxTarget, ToolkitVersion};
use torchlift_schema::{Finding, Place, Severity};

use super::*;
use crate::preflight::code;
use crate::preflight::fatbin::{GpuContent, RegionGroup};

fn arch(text: &str) -> CudaArch {
    text.parse().unwrap()
}

fn capability(text: &str) -> Capability {
    text.parse().unwrap()
}

fn target(text: &str) -> GfxTarget {
    text.parse().unwrap()
}

fn toolkit(text: &str) -> ToolkitVersion {
    text.parse().unwrap()
}

fn content(groups: &[(&[&str], u64)]) -> GpuContent {
    let group = |(codes, count): &(&[&str], u64)| RegionGroup {
        codes: codes.iter().map(|code| code.parse().unwrap()).collect(),
        count: *count,
    };
    GpuContent { regions: groups.iter().map(group).collect(), ..GpuContent::default() }
}

/// A card with a name and a UUID; `61` is one of NVIDIA's, `gfx90a` one of AMD's.
fn card(index: u32, isa: &str) -> Device {
    let isa = match isa.starts_with("gfx") {
        true => Isa::Gfx(target(isa)),
        false => Isa::Cuda(capability(isa)),
    };
    Device::found(index, Some("Card"), Some(&format!("GPU-{index}")), isa)
}

fn library<'a>(name: &'a str, content: &'a GpuContent) -> LibraryCode<'a> {
    LibraryCode { name, role: Role::of_library(name, true), content, toolkit: Some(toolkit("12.8")) }
}

fn driver(version: &str) -> Driver {
    Driver { version: Some(version.parse().unwrap()), ..Driver::default() }
}

fn level(content: &GpuContent, isa: &str, driver: Option<&Driver>) -> Level {
    fit(&library("libtorch_cuda.so", content), &card(0, isa), driver).level()
}

fn findings(libraries: &[LibraryCode<'_>], devices: &[Device], driver: Option<&Driver>) -> Verdict {
    check(&Question { place: Place::host("node-1"), devices, driver, gfx_override: None, libraries })
}

fn codes(findings: &[Finding]) -> Vec<(&str, Severity)> {
    findings.iter().map(|finding| (finding.code.as_str(), finding.severity)).collect()
}

const SEVEN: [&str; 7] = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"];

/// `libtorch_cuda.so` of the CUDA 12.8 wheel of torch 2.9.0.
fn libtorch_cuda() -> GpuContent {
    let with = |more: &[&'static str]| SEVEN.into_iter().chain(more.iter().copied()).collect::<Vec<_>>();
    content(&[
        (&SEVEN, 392),
        (&with(&["sm_90a"]), 2),
        (&with(&["sm_90a", "sm_100a"]), 1),
        (&with(&["sm_90a", "sm_100a", "sm_120a"]), 1),
        (&with(&["sm_89"]), 1),
    ])
}

#[test]
fn machine_code_runs_on_later_cards_of_its_own_generation() {
    let table = [
        ("sm_61", "6.1", true),
        ("sm_60", "6.1", true),
        ("sm_61", "6.0", false),
        // Of the same major version, and newer than the card.
        ("sm_86", "8.0", false),
        ("sm_80", "8.6", true),
        ("sm_80", "8.9", true),
        ("sm_86", "9.0", false),
        ("sm_90", "9.0", true),
        ("sm_90", "10.0", false),
        ("sm_100", "10.3", true),
        ("sm_103", "10.0", false),
        ("sm_120", "12.1", true),
        ("sm_100", "12.0", false),
        // For one architecture alone.
        ("sm_90a", "9.0", true),
        ("sm_100a", "10.0", true),
        ("sm_100a", "10.3", false),
        ("sm_120a", "12.1", false),
        // For a family.
        ("sm_100f", "10.0", true),
        ("sm_100f", "10.3", true),
        ("sm_103f", "10.0", false),
        ("sm_120f", "12.1", true),
        ("sm_100f", "12.0", false),
        ("sm_100f", "11.0", false),
        // Tegra: neither theirs elsewhere nor others' there.
        ("sm_53", "5.3", true),
        ("sm_52", "5.3", false),
        ("sm_60", "6.2", false),
        ("sm_62", "6.2", true),
        ("sm_70", "7.2", false),
        ("sm_72", "7.5", false),
        ("sm_80", "8.7", false),
        ("sm_86", "8.7", false),
        ("sm_87", "8.7", true),
        ("sm_87", "8.9", false),
        // Thor, before and after it was given its own major version.
        ("sm_101", "11.0", true),
        ("sm_110", "10.1", true),
        ("sm_100", "10.1", false),
        ("sm_101", "10.3", false),
    ];
    for (code, card, runs) in table {
        assert_eq!(cuda::is_native(arch(code), capability(card)), runs, "{code} on {card}");
    }
}

#[test]
fn ptx_is_compiled_for_the_same_and_for_later_cards() {
    let table = [
        ("8.0", "8.0", true),
        ("8.0", "8.6", true),
        ("8.0", "12.0", true),
        ("8.6", "8.0", false),
        ("9.0", "8.9", false),
        ("5.0", "8.7", true),
        ("9.0a", "9.0", true),
        ("9.0a", "10.0", false),
        ("10.0f", "10.3", true),
        ("10.0f", "12.0", false),
        ("10.3f", "10.0", false),
    ];
    for (code, card, compiles) in table {
        assert_eq!(cuda::is_compilable(arch(code), capability(card)), compiles, "compute_{code} on {card}");
    }
}

#[test]
fn code_of_amd_runs_on_its_own_processor_or_on_those_that_a_generic_one_stands_for() {
    let table = [
        ("gfx90a", "gfx90a", true),
        ("gfx906", "gfx90a", false),
        ("gfx1030", "gfx1031", false),
        ("gfx9-generic", "gfx906", true),
        ("gfx9-generic", "gfx908", false),
        ("gfx9-generic", "gfx90a", false),
        ("gfx9-4-generic", "gfx942", true),
        ("gfx9-4-generic", "gfx950", true),
        ("gfx9-4-generic", "gfx90a", false),
        ("gfx10-1-generic", "gfx1012", true),
        ("gfx10-3-generic", "gfx1036", true),
        ("gfx10-3-generic", "gfx1012", false),
        ("gfx11-generic", "gfx1151", true),
        ("gfx11-generic", "gfx1201", false),
        ("gfx12-generic", "gfx1201", true),
        ("gfx13-generic", "gfx1201", false),
        // A feature that either side leaves out matches.
        ("gfx90a", "gfx90a:sramecc+:xnack-", true),
        ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", true),
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", false),
        ("gfx90a:sramecc-", "gfx90a:sramecc+:xnack-", false),
        ("gfx90a:xnack+", "gfx90a", true),
        ("gfx9-4-generic:xnack+", "gfx942:sramecc+:xnack-", false),
    ];
    for (code, card, runs) in table {
        assert_eq!(gfx::runs(target(code), target(card)), runs, "{code} on {card}");
    }
}

#[test]
fn an_override_makes_a_card_another_one_and_keeps_its_features() {
    let taken_for = |text: &str| text.parse::<Override>();
    assert_eq!(taken_for("10.3.0").unwrap().on(target("gfx1031")), target("gfx1030"));
    assert_eq!(taken_for("9.0.10").unwrap().on(target("gfx906:xnack-")), target("gfx90a:xnack-"));
    for bad in ["", "10.3", "10.3.0.1", "gfx1030", "10.3.a", "10.16.0", "0.3.0", "+1.0.0", "10.3.", "64.0.0", "10,3,0"]
    {
        assert!(taken_for(bad).is_err(), "{bad}");
    }
}

#[test]
fn machine_code_needs_the_oldest_driver_of_its_cuda_generation() {
    let table = [
        ("11.8", "450.80.02", true),
        ("11.8", "440.33", false),
        ("12.8", "525.60.13", true),
        ("12.8", "520.61.05", false),
        ("12.9", "535.54.03", true),
        ("13.0", "575.57.08", false),
        ("13.2", "580.65.06", true),
        // Each toolkit before CUDA 11 needed its own.
        ("10.2", "418.39", false),
        ("10.2", "440.33", true),
    ];
    for (code, version, serves) in table {
        let answer = driver(version).serves(Need::Native(toolkit(code)));
        assert_eq!(answer == Answer::Serves, serves, "CUDA {code} on {version}: {answer:?}");
    }
}

#[test]
fn ptx_needs_a_driver_that_is_as_new_as_its_toolkit() {
    let table = [
        ("12.8", "525.60.13", false),
        ("12.8", "570.26", true),
        ("12.8", "570.124.06", true),
        ("12.4", "550.54.14", true),
        ("12.4", "545.23.08", false),
        ("13.0", "580.65.06", true),
        ("13.0", "580.00", false),
        ("11.8", "535.54.03", true),
    ];
    for (code, version, serves) in table {
        let answer = driver(version).serves(Need::Ptx(toolkit(code)));
        assert_eq!(answer == Answer::Serves, serves, "PTX {code} on {version}: {answer:?}");
    }
}

#[test]
fn a_driver_that_states_its_cuda_is_believed() {
    // A Tegra's driver has a version of its own, which no table has.
    let tegra = Driver { cuda: Some(toolkit("12.6")), ..Driver::default() };
    assert_eq!(tegra.serves(Need::Ptx(toolkit("12.6"))), Answer::Serves);
    assert_eq!(tegra.serves(Need::Native(toolkit("12.9"))), Answer::Serves);
    assert!(matches!(tegra.serves(Need::Ptx(toolkit("12.8"))), Answer::TooOld { needs: Some(_), .. }));
    assert!(matches!(tegra.serves(Need::Native(toolkit("13.0"))), Answer::TooOld { .. }));
    // Newer than the tables.
    let newer = Driver { cuda: Some(toolkit("99.1")), ..driver("999.10") };
    assert_eq!(newer.serves(Need::Ptx(toolkit("99.1"))), Answer::Serves);
    assert_eq!(newer.serves(Need::Native(toolkit("99.0"))), Answer::Serves);
    assert_eq!(driver("999.10").serves(Need::Ptx(toolkit("99.1"))), Answer::Unknown);
    assert_eq!(driver("580.65.06").serves(Need::Ptx(toolkit("99.1"))), Answer::TooOld { needs: None, compat: None });
    assert_eq!(Driver::default().serves(Need::Native(toolkit("12.8"))), Answer::Unknown);
}

#[test]
fn a_compatibility_package_serves_when_the_loader_takes_it_and_is_offered_when_not() {
    let with = |is_loaded| Driver {
        compat: vec![Compat {
            folder: "/usr/local/cuda-12.8/compat".to_owned(),
            version: "570.86.10".parse().unwrap(),
            is_loaded,
        }],
        ..driver("470.82.01")
    };
    let folder = "/usr/local/cuda-12.8/compat".to_owned();
    for need in [Need::Native(toolkit("12.8")), Need::Ptx(toolkit("12.8"))] {
        assert_eq!(with(true).serves(need), Answer::ServesByCompat(folder.clone()));
        assert!(matches!(with(false).serves(need), Answer::TooOld { compat: Some(found), .. } if found == folder));
    }
    assert!(matches!(with(true).serves(Need::Ptx(toolkit("13.0"))), Answer::TooOld { compat: None, .. }));
    assert_eq!(with(true).serves(Need::Native(toolkit("11.8"))), Answer::Serves, "the driver's own is enough");
}

#[test]
fn drivers_are_ordered_as_numbers_and_shown_as_nvidia_writes_them() {
    let read = |text: &str| text.parse::<DriverVersion>().unwrap();
    assert!(read("570.26") < read("570.124.06") && read("525") < read("525.60.13") && read("95.1") < read("450.80.02"));
    for text in ["550.54.14", "570.26", "470.82.01", "525", "570.124.06"] {
        assert_eq!(read(text).to_string(), text);
    }
    for bad in ["", "550.", ".54", "550.54.14.1", "v550", "550.x", "99999999999.1"] {
        assert!(bad.parse::<DriverVersion>().is_err(), "{bad}");
    }
}

#[test]
fn the_published_wheel_fits_as_it_does_in_the_world() {
    let content = libtorch_cuda();
    let table = [
        ("6.1", Level::None),
        ("7.0", Level::Native),
        ("7.2", Level::None),
        ("7.5", Level::Native),
        ("8.0", Level::Native),
        ("8.6", Level::Native),
        ("8.7", Level::None),
        ("8.9", Level::Native),
        ("9.0", Level::Native),
        ("10.0", Level::Native),
        ("10.3", Level::Native),
        ("11.0", Level::None),
        ("12.0", Level::Native),
        ("12.1", Level::Native),
    ];
    for (card, expected) in table {
        assert_eq!(level(&content, card, None), expected, "{card}");
    }
}

#[test]
fn code_in_less_than_95_of_100_regions_is_not_enough() {
    let at = |served| content(&[(&["sm_86"], served), (&["sm_90"], 100 - served)]);
    assert_eq!(level(&at(95), "8.6", None), Level::Native);
    assert_eq!(level(&at(94), "8.6", None), Level::None);
    let mixed = content(&[(&["sm_80"], 60), (&["compute_80"], 36), (&["sm_90"], 4)]);
    assert_eq!(level(&mixed, "8.6", None), Level::Ptx, "native and compiled together are enough");
    let share = fit(&library("libtorch_cuda.so", &mixed), &card(0, "8.6"), None);
    assert!((share.native_share() - 0.60).abs() < 1e-9 && (share.ptx_share() - 0.36).abs() < 1e-9);
}

#[test]
fn regions_without_code_for_any_card_ask_nothing() {
    assert_eq!(level(&content(&[(&["sm_86"], 10), (&[], 90)]), "8.6", None), Level::Native);
    assert_eq!(level(&GpuContent::default(), "8.6", None), Level::Native);
}

#[test]
fn ptx_of_a_newer_toolkit_is_no_code_for_an_older_driver() {
    let content = content(&[(&["compute_80@12.8"], 100)]);
    assert_eq!(level(&content, "8.6", None), Level::Ptx);
    assert_eq!(level(&content, "8.6", Some(&driver("570.26"))), Level::Ptx);
    let old = driver("535.54.03");
    let share = fit(&library("libtorch_cuda.so", &content), &card(0, "8.6"), Some(&old));
    assert_eq!((share.level(), share.ptx_too_new, share.needs), (Level::None, 100, Some(toolkit("12.8"))));
    assert!(share.is_for_a_newer_driver());
    // The oldest alternative counts, and PTX that states no toolkit is of the library's.
    let two = super::tests::content(&[(&["compute_80@12.8", "compute_70@11.8"], 1)]);
    assert_eq!(level(&two, "8.6", Some(&old)), Level::Ptx);
    assert_eq!(level(&super::tests::content(&[(&["compute_80"], 1)]), "8.6", Some(&old)), Level::None);
}

#[test]
fn a_card_that_is_not_served_is_named_and_the_others_are_not() {
    let content = libtorch_cuda();
    let verdict = findings(&[library("libtorch_cuda.so", &content)], &[card(0, "8.6"), card(1, "6.1")], None);
    assert_eq!(codes(&verdict.findings), [(code::GPU_CODE_MISSING, Severity::Error)]);
    let finding = &verdict.findings[0];
    assert_eq!(
        finding.message,
        "`libtorch_cuda.so` has no code for GPU 1 (`Card`, `GPU-1`, capability 6.1): 0 of its 397 regions run there; it \
         has sm_70, sm_75, sm_80, sm_86, sm_90, sm_100, sm_120; in some regions also sm_89, sm_90a, sm_100a, sm_120a"
    );
    assert!(finding.remedy.as_ref().unwrap().contains("has `sm_61`"));
    assert_eq!(finding.place.host.as_deref(), Some("node-1"));
    assert_eq!(verdict.level(), Level::None);
    assert_eq!(verdict.cards.iter().map(|(_, level)| *level).collect::<Vec<_>>(), [Level::Native, Level::None]);
}

#[test]
fn a_further_library_without_code_is_a_warning_and_the_card_stays_native() {
    let (torch, cufftw) = (libtorch_cuda(), content(&[(&["sm_52"], 1)]));
    let sparse_lt = content(&[(&["sm_52"], 1), (&["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"], 40)]);
    let libraries = [
        library("libtorch_cuda.so", &torch),
        library("libcufftw.so.11", &cufftw),
        library("libcusparseLt.so.0", &sparse_lt),
    ];
    for isa in ["7.0", "7.5"] {
        let verdict = findings(&libraries, &[card(0, isa)], Some(&driver("570.124.06")));
        assert_eq!(verdict.level(), Level::Native, "{isa}");
        assert_eq!(codes(&verdict.findings), [(code::GPU_CODE_PARTIAL, Severity::Warning); 2], "{isa}");
        assert!(verdict.findings[0].message.contains("libcufftw.so.11"), "{isa}");
        assert!(verdict.findings[1].message.contains("libcusparseLt.so.0"), "{isa}");
    }
    let verdict = findings(&libraries, &[card(0, "8.6"), card(1, "9.0")], Some(&driver("570.124.06")));
    assert_eq!(codes(&verdict.findings), [(code::GPU_CODE_PARTIAL, Severity::Warning)]);
    assert!(verdict.findings[0].message.contains("GPU 0") && verdict.findings[0].message.contains("GPU 1"));
}

#[test]
fn the_program_and_what_is_neither_torchs_nor_a_vendors_is_decisive() {
    let table = [
        ("libtorch_cuda.so", true, Role::Decisive),
        ("libtorch_hip.so", true, Role::Decisive),
        ("libtorch_cuda.so", false, Role::Decisive),
        ("libtorch_cuda_linalg.so", true, Role::Further),
        ("libtorch_cpu.so", true, Role::Further),
        ("libcublasLt.so.12", false, Role::Further),
        ("libcudnn_engines_precompiled.so.9", true, Role::Further),
        ("libMIOpen.so.1", true, Role::Further),
        ("libflash_attention.so", false, Role::Decisive),
        ("libflash_attention.so", true, Role::Further),
    ];
    for (name, is_in_variant, role) in table {
        assert_eq!(Role::of_library(name, is_in_variant), role, "{name} {is_in_variant}");
    }
}

#[test]
fn a_card_that_compiles_first_is_told_of() {
    let content = content(&[(&["sm_90", "compute_80@12.4"], 10)]);
    let verdict = findings(&[library("libtorch_cuda.so", &content)], &[card(0, "8.6")], Some(&driver("550.54.14")));
    assert_eq!(codes(&verdict.findings), [(code::GPU_PTX_ONLY, Severity::Warning)]);
    assert!(verdict.findings[0].message.contains("for minutes"));
    assert_eq!(verdict.level(), Level::Ptx);
}

#[test]
fn an_old_driver_is_one_finding_however_many_cards_and_libraries_ask_for_a_newer_one() {
    let (torch, own) = (libtorch_cuda(), content(&[(&["sm_86"], 1)]));
    let libraries =
        [library("libtorch_cuda.so", &torch), LibraryCode { role: Role::Decisive, ..library("train", &own) }];
    let verdict = findings(&libraries, &[card(0, "8.6"), card(1, "8.6")], Some(&driver("470.82.01")));
    assert_eq!(codes(&verdict.findings), [(code::DRIVER_TOO_OLD, Severity::Error)]);
    assert_eq!(
        verdict.findings[0].message,
        "the driver 470.82.01 does not serve machine code of CUDA 12.8 in `libtorch_cuda.so` and `train`, which needs 525 or \
         newer"
    );
}

#[test]
fn ptx_that_the_driver_does_not_know_is_the_drivers_fault_and_not_the_librarys() {
    let content = content(&[(&["compute_80@12.8"], 10)]);
    let libraries = [library("libtorch_cuda.so", &content)];
    let verdict = findings(&libraries, &[card(0, "8.6")], Some(&driver("535.54.03")));
    assert_eq!(codes(&verdict.findings), [(code::DRIVER_TOO_OLD, Severity::Error)]);
    assert!(verdict.findings[0].message.contains("PTX of CUDA 12.8"));
    assert!(verdict.findings[0].message.contains("needs 570.26"));
    let by_compat = Driver {
        compat: vec![Compat { folder: "/compat".to_owned(), version: "570.86.10".parse().unwrap(), is_loaded: true }],
        ..driver("535.54.03")
    };
    let verdict = findings(&libraries, &[card(0, "8.6")], Some(&by_compat));
    let expected = [(code::GPU_PTX_ONLY, Severity::Warning), (code::DRIVER_BY_COMPAT, Severity::Warning)];
    assert_eq!(codes(&verdict.findings), expected);
}

#[test]
fn a_library_is_held_against_the_cards_of_its_vendor() {
    let (cuda, hip) = (libtorch_cuda(), content(&[(&["gfx90a", "gfx1100"], 300)]));
    let verdict = findings(&[library("libtorch_cuda.so", &cuda)], &[card(0, "8.6"), card(0, "gfx1036")], None);
    assert!(verdict.findings.is_empty() && verdict.level() == Level::Native);
    let verdict = findings(&[library("libtorch_hip.so", &hip)], &[card(0, "8.6"), card(0, "gfx1036")], None);
    assert_eq!(codes(&verdict.findings), [(code::GPU_CODE_MISSING, Severity::Error)]);
    assert!(verdict.findings[0].message.contains("gfx1036"));
}

#[test]
fn an_override_is_honoured_and_a_wrong_one_is_an_error() {
    let hip = content(&[(&["gfx1030", "gfx1100"], 300)]);
    let (libraries, devices) = ([library("libtorch_hip.so", &hip)], [card(0, "gfx1031")]);
    let with = |gfx_override| {
        check(&Question {
            place: Place::host("node-1"),
            devices: &devices,
            driver: None,
            gfx_override,
            libraries: &libraries,
        })
    };
    assert_eq!(codes(&with(None).findings), [(code::GPU_CODE_MISSING, Severity::Error)]);
    assert!(with(Some("10.3.0")).findings.is_empty());
    let wrong = with(Some("gfx1030")).findings;
    assert_eq!(wrong[0].code, code::GFX_OVERRIDE);
    // Cards of NVIDIA do not read it.
    let cuda = libtorch_cuda();
    let question = Question {
        place: Place::host("node-1"),
        devices: &[card(0, "8.6")],
        driver: None,
        gfx_override: Some("gfx1030"),
        libraries: &[library("libtorch_cuda.so", &cuda)],
    };
    assert!(check(&question).findings.is_empty());
}
