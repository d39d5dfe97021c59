//! What a rank inherits, and what it must not.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use torchlift_schema::exit_code;

use crate::run::{Run, Setup, ranks};

/// The same run, started by a shell that first does something to itself.
fn started_by(setup: Setup, preparation: &str, script: &str) -> Run {
    let launcher = setup.command(script);
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", &format!(r#"{preparation}; exec "$@""#), "bash"]).arg(launcher.get_program());
    shell.args(launcher.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (name, value) in launcher.get_envs() {
        shell.env(name, value.unwrap());
    }
    setup.spawn(shell)
}

#[test]
fn a_rank_has_its_three_standard_descriptors_and_no_other() {
    // The descriptor of the listing itself is closed again when the links are read.
    let script = r#"exec python3 -c '
import os
for fd in sorted(os.listdir("/proc/self/fd"), key=int):
    if os.path.lexists(f"/proc/self/fd/{fd}"):
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))'"#;
    let mut run = started_by(ranks(3), "exec 7</etc/passwd 9>/dev/null", script);
    assert_eq!(run.end_with_nothing_left().code(), Some(0));
    for rank in 0..3 {
        let stdout = run.stdout(rank);
        let lines: Vec<_> = stdout.lines().collect();
        assert_eq!(lines[0], "0 /dev/null");
        assert!(lines[1].starts_with("1 pipe:"), "{stdout}");
        assert!(lines[2].starts_with("2 pipe:"), "{stdout}");
        assert_eq!(lines.len(), 3, "{stdout}");
    }
}

#[test]
fn an_environment_of_any_size_arrives() {
    for (count, length) in [(1, 10), (1, 100_000), (16, 100_000)] {
        let setup = ranks(2);
        let mut command = setup.command(r#"echo ${#BIG_1} ${#BIG_LAST}"#);
        for index in 1..=count {
            command.env(format!("BIG_{index}"), "x".repeat(length));
        }
        command.env("BIG_LAST", "y".repeat(length));
        let mut run = setup.spawn(command);
        let ended = run.end_with_nothing_left();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        for rank in 0..2 {
            assert_eq!(run.stdout(rank), format!("{length} {length}\n"));
        }
    }
}

#[test]
fn a_rank_begins_with_no_signal_blocked_or_ignored() {
    let script = "exec grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let mut run = started_by(ranks(2), "trap '' HUP QUIT PIPE USR1", script);
    assert_eq!(run.end_with_nothing_left().code(), Some(0));
    assert_eq!(run.stdout(1), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

#[test]
fn a_rank_leads_its_own_group_away_from_the_terminal() {
    // Fields 5 to 7 of stat: group, session, terminal.
    let mut run = ranks(2).start(
        r#"read -r pid comm state parent group session tty rest </proc/$$/stat; echo $((pid - group)) $session $tty"#,
    );
    let own = nix::unistd::getsid(None).unwrap();
    assert_eq!(run.end_with_nothing_left().code(), Some(0));
    for rank in 0..2 {
        let stdout = run.stdout(rank);
        let fields: Vec<i32> = stdout.split_whitespace().map(|field| field.parse().unwrap()).collect();
        assert_eq!(fields[0], 0, "not the leader of its group");
        assert_ne!(fields[1], own.as_raw(), "in this session");
        assert_eq!(fields[2], 0, "has a terminal");
    }
}

#[test]
fn ranks_keep_the_soft_limit_that_the_launcher_outgrew() {
    let mut run = started_by(ranks(60), "ulimit -Sn 100", "ulimit -Sn");
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    for rank in [0, 59] {
        assert_eq!(run.stdout(rank), "100\n");
    }
}

#[test]
fn a_hard_limit_that_is_too_low_is_refused_before_any_rank_runs() {
    let mut run = started_by(ranks(60), "ulimit -n 100", r#": >"$DIR/marks/$RANK""#);
    let ended = run.end();
    assert_eq!(ended.code(), Some(exit_code::REFUSED.into()), "{ended:?}");
    assert!(ended.stderr.contains("100"), "{}", ended.stderr);
    assert_eq!(fs_err::read_dir(run.dir().join("marks")).unwrap().count(), 0);
}

#[test]
fn the_held_port_can_be_listened_on_by_a_rank() {
    let script = r#"exec python3 -c '
import os, socket
for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, int(os.environ["MASTER_PORT"])))
    server.listen()
    server.close()
print("listened")'"#;
    let mut run = ranks(1).start(script);
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert_eq!(run.stdout(0), "listened\n");
}

#[test]
fn a_chosen_port_that_is_busy_is_refused_with_its_holder_before_any_rank_runs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(listener.as_raw_fd() > 2);
    let port = listener.local_addr().unwrap().port().to_string();
    let mut run = ranks(1).option("--master-port", &port).start(r#": >"$DIR/marks/$RANK""#);
    let ended = run.end();
    assert!(matches!(ended.code(), Some(200..=219)), "{ended:?}");
    assert!(ended.stderr.contains(&port), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("process {}", std::process::id())), "{}", ended.stderr);
    assert_eq!(fs_err::read_dir(run.dir().join("marks")).unwrap().count(), 0);
}
