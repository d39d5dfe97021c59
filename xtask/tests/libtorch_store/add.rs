//! `libtorch add`: folders, archives and wheels.

use std::os::unix::fs::PermissionsExt as _;

use torchlift_schema::exit_code;
use torchlift_xtask::libtorch::record;

use crate::tree::{ID, fails, file, gzip, libtorch, ok, tar, with_libtorch, write};
use crate::wheel::{self, Member};
use crate::world::{World, said};

#[test]
fn a_folder_becomes_a_variant_with_its_modes_and_links_and_stays_as_it_was() {
    let (world, root) = with_libtorch();
    write(&root.join(".arch"), b"torch=2.9.0\ncuda=12.6\narchs=cpu\nsource=precompiled\n", 0o644);
    write(&root.join("bin/protoc"), b"#!/bin/sh\n", 0o6711);
    write(&root.join("other/stray"), b"", 0o644);
    let output = world.run(&["add", root.as_str()]);
    let variant = world.store().join(ID);
    assert_eq!(ok(&output), format!("{variant}\n"));
    let told = said(&output);
    assert!(told.contains("warning[libtorch-arch-file]") && told.contains("`cuda=12.6`"), "{told}");

    let mode = |file: &str| fs_err::metadata(variant.join(file)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("lib/libc10.so"), mode("include/torch/ü b.h"), mode("bin/protoc")), (0o755, 0o644, 0o711));
    assert_eq!(fs_err::read_link(variant.join("lib/libgomp.so")).unwrap().to_str(), Some("libgomp.so.1"));
    assert!(!variant.join("other").exists(), "what no libtorch has is not taken");
    let arch = fs_err::read_to_string(variant.join(".arch")).unwrap();
    assert_eq!(
        arch,
        format!("torch=2.9.0+cpu\ncuda=none\narchs=cpu\nsource=precompiled\nvariant={ID}\nplatform=x86_64\n")
    );
    let record = record::read(&variant).unwrap();
    assert_eq!((record.id.as_str(), record.sources[0].file.as_str()), (ID, root.as_str()));
    assert!(root.join("lib/libc10.so").exists() && root.join("other/stray").exists());
    assert!(ok(&world.run(&["verify", ID])).contains("as it was put in"));
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
}

#[test]
fn every_form_of_archive_makes_the_same_variant() {
    let (world, root) = with_libtorch();
    let plain = tar(Some((&root, "libtorch")), &[]);
    let archives = [
        ("a.tar", tar(Some((&root, ".")), &[])),
        ("libtorch 2.9.tar.gz", gzip(&plain)),
        ("libtorch.tar.zst", zstd::encode_all(&plain[..], 1).unwrap()),
        ("no ending", gzip(&tar(Some((&root, "opt/site/libtorch")), &[]))),
    ];
    let mut digests = Vec::new();
    for (name, bytes) in archives {
        let archive = world.base.join(name);
        fs_err::write(&archive, bytes).unwrap();
        let output = world.run(&["add", archive.as_str()]);
        assert_eq!(ok(&output), format!("{}\n", world.store().join(ID)), "{name}");
        assert_eq!(said(&output).contains("as it was before"), !digests.is_empty(), "{name}: {}", said(&output));
        let variant = world.store().join(ID);
        let mode = fs_err::metadata(variant.join("lib/libc10.so")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o755, "{name}");
        assert!(fs_err::symlink_metadata(variant.join("lib/libgomp.so")).unwrap().is_symlink(), "{name}");
        digests.push(record::read(&variant).unwrap().listing_sha256.unwrap());
    }
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
}

