//! Stores: whole, half, hostile.

use crate::examination::Examination;
use crate::support::Project;

#[test]
fn what_is_no_variant_is_named_and_ends_nothing() {
    let project = Project::linked();
    let store = project.beside("home/libtorch");
    for folder in
        ["precompiled/half", "precompiled/no lib ü!/lib", ".unpack-x7/lib", "precompiled/empty/lib", "precompiled/loop"]
    {
        fs_err::create_dir_all(store.join(folder)).unwrap();
    }
    fs_err::os::unix::fs::symlink("lib", store.join("precompiled/loop/lib")).unwrap();
    fs_err::write(store.join("stray file"), "?").unwrap();
    fs_err::write(store.join(".active"), "no id at all\n").unwrap();
    nix::unistd::mkfifo(&store.join("precompiled/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let found = Examination::of(&project, &[], &[]);
    let strays = found.all("store", "stray");
    for name in ["half", "no lib ü!", ".unpack-x7", "stray file", "pipe", "loop"] {
        let stray =
            strays.iter().find(|stray| stray.found.contains(name)).unwrap_or_else(|| panic!("{name}: {strays:?}"));
        assert_eq!(stray.state, "doubtful");
    }
    let broken =
        found.all("store", "variant").into_iter().find(|look| look.found.contains("precompiled/empty")).unwrap();
    assert!(broken.state == "doubtful" && broken.found.contains("it has no `lib/libtorch_cpu.so`"), "{broken:?}");
    let pointer = found.only("store", "pointer");
    assert!(pointer.state == "doubtful" && pointer.found.contains("names no variant"), "{pointer:?}");
    assert_eq!(found.code(), 0, "none of it is what the project uses");
}

#[test]
fn a_store_that_is_a_file_is_wrong() {
    let project = Project::linked();
    fs_err::write(project.beside("home").join("libtorch"), "").unwrap();
    let found = Examination::of(&project, &[], &[]);
    let look = found.all("store", "store").into_iter().find(|look| look.state == "wrong").unwrap();
    assert!(look.found.contains("cannot be listed"), "{look:?}");
    assert_eq!(found.code(), 1);
}

#[test]
fn a_variant_of_which_a_file_is_gone_is_wrong_and_the_file_is_named() {
    let project = Project::linked();
    let root = project.root.join("libtorch/test/cpu");
    project.run(&["libtorch", "add", root.to_str().unwrap()]).ok();
    let store = project.beside("home/libtorch/precompiled/cpu-2.9.0");
    let of = |found: &Examination| {
        let mut variants = found.all("store", "variant").into_iter();
        variants.find(|look| look.found.contains("precompiled/cpu-2.9.0")).unwrap()
    };
    let found = Examination::of(&project, &[], &[]);
    assert!(of(&found).found.contains(", all of its ") && of(&found).state == "right", "{:?}", of(&found));
    fs_err::write(store.join(".arch"), "torch=2.7.0\n").unwrap();
    fs_err::remove_file(store.join("include/torch/torch.h")).unwrap();
    let found = Examination::of(&project, &[], &[]);
    let gone = found.only("store", "libtorch-file-missing");
    assert!(
        gone.state == "wrong" && gone.place["file"].as_str().unwrap().ends_with("include/torch/torch.h"),
        "{gone:?}"
    );
    let said = found.only("store", "libtorch-arch-file");
    assert!(said.state == "doubtful" && said.found.contains("`torch=2.7.0`"), "{said:?}");
    assert_eq!(found.code(), 1);
}

#[test]
fn the_pointer_that_counts_is_followed() {
    let project = Project::linked();
    fs_err::write(project.root.join("libtorch/.active"), "test/cpu\n").unwrap();
    let found = Examination::of(&project, &[], &[]);
    assert_eq!(found.state("store", "pointer"), "right");
    assert!(found.only("store", "variant").found.ends_with(", active"), "{:#}", found.json);
    fs_err::write(project.root.join("libtorch/.active"), "test/gone\n").unwrap();
    let look = Examination::of(&project, &[], &[]).only("store", "pointer");
    assert!(look.state == "doubtful" && look.found.contains("which no store has"), "{look:?}");
}
