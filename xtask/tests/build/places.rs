//! What is no file where a file belongs: named, left alone, and never waited for.

use std::path::Path;

use nix::sys::stat::Mode;
use torchlift_schema::exit_code;

use crate::support::{Project, Ran};

fn put_pipe(place: &Path) {
    if place.exists() {
        fs_err::remove_file(place).unwrap();
    }
    fs_err::create_dir_all(place.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(place, Mode::S_IRWXU).unwrap();
}

fn is_pipe(place: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs_err::symlink_metadata(place).unwrap().file_type().is_fifo()
}

/// The tool, ended by force should it wait for a pipe: 124 is then its exit code.
fn bounded(project: &Project, args: &[&str]) -> Ran {
    let tool = project.command(args);
    let mut command = std::process::Command::new("timeout");
    command.arg("600").arg(tool.get_program()).args(args).current_dir(&project.root).env_clear().envs(project.env());
    Ran::of(&command.output().unwrap())
}

#[test]
fn what_is_no_file_in_the_place_of_a_result_is_told_for_all_hosts_before_anything_is_compiled() {
    let project = Project::linked();
    let (envelope, binary) =
        (project.envelope_file("node-1"), project.root.join("target/cluster/node-2/test-cpu/quick/linked"));
    put_pipe(&envelope);
    fs_err::create_dir_all(&binary).unwrap();
    let ran = bounded(&project, &["build"]).fails(exit_code::BUILD);
    ran.says("node-1/envelope.json` is a pipe, and a file of host `node-1` belongs there");
    ran.says("quick/linked` is a folder, and a file of host `node-2` belongs there");
    ran.says("error[place-taken]").says("= help: move it away").says("nothing was published");
    assert!(!ran.stderr.contains("Compiling"), "{}", ran.stderr);
    assert!(is_pipe(&envelope) && binary.is_dir(), "what somebody put there is theirs");
    assert_eq!(project.published(), Vec::<String>::new());

    fs_err::remove_file(&envelope).unwrap();
    fs_err::remove_dir(&binary).unwrap();
    put_pipe(&binary);
    bounded(&project, &["build"]).fails(exit_code::BUILD).says("quick/linked` is a pipe");
    fs_err::remove_dir_all(project.root.join("target/cluster")).unwrap();
    project.write("target/cluster/node-2", "");
    let ran = bounded(&project, &["build"]).fails(exit_code::BUILD);
    ran.says("target/cluster/node-2` is a file, and a folder of host `node-2` belongs there");
    fs_err::remove_file(project.root.join("target/cluster/node-2")).unwrap();
    bounded(&project, &["build"]).ok();
    assert_eq!(project.published().len(), 4);

    put_pipe(&envelope);
    let ran = bounded(&project, &["launch", "--no-build"]).fails(exit_code::VERIFY);
    ran.says("error[envelope-unreadable]").says("is a pipe, and not a file").says("= help: move it away");
}

#[test]
fn a_lock_and_other_files_that_are_pipes_are_named_with_a_remedy() {
    let project = Project::linked();
    let lock = project.root.join("target/cluster/.lock");
    put_pipe(&lock);
    let ran = bounded(&project, &["build"]).fails(exit_code::BUILD);
    ran.says(".lock` is a pipe, and not a file").says("hint: move what is in its way elsewhere");
    assert!(is_pipe(&lock));
    fs_err::remove_file(&lock).unwrap();
    put_pipe(&project.root.join("libtorch/test/cpu/build-version"));
    let ran = bounded(&project, &["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[libtorch-unusable]").says("= help:");
    put_pipe(&project.root.join("Cargo.lock"));
    bounded(&project, &["build", "--dry-run"]).fails(exit_code::BUILD).says("Cargo.lock` is a pipe").says("hint:");
}