#[test]
fn an_official_zip_is_taken_from_below_its_top_folder() {
    let (world, root) = with_libtorch();
    let members: Vec<Member> = walkdir::WalkDir::new(&root)
        .into_iter()
        .flatten()
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let below = entry.path().strip_prefix(&root).unwrap().to_str().unwrap();
            Member { mode: 0o750, ..Member::new(&format!("libtorch/{below}"), fs_err::read(entry.path()).unwrap()) }
        })
        .collect();
    let archive = world.base.join("libtorch-shared.zip");
    wheel::archive(&archive, &members);
    ok(&world.run(&["add", archive.as_str(), "--name", "mine/here"]));
    let file = world.store().join("mine/here/lib/libtorch_cpu.so");
    assert_eq!(fs_err::metadata(file).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn the_torch_folder_of_an_unpacked_wheel_brings_what_lies_beside_it_and_nothing_of_python() {
    let world = World::with_torch();
    let site = world.base.join("site packages");
    for member in wheel::torch_members(&world.index()) {
        write(&site.join(&member.name), &member.content, member.mode);
    }
    for (package, name) in [
        ("cublas", "libcublas.so.12"),
        ("cublas", "libcublasLt.so.12"),
        ("cuda_runtime", "libcudart.so.12"),
        ("cuda_cupti", "libcupti.so.12"),
        ("other", "libother.so"),
    ] {
        write(&site.join(format!("nvidia/{package}/lib/{name}")), &wheel::library(&world.index(), name, &[]), 0o755);
    }
    let output = world.run(&["add", site.join("torch").as_str()]);
    let variant = world.store().join("precompiled/cu128-2.9.0");
    assert_eq!(ok(&output), format!("{variant}\n"));
    for name in ["libtorch_cuda.so", "libcublas.so.12", "libcublasLt.so.12", "libcudart.so.12", "libcupti.so.12"] {
        assert!(variant.join("lib").join(name).is_file(), "{name}");
    }
    for name in ["lib/libtorch_python.so", "lib/libother.so", "__init__.py", "version.py"] {
        assert!(!variant.join(name).exists(), "{name}");
    }
    assert_eq!(fs_err::read_to_string(variant.join("build-version")).unwrap(), "2.9.0+cu128\n");
    assert!(!said(&output).contains("libtorch-incomplete"), "{}", said(&output));
}

#[test]
fn a_wheel_is_taken_whole_and_what_it_lacks_is_named() {
    let world = World::with_torch();
    let torch = world.index().join(wheel::TORCH);
    let output = world.run(&["add", torch.as_str()]);
    ok(&output);
    let told = said(&output);
    let lacking = "`libcublas.so.12`, `libcudart.so.12` and `libcupti.so.12` are needed and not in it";
    assert!(told.contains("warning[libtorch-incomplete]") && told.contains(lacking), "{told}");
    ok(&world.run(&["remove", "precompiled/cu128-2.9.0"]));

    let runtime =
        world.index().join("nvidia_cuda_runtime_cu12-12.8.90-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl");
    let cublas = world.base.join("toolkit/lib64");
    let library = wheel::library(&world.index(), "libcublas.so.12", &[]);
    write(&cublas.join("libcublas.so.12.8.4"), &library, 0o755);
    fs_err::os::unix::fs::symlink("libcublas.so.12.8.4", cublas.join("libcublas.so.12")).unwrap();
    write(&cublas.join("libcublasLt.so.12"), &wheel::library(&world.index(), "libcublasLt.so.12", &[]), 0o755);
    write(&cublas.join("libnpp.so.12"), &library, 0o755);
    let args = ["add", torch.as_str(), "--with", runtime.as_str(), "--libraries", cublas.as_str()];
    let output = world.run(&args);
    ok(&output);
    assert!(said(&output).contains("`libcupti.so.12` is needed and not in it"), "{}", said(&output));
    let lib = world.store().join("precompiled/cu128-2.9.0/lib");
    for name in ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"] {
        assert!(fs_err::symlink_metadata(lib.join(name)).unwrap().is_file(), "{name}");
    }
    assert!(!lib.join("libnpp.so.12").exists() && !lib.join("libcublas.so.12.8.4").exists());
    let record = record::read(&world.store().join("precompiled/cu128-2.9.0")).unwrap();
    assert_eq!(record.sources.len(), 2);
    assert!(!record.is_cut);
}

