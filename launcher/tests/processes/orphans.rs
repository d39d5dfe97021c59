//! Nothing of a run outlives it, whoever dies first.

use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::{Run, marked, ranks, within};

/// Two ranks with twelve daemons each, double-forked and in sessions of their own: neither a process group nor a parent link
/// finds them. With the ranks that makes 26.
const DAEMONS: &str = r#"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do setsid -f sleep 600 >/dev/null 2>&1; done
    : >"$DIR/marks/$RANK"
    exec sleep 600"#;
const WITH_DAEMONS: usize = 26;

fn start_with_daemons() -> Run {
    let mut run = ranks(2).start(DAEMONS);
    run.wait_for_marks(2);
    within("26 processes named `sleep`", || {
        let sleepers = run.processes().iter().filter(|process| process.name == "sleep").count();
        assert!(sleepers <= WITH_DAEMONS);
        (sleepers == WITH_DAEMONS).then_some(())
    });
    run
}

#[test]
fn a_killed_launcher_leaves_nothing_and_strangers_live_on() {
    let mut stranger = Command::new("/bin/sleep").arg("600").env("TORCHLIFT_RUN_ID", "a-stranger").spawn().unwrap();
    let mut run = start_with_daemons();
    run.signal(Signal::SIGKILL);
    run.wait_until_empty();
    assert_eq!(run.end().signal(), Some(Signal::SIGKILL as i32));
    assert_eq!(stranger.try_wait().unwrap(), None);
    assert!(marked("a-stranger").iter().any(|process| process.pid == stranger.id().cast_signed()));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_killed_guard_is_a_lost_host_and_leaves_nothing() {
    let mut run = start_with_daemons();
    kill(Pid::from_raw(run.guard()), Signal::SIGKILL).unwrap();
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(206), "{}", ended.stderr);
}

#[test]
fn a_guard_and_then_its_launcher_killed_leave_nothing() {
    let run = start_with_daemons();
    kill(Pid::from_raw(run.guard()), Signal::SIGKILL).unwrap();
    run.wait_until_empty();
    let _ = kill(Pid::from_raw(run.pid()), Signal::SIGKILL);
    run.wait_until_empty();
}

#[test]
fn a_launcher_and_then_its_guard_killed_leave_nothing() {
    let run = start_with_daemons();
    let guard = run.guard();
    run.signal(Signal::SIGKILL);
    run.wait_until_empty();
    // Its id is still unused: it was alive a moment ago, and ids go round.
    let _ = kill(Pid::from_raw(guard), Signal::SIGKILL);
    assert!(run.processes().is_empty());
}

#[test]
fn a_killed_guard_takes_no_other_child_of_the_launcher_with_it() {
    // The launcher takes the place of a shell that has a child in the background: that one is not the run's.
    let setup = ranks(1);
    let launcher = setup.command(r#": >"$DIR/marks/$RANK"; exec sleep 600"#);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", r#"setsid sleep 600 2>/dev/null & echo $! >"$DIR/child"; exec "$@""#, "sh"])
        .arg(launcher.get_program());
    shell.args(launcher.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in launcher.get_envs() {
        shell.env(name, value.unwrap());
    }
    let mut run = setup.spawn(shell);
    run.wait_for_marks(1);
    let child: i32 = fs_err::read_to_string(run.dir().join("child")).unwrap().trim().parse().unwrap();
    let child = Pid::from_raw(child);
    kill(Pid::from_raw(run.guard()), Signal::SIGKILL).unwrap();
    assert_eq!(run.end_with_nothing_left().code(), Some(206));
    kill(child, None).unwrap();
    kill(child, Signal::SIGKILL).unwrap();
}

#[test]
fn daemons_are_gone_when_all_ranks_returned_0() {
    let mut run = ranks(2).start("setsid -f sleep 600 >/dev/null 2>&1; setsid -f sleep 600; exit 0");
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_after_the_grace() {
    let script = r#"
        if [ "$RANK" = 1 ]; then until [ -e "$DIR/marks/deaf" ]; do sleep 0.01; done; exit 9; fi
        (trap '' TERM; : >"$DIR/marks/deaf"; while :; do sleep 1; done) &
        wait"#;
    let mut run = ranks(2).grace("300ms").start(script);
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(9), "{}", ended.stderr);
}

#[test]
fn a_hundred_workers_of_a_failed_rank_are_gone() {
    let script = r#"
        i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i + 1)); done
        exit 5"#;
    let mut run = ranks(1).start(script);
    assert_eq!(run.end_with_nothing_left().code(), Some(5));
}
