//! `libtorch fetch` on small wheels: what it stores, and what is left when something goes wrong.
//!
//! The same on the real wheels is in `real/fetch.rs`.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may fail it")]

mod official;
mod terminal;
mod wheel;
mod world;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use torchlift::preflight::elf;
use torchlift_schema::exit_code;

use wheel::{Member, REQUIRES, TORCH, torch_members};
use world::{FETCH, World, said};

/// Far more than anything here takes; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_cuda_wheel_is_cut_to_what_a_cpu_needs() {
    let world = World::with_torch();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    let root = world.variant();
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), format!("{root}\n"));

    let mut libraries: Vec<String> =
        root.join("lib").read_dir_utf8().unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    libraries.sort();
    let expected = ["libc10.so", "libcudart.so.12", "libcupti.so.12", "libgomp.so.1", "libtorch.so", "libtorch_cpu.so"];
    assert_eq!(libraries, expected);
    let own = elf::read(root.join("lib/libtorch.so").as_std_path()).unwrap();
    assert_eq!(own.needed, ["libtorch_cpu.so"], "what keeps it must not need CUDA");
    let mode = fs_err::metadata(root.join("lib/libtorch_cpu.so")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755);
    assert_eq!(fs_err::metadata(&root).unwrap().permissions().mode() & 0o700, 0o700);
    assert!(root.join("include/ATen/ü b.h").is_file());
    assert_eq!(fs_err::read_to_string(root.join("build-version")).unwrap(), "2.9.0+cu128\n");
    let arch = fs_err::read_to_string(root.join(".arch")).unwrap();
    assert!(arch.contains("archs=cpu\n") && arch.contains("variant=precompiled/cpu-2.9.0\n"), "{arch}");
    for package in ["torch-2.9.0", "nvidia_cuda_runtime_cu12-12.8.90", "nvidia_cuda_cupti_cu12-12.8.90"] {
        assert!(root.join("licenses").join(package).join("LICENSE").is_file(), "{package}");
    }
    let record = torchlift_xtask::libtorch::record::read(&root).unwrap();
    assert!(record.is_cut);
    assert_eq!(record.sources.len(), 3);
    assert_eq!(record.sources[0].sha256.len(), 64);
    assert_eq!(world.remains(), ["cpu-2.9.0"]);

    let told = said(&output);
    assert!(told.contains(&format!("downloading {TORCH} (1.2 MB)")), "the size is told before: {told}");
    assert_eq!(world.calls("nvidia-cublas"), 0, "what only a GPU needs is not downloaded");
}

#[test]
fn a_second_fetch_asks_nobody_and_a_second_store_takes_the_kept_downloads() {
    let world = World::with_torch();
    assert!(world.fetch().status.success());
    fs_err::write(world.index().join("unreachable"), "").unwrap();
    assert!(world.fetch().status.success());
    fs_err::remove_dir_all(world.base.join("home")).unwrap();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(world.calls("torch==2.9.0"), 1);
    let record = torchlift_xtask::libtorch::record::read(&world.variant()).unwrap();
    assert!(record.sources.iter().all(|source| source.origin == "kept download"), "{record:?}");
}

#[test]
fn the_whole_of_a_cuda_wheel_is_kept_on_request() {
    let world = World::with_torch();
    let content = wheel::library(&world.index(), "libcublas.so.12", &[]);
    let member = Member::new("nvidia/cublas/lib/libcublas.so.12", content);
    wheel::write(&world.index(), "nvidia_cublas_cu12-12.8.4.1-py3-none-manylinux_2_27_x86_64.whl", &[], vec![member]);
    let output = world.run(&["fetch", "--gpu", "--arch", "x86_64", "--torch", "2.9.0"]);
    assert!(output.status.success(), "{}", said(&output));
    let lib = world.store().join("precompiled/cu128-2.9.0/lib");
    for name in ["libtorch_cuda.so", "libcublas.so.12", "libcudart.so.12", "libtorch.so"] {
        assert!(lib.join(name).is_file(), "{name}");
    }
    assert!(!lib.join("libtorch_python.so").exists());
    let own = elf::read(lib.join("libtorch.so").as_std_path()).unwrap();
    assert!(own.needed.contains(&"libtorch_cuda.so".to_owned()), "the wheel's own is kept");
    assert!(world.fetch().status.success(), "the cut one is another variant");
    assert_eq!(world.calls("torch==2.9.0"), 1);
}

