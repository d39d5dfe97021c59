//! `libtorch use`, `libtorch list` and the pointers of a store.

use torchlift_schema::exit_code;

use crate::tree::{ID, fails, libtorch, ok, with_variant};
use crate::world::said;

const PATH: [&str; 6] = ["path", "--cpu", "--arch", "x86_64", "--torch", "2.9.0"];

#[test]
fn what_is_used_is_what_is_taken() {
    let (world, variant) = with_variant();
    let mine = world.store().join("mine/z");
    libtorch(&world, &mine, "2.9.0");
    assert_eq!(ok(&world.run(&["use", "mine/z"])), format!("{mine}\n"));
    assert_eq!(fs_err::read_to_string(world.store().join(".active")).unwrap(), "mine/z\n");
    let output = world.run(&PATH);
    assert_eq!(ok(&output), format!("{mine}\n"));
    assert!(said(&output).contains("which `"), "where it came from is said: {}", said(&output));
    let list = ok(&world.run(&["list"]));
    assert!(list.lines().any(|line| line.starts_with("mine/z\t") && line.contains(", active")), "{list}");
    assert_eq!(list.matches("active").count(), 1, "{list}");

    ok(&world.run(&["use", ID]));
    assert_eq!(ok(&world.run(&PATH)), format!("{variant}\n"));
    let told = fails(&world.run(&["use", "mine/y"]), exit_code::USAGE);
    assert!(told.contains("`mine/z`"), "{told}");
    assert_eq!(ok(&world.run(&PATH)), format!("{variant}\n"), "a failure changes nothing");
}

#[test]
fn a_case_counts_alone_where_the_environment_names_one() {
    let (world, variant) = with_variant();
    let mine = world.store().join("mine/z");
    libtorch(&world, &mine, "2.9.0");
    ok(&world.run(&["use", ID]));
    let with_case = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("FDL_LIBTORCH_CASE", "zwei").output().unwrap()
    };
    let told = fails(&with_case(&PATH), exit_code::BUILD);
    assert!(told.contains("no `.active.zwei` in") && told.contains("libtorch use ID --case zwei"), "{told}");
    ok(&with_case(&["use", "mine/z"]));
    assert!(world.store().join(".active.zwei").is_file());
    assert_eq!(ok(&with_case(&PATH)), format!("{mine}\n"));
    assert_eq!(ok(&world.run(&PATH)), format!("{variant}\n"));
    fails(&world.run(&["use", ID, "--case", "../x"]), exit_code::BUILD);
}

#[test]
fn a_pointer_that_cannot_be_followed_is_said_and_passed_over() {
    let (world, variant) = with_variant();
    let pointer = world.store().join(".active");
    for (content, words) in
        [("mine/gone", "which no store has"), ("no id", "names no variant"), ("", "names no variant")]
    {
        fs_err::write(&pointer, content).unwrap();
        for args in [&PATH[..], &["list"]] {
            let output = world.run(args);
            ok(&output);
            assert!(said(&output).contains(words), "{content}: {}", said(&output));
        }
    }
    fs_err::remove_file(&pointer).unwrap();
    nix::unistd::mkfifo(pointer.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(ok(&world.run(&PATH)), format!("{variant}\n"), "a pipe is not waited for");
    ok(&world.run(&["use", ID]));
    assert!(pointer.is_file(), "the pointer takes the pipe's place");
}

#[test]
fn the_workspaces_pointer_is_written_where_it_would_hide_the_users() {
    let (world, _variant) = with_variant();
    let project = world.base.join("project");
    fs_err::write(project.join("Cargo.toml"), "[workspace]\n").unwrap();
    libtorch(&world, &project.join("libtorch/mine/own"), "2.9.0");
    ok(&world.run(&["use", "mine/own"]));
    assert!(project.join("libtorch/.active").is_file() && !world.store().join(".active").exists());
    ok(&world.run(&["use", ID]));
    assert_eq!(fs_err::read_to_string(project.join("libtorch/.active")).unwrap(), format!("{ID}\n"));
    assert!(ok(&world.run(&PATH)).ends_with(&format!("{ID}\n")));
}

#[test]
fn the_list_tells_programs_what_each_variant_is_and_says() {
    let (world, variant) = with_variant();
    ok(&world.run(&["use", ID]));
    fs_err::write(variant.join(".arch"), "torch=2.8.0\narchs=cpu\nmore=1\n").unwrap();
    fs_err::create_dir_all(world.store().join("mine/broken/lib")).unwrap();
    let output = world.run(&["list", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ok(&output)).unwrap();
    let row = &json["variants"][1];
    assert_eq!((row["id"].as_str(), row["is_active"].as_bool()), (Some(ID), Some(true)));
    assert_eq!((row["arch"]["torch"].as_str(), row["facts"]["version"].as_str()), (Some("2.8.0"), Some("2.9.0+cpu")));
    assert_eq!(row["findings"][0]["code"], "libtorch-arch-file");
    assert_eq!(row["fetched"]["sources"][0]["origin"], "folder");
    assert!(json["variants"][0]["error"].as_str().unwrap().contains("is not a libtorch"), "{json}");
    let text = world.run(&["list"]);
    assert!(said(&text).contains("warning[libtorch-arch-file]"), "{}", said(&text));
}
