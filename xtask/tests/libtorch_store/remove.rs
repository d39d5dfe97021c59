//! `libtorch remove`: what is in use stays, and what goes is gone at once.

use torchlift_schema::exit_code;
use torchlift_xtask::libtorch::Hold;

use crate::tree::{ID, fails, libtorch, ok, with_variant};
use crate::world::said;

#[test]
fn a_variant_that_nobody_uses_is_gone_with_its_folder() {
    let (world, variant) = with_variant();
    let output = world.run(&["remove", ID]);
    ok(&output);
    assert!(said(&output).contains(&format!("is gone from `{variant}`")), "{}", said(&output));
    assert_eq!(world.remains(), [""; 0]);
    assert!(!variant.parent().unwrap().exists(), "an empty family goes too");
    let told = fails(&world.run(&["remove", ID]), exit_code::USAGE);
    assert!(told.contains(&format!("no store has `{ID}`")), "{told}");
}

#[test]
fn every_use_is_named_in_one_run_and_force_helps_against_files_only() {
    let (world, variant) = with_variant();
    let project = world.base.join("project");
    fs_err::write(project.join("Cargo.toml"), "[workspace]\n").unwrap();
    let cluster = format!(
        "schema = 1\n[job.train]\n[kind.a]\nlibtorch = \"{ID}\"\n[[host]]\nname = \"n\"\nkind = \"a\"\nreach = \"local\"\npath = \"{project}\"\n"
    );
    fs_err::write(project.join("cluster.toml"), cluster).unwrap();
    ok(&world.run(&["use", ID]));
    ok(&world.run(&["use", ID, "--case", "gpu"]));
    let hold = Hold::shared(&variant).unwrap();
    let told = fails(&world.run(&["remove", ID]), exit_code::BUILD);
    assert_eq!(told.matches("error[libtorch-in-use]").count(), 4, "{told}");
    for words in [&format!("process {}", std::process::id()), "cluster.toml:4", ".active", ".active.gpu"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let told = fails(&world.run(&["remove", ID, "--force"]), exit_code::BUILD);
    assert_eq!(told.matches("error[libtorch-in-use]").count(), 1, "{told}");
    assert!(variant.join("lib/libc10.so").exists());
    drop(hold);
    fails(&world.run(&["remove", ID]), exit_code::BUILD);
    let output = world.run(&["remove", ID, "--force"]);
    ok(&output);
    assert_eq!(said(&output).matches("named it, and is gone too").count(), 2, "{}", said(&output));
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn a_cluster_file_with_other_errors_still_counts() {
    let (world, _variant) = with_variant();
    let project = world.base.join("project");
    fs_err::write(project.join("Cargo.toml"), "[workspace]\n").unwrap();
    fs_err::write(project.join("cluster.toml"), format!("schema = 1\n[kind.a\nlibtorch = \"{ID}\"\n")).unwrap();
    let told = fails(&world.run(&["remove", ID]), exit_code::BUILD);
    assert!(told.contains("cluster.toml:3"), "{told}");
}

#[test]
fn what_a_killed_removal_left_is_cleared_by_the_next_change() {
    let (world, _variant) = with_variant();
    fs_err::create_dir_all(world.store().join(".remove-dead/variant/lib")).unwrap();
    fs_err::write(world.store().join(".remove-dead/variant/lib/libc10.so"), "").unwrap();
    ok(&world.run(&["remove", ID]));
    assert_eq!(world.remains(), [""; 0]);
}

#[test]
fn a_link_in_a_variants_place_goes_and_what_it_leads_to_stays() {
    let (world, variant) = with_variant();
    let elsewhere = world.base.join("elsewhere");
    libtorch(&world, &elsewhere, "2.9.0");
    fs_err::create_dir_all(world.store().join("mine")).unwrap();
    fs_err::os::unix::fs::symlink(&elsewhere, world.store().join("mine/link")).unwrap();
    ok(&world.run(&["remove", "mine/link"]));
    assert!(elsewhere.join("lib/libc10.so").exists());
    // One that leads nowhere any more goes as well, and so does half a variant.
    fs_err::create_dir_all(world.store().join("mine")).unwrap();
    fs_err::os::unix::fs::symlink("/nowhere/at all", world.store().join("mine/link")).unwrap();
    fs_err::create_dir_all(world.store().join("mine/half/include")).unwrap();
    ok(&world.run(&["remove", "mine/link"]));
    ok(&world.run(&["remove", "mine/half"]));
    assert!(!world.store().join("mine").exists() && variant.exists());
}

#[test]
fn a_name_that_is_nearly_right_is_offered() {
    let (world, _variant) = with_variant();
    let told = fails(&world.run(&["remove", "precompiled/cpu-2.9.1"]), exit_code::USAGE);
    assert!(told.contains(&format!("`{ID}`")), "{told}");
    fails(&world.run(&["remove", "../../etc"]), exit_code::USAGE);
}
