//! What the machine refuses: it is told in time where that can be, and ends no rank where it cannot.

use std::process::Command;

use crate::skip::skip;
use crate::stage::{Seen, Stage, seen};

/// Runs `torchlift run` below a shell script that ends with `"$@"`.
fn below(stage: &Stage, script: &str, args: &[&str]) -> Seen {
    let torchlift = stage.command();
    let mut command = Command::new("/bin/sh");
    command.current_dir(&stage.folder).args(["-c", script, "sh", env!("CARGO_BIN_EXE_torchlift"), "run"]).args(args);
    command.env_clear().envs(torchlift.get_envs().filter_map(|(name, value)| Some((name, value?))));
    seen(&mut command)
}

#[test]
fn a_limit_of_file_sizes_ends_neither_launcher_nor_ranks_and_is_told_once() {
    // Some parents ignore the signal, and ranks are to have its default nonetheless.
    for parent in ["", "trap '' 25; "] {
        let stage = Stage::new();
        let limit = format!("{parent}exec prlimit --fsize=8192 --core=0 \"$@\"");
        let script = "seq 10000; head -c 100000 /dev/zero > own; [ $? = 153 ] || exit 7";
        let seen = below(&stage, &limit, &["--nproc", "1", "--", "/bin/sh", "-c", script]);
        seen.code(0).says("File too large").says("40702 bytes of ranks' output are in no file");
        assert_eq!(seen.stderr.matches("a rank's output cannot be written, ranks go on").count(), 1, "{}", seen.stderr);
        assert_eq!(seen.stdout.lines().count(), 10_000);
        assert_eq!(stage.log(0, "stdout").len(), 8192);
        assert_eq!(stage.report()["lost_log_bytes"], 40_702);
    }
}

#[test]
fn one_byte_that_is_lost_is_one_byte() {
    let stage = Stage::new();
    let script = "head -c 8193 /dev/zero | tr '\\0' x";
    let limit = "exec prlimit --fsize=8192 \"$@\"";
    let seen = below(&stage, limit, &["--nproc", "1", "--", "/bin/sh", "-c", script]);
    seen.code(0).says("1 byte of ranks' output is in no file");
}

#[test]
fn too_few_open_files_are_told_before_the_start_and_are_no_mistake_of_the_command_line() {
    for (ranks, need) in [("1", "1 rank needs "), ("2", "2 ranks need ")] {
        let stage = Stage::new();
        let seen = below(&stage, "exec prlimit --nofile=64 \"$@\"", &["--nproc", ranks, "--", "/bin/true"]);
        seen.code(1).says(need).says("the hard limit is 64").says("hint: raise the hard limit");
        assert!(stage.runs().is_empty());
    }
}

#[test]
fn a_folder_of_runs_that_cannot_be_made_is_no_mistake_of_the_command_line() {
    let stage = Stage::new();
    stage.write("file", "", 0o644);
    for runs in ["file", "file/runs", "/proc/nowhere"] {
        let seen = stage.run(["run", "--nproc", "1", "--runs", runs, "--", "/bin/true"]);
        seen.code(1).says("error: the run's files cannot be made").says(runs).says("hint: choose another folder");
    }
}

#[test]
fn a_read_only_and_a_full_disk_are_told_before_a_rank_runs() {
    let test = "a_read_only_and_a_full_disk_are_told_before_a_rank_runs";
    // The second has room for its own root and one folder more.
    for (options, reason) in [("ro", "Read-only file system"), ("nr_inodes=2", "No space left on device")] {
        let stage = Stage::new();
        fs_err::create_dir(stage.folder.join("runs")).unwrap();
        let mount = format!("mount -t tmpfs -o {options} tmpfs runs || exit 77; exec \"$@\"");
        let script = format!("unshare --mount /bin/sh -c '{mount}' sh \"$@\" || exit $?");
        let seen = below(&stage, &script, &["--nproc", "1", "--runs", "runs", "--", "/bin/sh", "-c", ": > ran"]);
        if !seen.stderr.contains("error: the run's files") && !stage.folder.join("ran").exists() {
            return skip(
                test,
                "no tmpfs can be mounted here",
                "run the tests as root in a container with CAP_SYS_ADMIN",
            );
        }
        seen.code(1).says("the run's files cannot be made").says(reason).says("or make room");
        assert!(!stage.folder.join("ran").exists());
    }
}

#[test]
fn a_full_stdout_is_no_mistake_of_the_command_line() {
    let stage = Stage::new();
    let seen = below(&stage, "exec \"$@\" > /dev/full", &["--nproc", "1", "--dry-run", "--", "/bin/true"]);
    seen.code(1).says("cannot write to stdout");
}
