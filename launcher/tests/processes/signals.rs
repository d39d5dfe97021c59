//! Signals to the launcher: passed on, escalated, and died by.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::run::{ranks, within};

const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

#[test]
fn each_ending_signal_ends_all_ranks_with_their_children_and_the_launcher_dies_by_it() {
    for signal in ENDING {
        let mut run = ranks(4).start(r#"sleep 600 & : >"$DIR/marks/$RANK"; wait"#);
        run.wait_for_marks(4);
        run.signal(signal);
        let ended = run.end_with_nothing_left();
        assert_eq!(ended.signal(), Some(signal as i32), "{ended:?}");
    }
}

#[test]
fn ranks_get_the_very_signal_and_time_to_end() {
    for signal in ENDING {
        let name = signal.as_str().trim_start_matches("SIG");
        let script = format!(
            r#"trap 'echo got {name}; sleep 0.2; echo saved; exit 0' {name}; : >"$DIR/marks/$RANK"; while :; do sleep 0.05; done"#
        );
        let mut run = ranks(2).start(&script);
        run.wait_for_marks(2);
        run.signal(signal);
        let ended = run.end_with_nothing_left();
        assert_eq!(ended.signal(), Some(signal as i32), "{ended:?}");
        for rank in 0..2 {
            assert_eq!(run.stdout(rank), format!("got {name}\nsaved\n"));
        }
    }
}

#[test]
fn a_second_signal_kills_what_ignores_the_first() {
    let mut run = ranks(2).start(r#"trap '' INT TERM; : >"$DIR/marks/$RANK"; while :; do sleep 1; done"#);
    run.wait_for_marks(2);
    run.signal(Signal::SIGINT);
    // Two of one kind could melt into one while the first is pending.
    run.signal(Signal::SIGTERM);
    let ended = run.end_with_nothing_left();
    assert!(matches!(ended.signal(), Some(2 | 15)), "{ended:?}");
}

#[test]
fn what_outlives_the_grace_is_killed_and_the_launcher_still_dies_by_the_signal() {
    let mut run = ranks(2).grace("200ms").start(r#"trap '' TERM; : >"$DIR/marks/$RANK"; while :; do sleep 1; done"#);
    run.wait_for_marks(2);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end_with_nothing_left().signal(), Some(15));
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let mut run = ranks(2).start(r#": >"$DIR/marks/$RANK"; kill -STOP $$; exec sleep 600"#);
    run.wait_for_marks(2);
    let state = |pid| fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    within("both ranks to be stopped", || {
        let stopped = run.processes().iter().filter(|process| state(process.pid).contains(") T ")).count();
        (stopped == 2).then_some(())
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.end_with_nothing_left().signal(), Some(15));
}

#[test]
fn a_signal_at_any_moment_leaves_nothing() {
    for turn in 0..40_u8 {
        let mut run = ranks(3).start("exec sleep 600");
        // A different moment each turn: before the guard, while ranks start, when they run.
        let _ = nix::poll::poll(&mut [], turn);
        run.signal(Signal::SIGTERM);
        let ended = run.end();
        assert!(ended.signal() == Some(15) || ended.code() == Some(208), "turn {turn}: {ended:?}");
        // A signal that came before the run's folder was made came before anything was started.
        let runs = fs_err::read_dir(run.dir().join("runs"));
        if runs.is_ok_and(|mut folders| folders.next().is_some()) {
            run.wait_until_empty();
        }
    }
}

#[test]
fn a_shell_loop_ends_at_ctrl_c() {
    let setup = ranks(1);
    let launcher = setup.command(r#": >"$DIR/marks/$RANK"; exec sleep 600"#);
    // A terminal's Ctrl-C goes to the whole group. bash goes on with its loop unless its child died by the signal.
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", r#"while "$@" || true; do :; done"#, "bash"]).arg(launcher.get_program());
    shell.args(launcher.get_args()).process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in launcher.get_envs() {
        shell.env(name, value.unwrap());
    }
    let mut run = setup.spawn(shell);
    run.wait_for_marks(1);
    killpg(Pid::from_raw(run.pid()), Signal::SIGINT).unwrap();
    assert_eq!(run.end_with_nothing_left().signal(), Some(2));
}

/// Runs a shell's loop on a terminal of its own and types Ctrl-C.
const TYPIST: &str = include_str!("../../../fixtures/support/typist.py");

#[test]
fn ctrl_c_typed_on_a_terminal_ends_a_shell_loop_and_all_ranks() {
    let setup = ranks(2);
    let launcher = setup.command(r#": >"$DIR/marks/$RANK"; [ "$RANK" = 1 ] && exec setsid sleep 600; exec sleep 600"#);
    let mut typist = Command::new("python3");
    typist.args(["-c", TYPIST]).arg(setup.marks().join("1")).arg(r#"while "$@" || true; do :; done"#);
    typist.arg(launcher.get_program()).args(launcher.get_args());
    typist.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in launcher.get_envs() {
        typist.env(name, value.unwrap());
    }
    let mut run = setup.spawn(typist);
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(2), "{ended:?}");
}

#[test]
fn a_signal_that_was_ignored_on_entry_stays_ignored() {
    let setup = ranks(1);
    let launcher = setup.command(r#": >"$DIR/marks/up"; until [ -e "$DIR/go" ]; do sleep 0.01; done"#);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", r#"trap '' HUP; exec "$@""#, "sh"]).arg(launcher.get_program()).args(launcher.get_args());
    shell.stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in launcher.get_envs() {
        shell.env(name, value.unwrap());
    }
    let mut run = setup.spawn(shell);
    run.wait_for_marks(1);
    run.signal(Signal::SIGHUP);
    fs_err::write(run.dir().join("go"), "").unwrap();
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{ended:?}");
}