#[test]
fn a_wrong_digest_leaves_nothing_and_the_right_one_is_recorded() {
    let (world, root) = with_libtorch();
    let archive = world.base.join("libtorch.tar.gz");
    let bytes = gzip(&tar(Some((&root, "libtorch")), &[]));
    fs_err::write(&archive, &bytes).unwrap();
    let right = torchlift::preflight::digest::digest(archive.as_std_path()).unwrap().sha256;
    let wrong = "0".repeat(64);
    let told = fails(&world.run(&["add", archive.as_str(), "--sha256", &wrong]), exit_code::INTEGRITY);
    assert!(told.contains(&right) && told.contains(&wrong), "{told}");
    assert_eq!(world.remains(), [""; 0]);
    assert!(archive.exists(), "a person's file is theirs");
    ok(&world.run(&["add", archive.as_str(), "--sha256", &right.to_uppercase()]));
    assert_eq!(record::read(&world.store().join(ID)).unwrap().sources[0].sha256, right);
    fails(&world.run(&["add", root.as_str(), "--sha256", &right]), exit_code::USAGE);
    fails(&world.run(&["add", archive.as_str(), "--sha256", "12"]), exit_code::USAGE);
}

#[test]
fn another_version_and_another_cpu_are_other_variants() {
    let (world, root) = with_libtorch();
    ok(&world.run(&["add", root.as_str()]));
    let old = world.base.join("old");
    libtorch(&world, &old, "2.7.1");
    assert!(ok(&world.run(&["add", old.as_str()])).ends_with("/precompiled/cpu-2.7.1\n"));
    for name in ["libtorch_cpu.so", "libtorch.so", "libc10.so", "libgomp.so.1"] {
        let mut bytes = fs_err::read(old.join("lib").join(name)).unwrap();
        // The machine of an ELF header: AArch64.
        bytes[18..20].copy_from_slice(&183_u16.to_le_bytes());
        fs_err::write(old.join("lib").join(name), bytes).unwrap();
    }
    assert!(ok(&world.run(&["add", old.as_str()])).ends_with("/precompiled/cpu-2.7.1-aarch64\n"));
    let list = ok(&world.run(&["list"]));
    assert_eq!(list.lines().count(), 3, "{list}");
}

