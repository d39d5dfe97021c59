//! The exit code tells the truth, and the report all of it.

use std::io::BufRead as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::full_pipe::{FullPipe, wait_for_file_in_a_folder_of};
use crate::skip::skip;
use crate::stage::{Stage, seen, within};

#[test]
fn ranks_that_all_return_0_at_once_are_a_success() {
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "4"], "exit 0");
    seen.code(0).says("succeeded after");
    assert_eq!(seen.stdout, "");
    let report = stage.report();
    assert_eq!(report["outcome"]["kind"], "success");
    assert_eq!(report["exit_code"], 0);
    assert_eq!(report["ranks"].as_array().unwrap().len(), 4);
}

#[test]
fn the_first_failing_rank_gives_its_own_code() {
    for code in [1, 3, 127, 199, 220, 255] {
        let stage = Stage::new();
        let script = format!("[ $RANK != 1 ] || exit {code}; exec sleep 600");
        let seen = stage.sh(&["--nproc", "3"], &script);
        seen.code(code).says("rank 1 on host `local` (local rank 1, pid ").says(&format!("exited with {code}"));
        let report = stage.report();
        assert_eq!(report["outcome"]["rank"], 1);
        assert_eq!(report["ranks"][1]["end"]["code"], code);
    }
}

#[test]
fn a_code_of_ours_from_a_rank_becomes_219_and_is_told() {
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "1"], "exit 203");
    seen.code(219).says("exited with 203").says("203 is a code of the launcher's own, so the run ends with 219");
    assert_eq!(stage.report()["ranks"][0]["end"]["code"], 203);
}

#[test]
fn a_rank_that_dies_by_a_signal_is_128_and_its_number() {
    let stage = Stage::new();
    stage.sh(&["--nproc", "2"], "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 600").code(139).says("died by SIGSEGV");
    assert_eq!(stage.report()["ranks"][0]["end"]["name"], "SIGSEGV");
}

#[test]
fn the_last_rank_to_fail_does_not_wait_for_the_first() {
    let stage = Stage::new();
    // Rank 3 fails when all others sleep already.
    let script = "if [ $RANK = 3 ]; then until [ -e 0 ] && [ -e 1 ] && [ -e 2 ]; do sleep 0.01; done; exit 1; fi;
                  : > $RANK; exec sleep 600";
    stage.sh(&["--nproc", "4"], script).code(1);
    assert_eq!(stage.report()["ranks"][0]["end"]["name"], "SIGTERM");
}

#[test]
fn the_failure_shows_the_last_lines_of_its_stderr_and_where_the_rest_is() {
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "1", "--quiet"], "seq 1 30 >&2; exit 9");
    seen.code(9).says("  | 11\n").says("  | 30\n").says("attempt-0/0/stderr.log");
    assert!(!seen.stderr.contains("| 10\n"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("[local:0]"), "{}", seen.stderr);
}

#[test]
fn a_signal_ends_all_ranks_and_then_the_launcher() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let stage = Stage::new();
        let (child, stdout) = stage.start(2, "echo $$; exec sleep 600");
        let lines = stdout.lines().take(2);
        let ranks: Vec<i32> = lines.map(|line| line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()).collect();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let status = within(child, |mut child: Child| child.wait());
        assert_eq!(status.signal(), Some(signal as i32));
        for rank in ranks {
            assert_eq!(kill(Pid::from_raw(rank), None), Err(Errno::ESRCH), "rank {rank} is alive");
        }
        let report = stage.report();
        assert_eq!(report["outcome"]["name"], signal.as_str());
        assert_eq!(report["exit_code"], 128 + signal as i32);
    }
}

#[test]
fn a_signal_before_any_rank_ran_is_208() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let stage = Stage::new();
        let stderr = FullPipe::new();
        let mut command = stage.command();
        command.args(["run", "--nproc", "2", "--", "/bin/sh", "-c", ": > ran.$RANK"]);
        let child = command.stdout(Stdio::null()).stderr(stderr.stdio()).spawn().unwrap();
        // What is printed behind this file cannot be written yet, and the ranks come after that.
        wait_for_file_in_a_folder_of(&stage.folder.join(".torchlift/runs"), "plan.json");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        // The command has an end of the pipe, which would never be at its own end.
        drop(command);
        let told = stderr.drain();
        let status = within(child, |mut child: Child| child.wait());
        let told = told.join().unwrap();
        assert_eq!(status.code(), Some(208), "{signal}: {status}: {told}");
        assert!(told.contains(signal.as_str()), "{told}");
        let report = stage.report();
        assert_eq!((&report["exit_code"], &report["outcome"]["name"]), (&208.into(), &signal.as_str().into()));
        assert_eq!(fs_err::read_dir(&stage.folder).unwrap().count(), 1, "no rank ran: only the runs' folder is there");
    }
}

#[test]
fn a_machine_that_cannot_start_a_guard_is_204_and_no_run_is_left() {
    let stage = Stage::new();
    // Some sandboxes have no /proc, through which a guard is started.
    let without_proc = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "/bin/sh", "-c", &format!("mount -t tmpfs none /proc && {script}")]);
        shell.arg(env!("CARGO_BIN_EXE_torchlift")).current_dir(&stage.folder);
        shell
    };
    if !without_proc("true").output().is_ok_and(|output| output.status.success()) {
        let test = "a_machine_that_cannot_start_a_guard_is_204_and_no_run_is_left";
        return skip(test, "/proc cannot be covered here", "run the tests as root in a container with CAP_SYS_ADMIN");
    }
    let seen = seen(&mut without_proc("exec \"$0\" run --nproc 2 -- /bin/sh -c ': > ran'"));
    seen.code(204).says("error: the run was not started").says("cannot start the guard of host `local`");
    seen.says("`/proc/self/exe`");
    assert!(stage.runs().is_empty() && !stage.folder.join("ran").exists());
}

#[test]
fn the_report_on_stdout_is_json_and_nothing_else() {
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "2", "--format", "json"], "echo out $RANK");
    seen.code(0).says("[local:0] out 0\n").says("[local:1] out 1\n");
    let printed: serde_json::Value = serde_json::from_str(&seen.stdout).unwrap();
    assert_eq!(printed, stage.report());
}

#[test]
fn events_are_told_in_order_with_times_and_without_output() {
    let stage = Stage::new();
    stage.sh(&["--nproc", "2"], "echo some-output; exit $RANK").code(1);
    let text = fs_err::read_to_string(stage.only_run().join("events.ndjson")).unwrap();
    assert!(!text.contains("some-output"));
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["version"] == 1));
    assert!(events.iter().map(|event| event["t"].as_f64().unwrap()).is_sorted());
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["run", "allocated", "master-port"]);
    assert_eq!(names.last(), Some(&"finished"));
    assert_eq!(events.last().unwrap()["exit_code"], 1);
    assert_eq!(names.iter().filter(|name| **name == "ended").count(), 2);
}