#[test]
fn a_wheel_without_gpu_libraries_is_stored_once_and_said_to_be_for_a_cpu() {
    let world = World::new();
    let index = world.index();
    let mut members = wheel::torch_members(&index);
    members.retain(|member| {
        !["libtorch_cuda.so", "libtorch.so", "libtorch_cpu.so"].iter().any(|name| member.name.ends_with(name))
    });
    for (name, needed) in [("libtorch_cpu.so", vec!["libc10.so"]), ("libtorch.so", vec!["libtorch_cpu.so"])] {
        members.push(Member {
            mode: 0o755,
            ..Member::new(&format!("torch/lib/{name}"), wheel::library(&index, name, &needed))
        });
    }
    members.retain(|member| member.name != "torch/version.py");
    members.push(Member::new("torch/version.py", "__version__ = '2.9.0+cpu'\n"));
    wheel::write(&index, TORCH, &[], members);
    for time in ["first", "second"] {
        let output = world.run(&["fetch", "--gpu", "--arch", "x86_64", "--torch", "2.9.0"]);
        assert!(output.status.success(), "{time}: {}", said(&output));
        assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), format!("{}\n", world.variant()));
        assert!(said(&output).contains("no GPU libraries"), "{time}: {}", said(&output));
    }
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
}

#[test]
fn bytes_that_differ_from_the_record_are_refused_with_both_digests() {
    let world = World::with_torch();
    let mut members = torch_members(&world.index());
    members[0].recorded = b"something else".to_vec();
    wheel::write(&world.index(), TORCH, &REQUIRES, members);
    let output = world.fetch();
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    let told = said(&output);
    assert!(told.contains("`torch/lib/libtorch_cpu.so`") && told.matches("sha256").count() >= 1, "{told}");
    assert!(told.contains("thrown away: fetch again"), "{told}");
    assert_eq!(world.remains(), [""; 0]);
    assert!(!world.downloads().join(TORCH).exists(), "the damaged download is gone");
}

#[test]
fn an_entry_that_would_leave_the_folder_is_refused_before_anything_is_unpacked() {
    for evil in ["../escaped", "/escaped", "torch/lib/../../../../escaped", "torch\\..\\escaped"] {
        let world = World::with_torch();
        let mut members = torch_members(&world.index());
        members.push(Member::new(evil, "x"));
        wheel::write(&world.index(), TORCH, &REQUIRES, members);
        let output = world.fetch();
        assert_eq!(output.status.code(), Some(exit_code::BUILD.into()), "{evil}");
        assert!(said(&output).contains("would leave the folder"), "{}", said(&output));
        assert_eq!(world.remains(), [""; 0]);
        for folder in walkdir::WalkDir::new(&world.base).into_iter().flatten() {
            assert!(!folder.path().ends_with("escaped"), "{}", folder.path().display());
        }
    }
}

#[test]
fn a_broken_download_is_thrown_away_and_the_next_fetch_is_clean() {
    let world = World::with_torch();
    let whole = fs_err::read(world.index().join(TORCH)).unwrap();
    fs_err::write(world.index().join(TORCH), &whole[..whole.len() / 2]).unwrap();
    let output = world.fetch();
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    assert!(said(&output).contains("is no whole zip archive"), "{}", said(&output));
    assert_eq!(world.remains(), [""; 0]);
    fs_err::write(world.index().join(TORCH), &whole).unwrap();
    assert!(world.fetch().status.success());
}

#[test]
fn a_kept_download_that_was_changed_is_fetched_again() {
    let world = World::with_torch();
    assert!(world.fetch().status.success());
    fs_err::remove_dir_all(world.base.join("home")).unwrap();
    let kept = world.downloads().join(TORCH);
    let mut bytes = fs_err::read(&kept).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&kept, bytes).unwrap();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("is not what was downloaded"), "{}", said(&output));
    assert_eq!(world.calls("torch==2.9.0"), 2);
}

#[test]
fn without_pip_and_network_there_is_one_error_with_every_way() {
    let world = World::new();
    let unreachable = world.index().join("unreachable");
    fs_err::write(&unreachable, "").unwrap();
    let without_network = world.fetch();
    world.program("python3", "#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n");
    let without_pip = world.fetch();
    fs_err::remove_file(world.base.join("bin/python3")).unwrap();
    let without_python = world.fetch();
    let reasons = ["could not reach a package index", "No module named pip", "no `python3` on `PATH`"];
    for (output, reason) in [without_network, without_pip, without_python].iter().zip(reasons) {
        assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
        let told = said(output);
        assert_eq!(told.matches("error: ").count(), 1, "{told}");
        assert!(told.contains(reason), "{told}");
        for way in ["--libtorch DIR", "`LIBTORCH`", "pip install torch==2.9.0", "precompiled/<name>"] {
            assert!(told.contains(way), "{way}: {told}");
        }
        assert!(told.contains(world.downloads().as_str()), "{told}");
        assert_eq!(world.remains(), [""; 0]);
    }
    assert_eq!(world.calls("torch==2.9.0"), 1, "an unreachable index is not asked for every Python version");
}

