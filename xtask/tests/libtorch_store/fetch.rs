//! `libtorch fetch SPEC`: which wheel is asked for, and that what came is what was asked for.

use torchlift_schema::exit_code;

use crate::tree::{fails, ok};
use crate::wheel::{self, Member};
use crate::world::{World, said};

/// A torch wheel of another toolkit than the index's plain one.
fn with_cu126(world: &World) {
    let index = world.index();
    let mut members = wheel::torch_members(&index);
    members.retain(|member| member.name != "torch/version.py");
    members.push(Member::new("torch/version.py", "__version__ = '2.9.0+cu126'\n"));
    let file = "torch-2.9.0+cu126-cp311-cp311-manylinux_2_28_x86_64.whl";
    wheel::write(&index, file, &["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90"], members);
}

fn with_cublas(world: &World) {
    let content = wheel::library(&world.index(), "libcublas.so.12", &[]);
    let mut members = vec![Member::new("nvidia/cublas/lib/libcublas.so.12", content.clone())];
    // What is loaded as a plugin, by a name that no library has; and what only a linker reads.
    members.push(Member::new("nvidia/cublas/lib/plugin_x.so.3", content.clone()));
    members.push(Member::new("nvidia/cublas/lib/stubs/libcuda.so", content));
    wheel::write(&world.index(), "nvidia_cublas_cu12-12.8.4.1-py3-none-manylinux_2_27_x86_64.whl", &[], members);
}

#[test]
fn a_toolkit_that_the_plain_wheel_is_for_is_the_plain_wheel_with_nvidias() {
    let world = World::with_torch();
    with_cublas(&world);
    let output = world.run(&["fetch", "cu128", "--torch", "2.9.0", "--platform", "x86_64"]);
    let variant = world.store().join("precompiled/cu128-2.9.0");
    assert_eq!(ok(&output), format!("{variant}\n"));
    for name in ["libcublas.so.12", "libcudart.so.12", "libcupti.so.12", "plugin_x.so.3"] {
        assert!(variant.join("lib").join(name).is_file(), "{name}");
    }
    assert!(!variant.join("lib/libcuda.so").exists(), "a stub would hide the driver's library");
    assert_eq!(world.calls("torch==2.9.0+"), 0);
    ok(&world.run(&["verify", "precompiled/cu128-2.9.0"]));
    ok(&world.run(&["fetch", "2.9.0+cu128", "--platform", "x86_64"]));
    assert_eq!(world.calls("torch==2.9.0"), 1, "it is there");
}

#[test]
fn another_toolkit_is_asked_for_by_its_local_version_and_kept_beside() {
    let world = World::with_torch();
    with_cublas(&world);
    with_cu126(&world);
    ok(&world.run(&["fetch", "cu128", "--torch", "2.9.0", "--platform", "x86_64"]));
    let output = world.run(&["fetch", "2.9.0+cu126", "--platform", "x86_64"]);
    assert!(ok(&output).ends_with("/precompiled/cu126-2.9.0\n"));
    assert_eq!(world.calls("-- torch==2.9.0+cu126"), 1);
    // Its wheel is kept, and is not taken for the other one.
    fs_err::remove_dir_all(world.base.join("home")).unwrap();
    let output = world.run(&["fetch", "precompiled/cu126-2.9.0", "--platform", "x86_64"]);
    assert!(ok(&output).ends_with("/precompiled/cu126-2.9.0\n"));
    assert_eq!(world.calls("-- torch==2.9.0+cu126"), 1);
    let list = ok(&world.run(&["list"]));
    assert!(list.contains("CUDA 12.6"), "{list}");
}

#[test]
fn a_toolkit_that_no_index_has_is_asked_for_at_torchs_own_index_and_then_an_error() {
    let world = World::with_torch();
    let mut command = world.command(&["fetch", "cu118", "--torch", "2.9.0", "--platform", "x86_64"]);
    command.env("TORCHLIFT_LIBTORCH_URL", "http://mirror.invalid/libtorch");
    let output = command.output().unwrap();
    let told = fails(&output, exit_code::BUILD);
    assert!(told.contains("torch==2.9.0+cu118"), "{told}");
    assert!(world.calls("--extra-index-url=http://mirror.invalid/whl/cu118") > 0);
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn a_spec_that_nothing_can_be_is_a_usage_error() {
    let world = World::new();
    for args in
        [&["fetch", "cuda"][..], &["fetch", "2.9"], &["fetch", "cpu", "--gpu"], &["fetch", "2.9.0", "--torch", "2.8.0"]]
    {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(exit_code::USAGE.into()), "{args:?}: {}", said(&output));
    }
}
