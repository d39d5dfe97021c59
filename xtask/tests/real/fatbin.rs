//! The reader of GPU code, with the vendors' own tools as the judge.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use torchlift::preflight::fatbin::{self, GpuContent, toolkit_of_ptx};
use torchlift_schema::gpu::GpuCode;

use crate::vendor::{self, Image, Vendor, run};
use crate::{skip, stand_in};

/// A folder whose path has a space and letters beyond ASCII.
fn room() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let room = folder.path().join("röom 1, 2");
    fs_err::create_dir(&room).unwrap();
    (folder, room)
}

/// The entries that we count, written as [`Vendor::listed`] writes the judge's.
fn entries(content: &GpuContent) -> BTreeMap<String, u64> {
    content.entries.iter().map(|(code, count)| (code.to_string(), *count)).collect()
}

/// Makes a library that carries `fatbins` in `section`.
fn library(folder: &Path, section: &str, fatbins: &[PathBuf]) -> PathBuf {
    let library = folder.join("libcarrier.so");
    stand_in::library("c10.c", &library, &[vendor::carrier(folder, section, fatbins)]);
    library
}

fn groups(content: &GpuContent) -> Vec<String> {
    let text = |group: &fatbin::RegionGroup| {
        let codes: Vec<String> = group.codes.iter().map(ToString::to_string).collect();
        format!("{} {}", group.count, codes.join(" "))
    };
    content.regions.iter().map(text).collect()
}

#[test]
fn every_library_of_the_cuda_wheel_has_the_entries_that_cuobjdump_counts() {
    let test = "every_library_of_the_cuda_wheel_has_the_entries_that_cuobjdump_counts";
    let (Some(vendor), Some(wheel)) = (Vendor::get(test), vendor::wheel(test)) else { return };
    let mut read = BTreeMap::new();
    for entry in fs_err::read_dir(wheel.join("torch/lib")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(".so") {
            continue;
        }
        let content = fatbin::read(&path).unwrap();
        assert_eq!(content.as_ref().map(entries).unwrap_or_default(), vendor.listed(&path), "{name}");
        read.extend(content.map(|content| (name, content)));
    }

    let cuda = &read["libtorch_cuda.so"];
    assert_eq!(cuda.count(), 397);
    let texts = |codes: BTreeSet<GpuCode>| codes.iter().map(ToString::to_string).collect::<Vec<_>>();
    // What the library says of itself.
    assert_eq!(texts(cuda.archs()), ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]);
    assert_eq!(texts(cuda.partial()), ["sm_89", "sm_90a", "sm_100a", "sm_120a"]);
}

#[test]
fn fatbins_that_nvidias_tools_made_are_read_however_they_are_packed() {
    let Some(vendor) = Vendor::get("fatbins_that_nvidias_tools_made_are_read_however_they_are_packed") else { return };
    let (_folder, room) = room();
    let images = [
        Image::Sass("61"),
        Image::Ptx("61", "7.8"),
        Image::Sass("90"),
        Image::Sass("90a"),
        Image::Sass("100"),
        Image::Sass("100a"),
        Image::Sass("100f"),
        Image::Ptx("100f", "8.8"),
        Image::Ptx("90a", "8.0"),
        Image::Sass("120"),
        Image::Ptx("120", "8.7"),
    ];
    let expected = "1 sm_61 sm_90 sm_90a sm_100 sm_100a sm_100f sm_120 \
                    compute_61@11.8 compute_90a@12.0 compute_100f@12.9 compute_120@12.8";
    let modes = ["default", "size", "speed", "balance", "none"];
    let mut all: Vec<Vec<&str>> = modes.iter().map(|mode| vec!["--compress-all", "--compress-mode", *mode]).collect();
    all.extend([
        vec!["--compress-all", "--concat"],
        vec!["--ident", "a name", "--cmdline", "-v -O1", "-g"],
        vec!["--ident", "seven__", "--cmdline", "", "--concat", "--compress-all"],
        vec!["--compress", "false"],
    ]);
    for (index, options) in all.iter().enumerate() {
        let fatbin = vendor.fatbin(&room, &format!("all-{index}"), &images, options);
        let library = library(&room, ".nv_fatbin", &[fatbin.clone(), fatbin]);
        let content = fatbin::read(&library).unwrap().unwrap();
        assert_eq!(content.problems, [], "{options:?}");
        assert_eq!(groups(&content), [expected.replacen('1', "2", 1)], "{options:?}");
        assert_eq!(entries(&content), vendor.listed(&library), "{options:?}");
    }
}

#[test]
fn code_that_waits_for_a_linker_is_told_from_what_is_loaded_as_cuobjdump_does() {
    let test = "code_that_waits_for_a_linker_is_told_from_what_is_loaded_as_cuobjdump_does";
    let Some(vendor) = Vendor::get(test) else { return };
    let (_folder, room) = room();
    let old = vendor.fatbin(&room, "old", &[Image::Sass("61")], &[]);
    let relocatable = library(&room, "__nv_relfatbin", &[old]);
    let content = fatbin::read(&relocatable).unwrap().unwrap();
    assert_eq!(groups(&content), ["1 sm_61"]);
    assert_eq!(entries(&content), vendor.listed(&relocatable));
}