#[test]
fn a_demo_without_a_libtorch_and_without_a_network_says_how_to_provide_one() {
    let world = World::new();
    fs_err::write(world.index().join("unreachable"), "").unwrap();
    let output = world.tool(&["demo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    let told = said(&output);
    assert_eq!(told.matches("error: ").count(), 1, "{told}");
    for way in ["could not reach a package index", "--libtorch DIR", "`LIBTORCH`", "pip install torch=="] {
        assert!(told.contains(way), "{way}: {told}");
    }
    assert!(!told.contains("2/3 build"), "{told}");
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn a_version_that_no_index_has_is_said_to_have_no_wheel() {
    let world = World::new();
    let output = world.fetch();
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    assert!(said(&output).contains("found no wheel of `torch==2.9.0` for Linux on x86_64"), "{}", said(&output));
}

#[test]
fn a_disk_too_small_for_what_pip_announces_is_told_with_both_sizes() {
    let world = World::with_torch();
    fs_err::write(world.index().join("announce"), "  Downloading torch-2.9.0.whl (9000000.0 GB)\n").unwrap();
    let output = world.fetch();
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    let told = said(&output);
    assert!(told.contains("are needed, and it has") && told.contains("`TORCHLIFT_CACHE`"), "{told}");
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn what_a_killed_fetch_left_is_cleared_by_the_next() {
    let world = World::with_torch();
    for pipe in ["hold", "release"] {
        duct::cmd!("mkfifo", world.index().join(pipe).as_std_path()).run().unwrap();
    }
    let mut child = world.command(&FETCH).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_for_pipe(&world, "hold");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(world.remains().iter().any(|name| name.starts_with(".partial")), "{:?}", world.remains());
    // A half unpacked variant, as a kill in the middle of unpacking leaves it.
    fs_err::create_dir_all(world.store().join(".unpack-dead/lib")).unwrap();

    // The orphaned pip must not hang for ever.
    fs_err::write(world.index().join("release"), "go\n").unwrap();
    fs_err::remove_file(world.index().join("hold")).unwrap();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
}

#[test]
fn of_two_at_once_one_waits_and_both_end_well() {
    let world = World::with_torch();
    for pipe in ["hold", "release"] {
        duct::cmd!("mkfifo", world.index().join(pipe).as_std_path()).run().unwrap();
    }
    // The first holds the lock while its pip stands still.
    let mut first = world.command(&FETCH).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    wait_for_pipe(&world, "hold");
    let mut second = world.command(&FETCH).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap());
    let mut told = String::new();
    while !told.contains("waiting for another process") {
        assert_ne!(lines.read_line(&mut told).unwrap(), 0, "it ended without waiting: {told}");
    }
    // The first one's pip fails now, as it does without a network; the second goes on and finishes the work.
    fs_err::remove_file(world.index().join("hold")).unwrap();
    fs_err::write(world.index().join("release"), "go\n").unwrap();
    assert!(!first.wait().unwrap().success());
    lines.read_to_string(&mut told).unwrap();
    assert!(second.wait().unwrap().success(), "{told}");
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
    assert_eq!(world.calls("torch==2.9.0"), 2);
}

#[test]
fn the_list_shows_what_is_stored_for_people_and_programs() {
    let world = World::with_torch();
    assert!(world.run(&["list"]).stdout.is_empty());
    assert!(world.fetch().status.success());
    let text = String::from_utf8(world.run(&["list"]).stdout).unwrap();
    assert!(text.starts_with("precompiled/cpu-2.9.0\ttorch 2.9.0+cu128, CPU, x86_64\t"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&world.run(&["list", "--format", "json"]).stdout).unwrap();
    assert_eq!(json["variants"][0]["facts"]["accelerator"], "cpu");
    assert_eq!(json["variants"][0]["fetched"]["is_cut"], true);
}

#[test]
fn the_path_is_printed_alone_and_a_missing_libtorch_names_the_next_command() {
    let world = World::with_torch();
    let args = ["path", "--cpu", "--arch", "x86_64", "--torch", "2.9.0"];
    let output = world.run(&args);
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()));
    assert!(said(&output).contains("`cargo xtask libtorch fetch` gets one"), "{}", said(&output));
    assert!(world.fetch().status.success());
    let output = world.run(&args);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", world.variant()));
    let output = world.run(&[&args[..], &["--libtorch", "nowhere"]].concat());
    assert_eq!(output.status.code(), Some(exit_code::BUILD.into()), "one that was named is not replaced");
    let output = world.run(&["path", "--torch", "2.9"]);
    assert_eq!(output.status.code(), Some(exit_code::USAGE.into()));
}

/// Reads the pipe, which the fake pip opens when it stands in the middle of its download.
fn wait_for_pipe(world: &World, name: &str) {
    let path = world.index().join(name);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(fs_err::read_to_string(path)));
    assert_eq!(receiver.recv_timeout(PATIENCE).expect("pip was never asked").unwrap(), "ready\n");
}