#[test]
fn what_is_no_libtorch_is_refused_with_what_it_is_and_leaves_nothing() {
    let (world, root) = with_libtorch();
    let base = &world.base;
    fs_err::write(base.join("text"), "hello\n").unwrap();
    fs_err::write(base.join("empty"), "").unwrap();
    fs_err::write(base.join("other.tar"), tar(None, &[file("readme", b"x")])).unwrap();
    wheel::archive(&base.join("other.zip"), &[Member::new("readme", "x")]);
    let two = tar(Some((&root, "a/libtorch")), &[file("b/lib/libtorch_cpu.so", b"x")]);
    fs_err::write(base.join("two.tar"), two).unwrap();
    let cut = gzip(&tar(Some((&root, "libtorch")), &[]));
    fs_err::write(base.join("cut.tar.gz"), &cut[..cut.len() / 2]).unwrap();
    nix::unistd::mkfifo(base.join("pipe").as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let wheel = wheel::write(base, "other-1.0-py3-none-any.whl", &[], vec![Member::new("other/x", "")]);
    for (path, words) in [
        ("nowhere", "could not be read"),
        ("text", "is no archive that can be unpacked"),
        ("empty", "is no archive that can be unpacked"),
        ("other.tar", "holds no libtorch"),
        ("other.zip", "holds no libtorch"),
        (wheel.as_str(), "holds no libtorch"),
        ("two.tar", "more than one libtorch: `a/libtorch`, `b`"),
        ("cut.tar.gz", "cut.tar.gz"),
        ("pipe", "is a pipe"),
        ("bin", "is not a libtorch"),
        ("mein libtorch/lib", "the libtorch is"),
    ] {
        let told = fails(&world.run(&["add", base.join(path).as_str()]), exit_code::BUILD);
        assert!(told.contains(words), "{path}: {told}");
        assert_eq!(told.matches("error: ").count(), 1, "{path}: {told}");
        assert_eq!(world.remains(), [""; 0], "{path}");
    }
}

#[test]
fn every_file_of_a_folder_that_cannot_be_taken_is_named_in_one_run() {
    let (world, root) = with_libtorch();
    nix::unistd::mkfifo(root.join("lib/pipe").as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs_err::os::unix::fs::symlink("nowhere", root.join("lib/dangling")).unwrap();
    fs_err::os::unix::fs::symlink("/etc", root.join("include/etc")).unwrap();
    let told = fails(&world.run(&["add", root.as_str()]), exit_code::BUILD);
    for words in ["3 of the files", "lib/pipe` is a pipe", "lib/dangling` is a link that leads nowhere", "include/etc`"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn a_pipe_in_the_place_of_a_file_that_is_read_is_named_and_not_waited_for() {
    for name in ["build-version", "lib/libtorch_cpu.so"] {
        let (world, root) = with_libtorch();
        fs_err::remove_file(root.join(name)).unwrap();
        nix::unistd::mkfifo(root.join(name).as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let told = fails(&world.run(&["add", root.as_str()]), exit_code::BUILD);
        assert!(told.contains(&format!("{name}` is no regular file")), "{told}");
    }
}

#[test]
fn a_link_that_leaves_the_folder_stands_for_its_file() {
    let (world, root) = with_libtorch();
    let outside = world.base.join("elsewhere/libcudart.so.12");
    write(&outside, &crate::wheel::library(&world.index(), "libcudart.so.12", &[]), 0o755);
    fs_err::os::unix::fs::symlink(&outside, root.join("lib/libcudart.so.12")).unwrap();
    fs_err::os::unix::fs::symlink("../build-version", root.join("include/version")).unwrap();
    ok(&world.run(&["add", root.as_str()]));
    for name in ["lib/libcudart.so.12", "include/version"] {
        let kept = fs_err::symlink_metadata(world.store().join(ID).join(name)).unwrap();
        assert!(kept.is_file(), "{name}");
    }
}

#[test]
fn a_folder_that_does_not_say_that_it_is_a_libtorch_alone_is_refused() {
    let (world, root) = with_libtorch();
    fs_err::remove_file(root.join("build-version")).unwrap();
    write(
        &root.join("include/torch/headeronly/version.h"),
        b"#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 0\n",
        0o644,
    );
    let told = fails(&world.run(&["add", root.as_str()]), exit_code::BUILD);
    assert!(told.contains("neither `build-version` nor `version.py`") && told.contains("libtorch = \""), "{told}");
}

#[test]
fn an_id_that_another_variant_has_is_refused_and_that_one_stays() {
    let (world, root) = with_libtorch();
    ok(&world.run(&["add", root.as_str()]));
    write(&root.join("include/torch/new.h"), b"", 0o644);
    let told = fails(&world.run(&["add", root.as_str()]), exit_code::BUILD);
    assert!(told.contains("has another `precompiled/cpu-2.9.0` already") && told.contains("--name"), "{told}");
    assert!(!world.store().join(ID).join("include/torch/new.h").exists());
    ok(&world.run(&["add", root.as_str(), "--name", "mine/two"]));
    fs_err::create_dir_all(world.store().join("mine/three/notes")).unwrap();
    let told = fails(&world.run(&["add", root.as_str(), "--name", "mine/three"]), exit_code::BUILD);
    assert!(told.contains("is there, and is no libtorch"), "{told}");
    fails(&world.run(&["add", root.as_str(), "--name", "../x"]), exit_code::USAGE);
}

#[test]
fn of_two_at_once_one_waits_and_both_end_well() {
    let (world, root) = with_libtorch();
    let start = || {
        world
            .command(&["add", root.as_str()])
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let (first, second) = (start(), start());
    let told: Vec<String> = [first, second].into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect();
    let new = told.iter().filter(|told| !told.contains("as it was before")).count();
    assert_eq!(new, 1, "{told:#?}");
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
    ok(&world.run(&["verify", ID]));
}

#[test]
fn one_that_was_killed_leaves_no_variant_and_the_next_clears_up() {
    let (world, root) = with_libtorch();
    // Much to unpack of a small file, so that the kill finds it at work.
    let zeros = vec![0; 128 << 20];
    let archive = world.base.join("large.tar.gz");
    fs_err::write(&archive, gzip(&tar(Some((&root, "libtorch")), &[file("libtorch/lib/zeros", &zeros)]))).unwrap();
    let mut child = world.command(&["add", archive.as_str()]).stderr(std::process::Stdio::null()).spawn().unwrap();
    let is_at_work = || world.remains().iter().any(|name| name.starts_with(".unpack-"));
    while !is_at_work() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!world.store().join(ID).exists());
    assert!(is_at_work(), "what it left is there: {:?}", world.remains());
    ok(&world.run(&["add", root.as_str()]));
    assert_eq!(world.remains(), ["cpu-2.9.0"]);
}