#[test]
fn a_stand_in_for_two_generations_of_cards_is_made_and_read_and_starts() {
    let Some(vendor) = Vendor::get("a_stand_in_for_two_generations_of_cards_is_made_and_read_and_starts") else {
        return;
    };
    let (_folder, room) = room();
    let lib = room.join("builds/sm61-sm120/lib");
    fs_err::create_dir_all(&lib).unwrap();
    let both: &[Image<'_>] = &[Image::Sass("61"), Image::Sass("120")];
    vendor.libtorch(&lib, &[both, both, &[Image::Sass("61"), Image::Sass("120"), Image::Ptx("120", "8.8")]]);
    let cuda = lib.join("libtorch_cuda.so");
    let content = fatbin::read(&cuda).unwrap().unwrap();
    assert_eq!(groups(&content), ["2 sm_61 sm_120", "1 sm_61 sm_120 compute_120@12.9"]);
    assert_eq!(entries(&content), vendor.listed(&cuda));
    assert_eq!(fatbin::read(&lib.join("libtorch_cpu.so")).unwrap(), None);
    assert_eq!(vendor.listed(&lib.join("libtorch_cpu.so")), BTreeMap::new());

    let program = room.join("program");
    stand_in::program(&program, &lib, true);
    run(Command::new(&program).env("LD_LIBRARY_PATH", &lib));

    // What strip leaves, and what is left without section headers: `e_shoff`, `e_shnum` and `e_shstrndx` are zero.
    run(Command::new("strip").arg(&cuda));
    assert_eq!(fatbin::read(&cuda).unwrap().as_ref(), Some(&content));
    let mut bytes = fs_err::read(&cuda).unwrap();
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    fs_err::write(&cuda, bytes).unwrap();
    assert_eq!(fatbin::read(&cuda).unwrap().as_ref(), Some(&content));
    run(Command::new(&program).env("LD_LIBRARY_PATH", &lib));
}

#[test]
fn the_newest_ptx_that_a_compiler_takes_is_the_one_that_came_with_its_toolkit() {
    let test = "the_newest_ptx_that_a_compiler_takes_is_the_one_that_came_with_its_toolkit";
    let Some(vendor) = Vendor::get(test) else { return };
    let (_folder, room) = room();
    // 7.0 is the first that has this architecture.
    let known = (7..=9).flat_map(|major| (0..=9).map(move |minor| (major, minor)));
    for (ptxas, toolkit) in [(&vendor.ptxas_12_9, "12.9"), (&vendor.ptxas_13_5, "13.5")] {
        for (major, minor) in known.clone() {
            let source = vendor::ptx(&room, "isa", "80", &format!("{major}.{minor}"));
            let args = ["-arch=sm_80", source.as_str(), "-o", "isa.cubin"];
            let is_taken = Command::new(ptxas).current_dir(&room).args(args).output().unwrap().status.success();
            let ours = toolkit_of_ptx(major, minor);
            let is_known = ours.is_some_and(|version| version <= toolkit.parse().unwrap());
            assert_eq!(is_taken, is_known, "PTX {major}.{minor} and CUDA {toolkit}: {ours:?}");
        }
    }
}

/// Names under which Debian and LLVM install it, newest first.
const BUNDLERS: [&str; 4] =
    ["clang-offload-bundler", "clang-offload-bundler-19", "clang-offload-bundler-16", "clang-offload-bundler-15"];

#[test]
fn bundles_that_clang_made_are_read_plain_and_packed() {
    let is_there =
        |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let Some(bundler) = BUNDLERS.iter().find(|name| is_there(name)) else {
        let remedy = "install Debian's package `clang-tools-19`";
        skip::skip(
            "bundles_that_clang_made_are_read_plain_and_packed",
            "clang-offload-bundler is not installed",
            remedy,
        );
        return;
    };
    let (_folder, room) = room();
    fs_err::write(room.join("host"), b"").unwrap();
    fs_err::write(room.join("code"), vec![7; 50_000]).unwrap();
    let targets = "-targets=host-x86_64-unknown-linux-gnu,hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-,\
                   hipv4-amdgcn-amd-amdhsa--gfx1100,hipv4-amdgcn-amd-amdhsa--gfx11-generic";
    let bundle = |name: &str, options: &[&str]| {
        let mut command = Command::new(bundler);
        command.current_dir(&room).args(["-type=o", "-bundle-align=4096", targets]).args(options);
        command.args(["-input=host", "-input=code", "-input=code", "-input=code"]).arg(format!("-output={name}"));
        run(&mut command);
        room.join(name)
    };
    let mut bundles = vec![bundle("plain", &[])];
    let help = run(Command::new(bundler).arg("--help"));
    if String::from_utf8_lossy(&help.stdout).contains("--compress ") {
        bundles
            .extend([bundle("packed", &["-compress"]), bundle("well packed", &["-compress", "-compression-level=19"])]);
    }
    let source = bundles.iter().map(|bundle| format!(".balign 4096\n.incbin \"{}\"\n", bundle.display()));
    let carrier = room.join("hip.s");
    fs_err::write(&carrier, format!(".section .hip_fatbin, \"a\"\n{}", source.collect::<String>())).unwrap();
    let library = room.join("libtorch_hip.so");
    stand_in::library("c10.c", &library, &[carrier]);
    let content = fatbin::read(&library).unwrap().unwrap();
    assert_eq!(content.problems, []);
    assert_eq!(groups(&content), [format!("{} gfx90a:sramecc+:xnack- gfx1100 gfx11-generic", bundles.len())]);
}
