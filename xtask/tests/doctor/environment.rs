//! Variables that change what happens, folders that cannot be used.

use crate::examination::Examination;
use crate::support::Project;

#[test]
fn each_variable_that_is_set_is_told_with_what_it_does() {
    let project = Project::linked();
    let library = project.root.join("libtorch/test/cpu/lib");
    let library_path = format!("/opt/mine::{}", library.display());
    let found = Examination::of(
        &project,
        &[],
        &[
            ("LD_LIBRARY_PATH", &library_path),
            ("LIBTORCH", "/no/libtorch/ü"),
            ("LIBTORCH_USE_PYTORCH", "1"),
            ("LIBTORCH_BYPASS_VERSION_CHECK", "1"),
            ("TORCH_CUDA_ARCH_LIST", "8.6"),
            ("RUSTFLAGS", "-Cdebuginfo=0"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("HIP_VISIBLE_DEVICES", "0,1"),
            ("HSA_OVERRIDE_GFX_VERSION", "gfx1030"),
            ("WORLD_SIZE", "8"),
            ("RANK", "3"),
            ("LANG", "C"),
        ],
    );
    for (name, state, words) in [
        ("LD_LIBRARY_PATH", "doubtful", "has a libtorch"),
        ("LD_LIBRARY_PATH", "doubtful", "`/opt/mine` is no folder"),
        ("LIBTORCH", "doubtful", "there is no folder `/no/libtorch/ü`"),
        ("LIBTORCH_USE_PYTORCH", "right", "takes it out"),
        ("LIBTORCH_BYPASS_VERSION_CHECK", "doubtful", "builds with any version"),
        ("TORCH_CUDA_ARCH_LIST", "right", "kind's GPUs"),
        ("RUSTFLAGS", "right", "another value is another build"),
        ("CUDA_VISIBLE_DEVICES", "doubtful", "hides every card"),
        ("HIP_VISIBLE_DEVICES", "right", "these cards alone"),
        ("HSA_OVERRIDE_GFX_VERSION", "doubtful", "ROCm shows no card"),
        ("rank-variables", "right", "`RANK` and 1 more"),
        ("locale", "doubtful", "names outside of ASCII"),
    ] {
        let look = found.only("environment", name);
        assert_eq!(look.state, state, "{look:?}");
        assert!(look.found.contains(words), "{words}: {look:?}");
    }
    assert!(found.all("environment", "LD_PRELOAD").is_empty(), "what is not set is not told");
}

#[test]
fn a_library_that_is_loaded_before_all_others_is_doubtful() {
    let project = Project::linked();
    // The loader takes a space for the end of a path.
    let library = project.beside("preload").join("libc10.so");
    fs_err::copy(project.root.join("libtorch/test/cpu/lib/libc10.so"), &library).unwrap();
    let look =
        Examination::of(&project, &[], &[("LD_PRELOAD", library.to_str().unwrap())]).only("environment", "LD_PRELOAD");
    assert_eq!((look.state.as_str(), look.remedy.contains("unset LD_PRELOAD")), ("doubtful", true), "{look:?}");
}

#[test]
fn without_a_home_it_is_told_which_variable_helps() {
    let project = Project::linked();
    let mut command = project.command(&["doctor", "--format", "json"]);
    for name in ["HOME", "TORCHLIFT_HOME", "TORCHLIFT_CACHE"] {
        command.env_remove(name);
    }
    let found = Examination::by(&mut command);
    let look = found.only("environment", "places");
    assert!(look.state == "wrong" && look.remedy.contains("`HOME`"), "{look:?}");
    assert_eq!(found.all("store", "variant").len(), 1, "the project's own store is looked at");
    assert_eq!(found.code(), 1);
}

#[test]
fn a_case_that_no_store_has_is_wrong() {
    let project = Project::linked();
    let found = Examination::of(&project, &[], &[("FDL_LIBTORCH_CASE", "gpu")]);
    let look = found.only("store", "pointer");
    assert!(look.state == "wrong" && look.remedy.contains("libtorch use ID --case gpu"), "{look:?}");
    let found = Examination::of(&project, &[], &[("FDL_LIBTORCH_CASE", "a/b")]);
    assert_eq!(found.state("environment", "FDL_LIBTORCH_CASE"), "wrong");
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_wrong() {
    let project = Project::linked();
    let found = Examination::of(&project, &[], &[("TMPDIR", "/no/such/ü")]);
    let look = found.only("machine", "temporary-folder");
    assert!(
        look.state == "wrong" && look.found.contains("`/no/such/ü`") && look.remedy.contains("`TMPDIR`"),
        "{look:?}"
    );
    assert_eq!(found.code(), 1);
}

#[test]
fn a_file_in_the_place_of_the_stores_home_is_wrong() {
    let project = Project::linked();
    let file = project.beside("other").join("a file");
    fs_err::write(&file, "").unwrap();
    let found = Examination::of(&project, &[], &[("TORCHLIFT_HOME", file.to_str().unwrap())]);
    let look = found.only("machine", "store-folder");
    assert!(
        look.state == "wrong" && look.found.contains("is no folder") && look.remedy.contains("`TORCHLIFT_HOME`"),
        "{look:?}"
    );
}

#[test]
fn what_a_terminal_would_obey_is_spelled_out() {
    let project = Project::linked();
    let ran = project.run_with(&["doctor"], &[("LIBTORCH", "/x\x1b[31m\nwrong")]).ok();
    assert!(!ran.stdout.contains('\x1b') && ran.stdout.contains(r"/x\u{1b}[31m\nwrong"), "{}", ran.stdout);
}
