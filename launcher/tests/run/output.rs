//! What ranks write, seen in files and on the console.

use std::io::BufRead as _;
use std::process::{Child, Command, Stdio};

use crate::stage::{Stage, seen, within};

#[test]
fn files_have_the_bytes_of_the_ranks_and_the_console_labelled_lines() {
    let stage = Stage::new();
    let script = r"printf 'a\261\303\251\000b\r\nno end'; printf 'err\n' >&2";
    let seen = stage.sh(&["--nproc", "2"], script);
    seen.code(0).says("[local:0] err\n").says("[local:1] err\n");
    for rank in 0..2 {
        assert_eq!(stage.log(rank, "stdout"), b"a\xb1\xc3\xa9\0b\r\nno end");
        assert_eq!(stage.log(rank, "stderr"), b"err\n");
        assert!(seen.stdout.contains(&format!("[local:{rank}] a\u{fffd}\u{e9}\0b\n")), "{}", seen.stdout);
        assert!(seen.stdout.contains(&format!("[local:{rank}] no end\n")), "{}", seen.stdout);
    }
}

#[test]
fn lines_of_eight_ranks_are_whole_and_all_there() {
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "8", "--quiet"], "true");
    seen.code(0);
    let stage = Stage::new();
    let seen = stage.sh(&["--nproc", "8"], r#"seq 10000 | sed "s/^/rank $RANK line /""#);
    seen.code(0);
    let mut next = [1; 8];
    for line in seen.stdout.lines() {
        let rank: usize = line.strip_prefix("[local:").unwrap()[..1].parse().unwrap();
        assert_eq!(line, format!("[local:{rank}] rank {rank} line {}", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [10_001; 8]);
}

#[test]
fn a_reader_that_goes_away_costs_no_byte_and_ends_no_rank() {
    let stage = Stage::new();
    let (child, mut stdout) = stage.start(1, "seq 100000; until [ -e go ]; do sleep 0.01; done; seq 9");
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    assert_eq!(line, "[local:0] 1\n");
    stage.write("go", "", 0o644);
    let status = within(child, |mut child: Child| child.wait());
    assert_eq!(status.code(), Some(0));
    let text = String::from_utf8(stage.log(0, "stdout")).unwrap();
    assert_eq!(text.lines().count(), 100_009);
    assert!(text.ends_with("8\n9\n"));
}

#[test]
fn an_endless_line_needs_little_memory_and_is_whole_in_the_file() {
    let stage = Stage::new();
    let script = "import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)";
    let mut measured = Command::new("python3");
    measured.current_dir(&stage.folder).args(["-c", script, env!("CARGO_BIN_EXE_torchlift"), "run", "--nproc", "1"]);
    let seen = seen(measured.args(["--", "/bin/sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x"]));
    seen.code(0);
    let kib: u64 = seen.stdout.trim().parse().unwrap();
    assert!(kib < 50 * 1024, "{kib} KiB");
    let path = stage.only_run().join("attempt-0/0/stdout.log");
    assert_eq!(fs_err::metadata(path).unwrap().len(), 100_000_000);
}

#[test]
fn a_line_that_was_begun_is_shown_before_it_ends() {
    let stage = Stage::new();
    let (child, mut stdout) = stage.start(1, "printf 'ready? '; until [ -e go ]; do sleep 0.01; done");
    let mut line = String::new();
    // The rank ends only when this was read.
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    assert_eq!(line, "[local:0] ready? \n");
    stage.write("go", "", 0o644);
    assert_eq!(within(child, |mut child: Child| child.wait()).code(), Some(0));
    assert_eq!(stage.log(0, "stdout"), b"ready? ");
}

#[test]
fn a_pipe_gets_no_colour() {
    let stage = Stage::new();
    let seen = seen(stage.command().env("TERM", "xterm-256color").args([
        "run",
        "--nproc",
        "1",
        "--",
        "/bin/sh",
        "-c",
        "echo x >&2",
    ]));
    seen.code(0);
    assert!(!seen.stderr.contains('\x1b'), "{}", seen.stderr);
}

#[test]
fn two_runs_at_once_have_folders_of_their_own() {
    let stage = Stage::new();
    let start = || {
        let mut command = stage.command();
        command.args(["run", "--nproc", "2", "--", "/bin/sh", "-c", "echo $TORCHLIFT_RUN_ID $MASTER_PORT"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children = [start(), start(), start()];
    let outputs = children.map(|child| within(child, Child::wait_with_output));
    assert!(outputs.iter().all(|output| output.status.success()));
    let mut runs: Vec<String> = outputs
        .iter()
        .map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
        })
        .collect();
    runs.sort();
    let folders: Vec<String> =
        stage.runs().iter().map(|run| run.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(runs, folders);
    assert_eq!(folders.len(), 3);
}
