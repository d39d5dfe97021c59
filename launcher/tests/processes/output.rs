//! No byte of a rank's output is lost, and nothing that holds its pipe holds the run.

use std::io::Read as _;

use crate::run::{ranks, within};

#[test]
fn a_grandchild_that_holds_a_pipe_does_not_hold_the_run() {
    let mut run = ranks(2).start("sleep 600 & echo hi");
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    for rank in 0..2 {
        assert_eq!(run.stdout(rank), "hi\n");
    }
}

#[test]
fn a_silent_rank_leaves_no_log_and_can_write_its_error_file() {
    let mut run = ranks(2).start(r#"[ "$RANK" = 1 ] && echo said; echo '{}' >"$TORCHELASTIC_ERROR_FILE""#);
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let files = |rank| {
        let folder = run.stdout_path(rank).parent().unwrap().to_owned();
        let names = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!(files(0), ["error.json"]);
    assert_eq!(files(1), ["error.json", "stdout.log"]);
}

#[test]
fn what_a_rank_writes_last_is_kept_even_when_it_fails() {
    // More than a pipe holds, so that the end comes while bytes are still on their way.
    let mut run = ranks(2).start("head -c 1000000 /dev/zero; exit 3");
    assert_eq!(run.end_with_nothing_left().code(), Some(3));
    // The second to fail may have been ended in the middle, or before its first byte; the first was not.
    let lengths: Vec<_> =
        (0..2).map(|rank| fs_err::metadata(run.stdout_path(rank)).map_or(0, |metadata| metadata.len())).collect();
    assert!(lengths.contains(&1_000_000), "{lengths:?}");
}

#[test]
fn much_output_without_a_newline_arrives_whole_in_bounded_memory() {
    const BYTES: u64 = 128 << 20;
    let script = format!(
        r#"head -c {BYTES} /dev/zero | tr '\0' x; : >"$DIR/marks/$RANK"; until [ -e "$DIR/go" ]; do sleep 0.01; done"#
    );
    let mut run = ranks(1).start(&script);
    run.wait_for_marks(1);
    let path = run.stdout_path(0);
    within("all bytes in the file", || (fs_err::metadata(&path).unwrap().len() == BYTES).then_some(()));
    let status = fs_err::read_to_string(format!("/proc/{}/status", run.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 100 * 1024, "the launcher needed {peak} KiB");
    fs_err::write(run.dir().join("go"), "").unwrap();
    assert_eq!(run.end_with_nothing_left().code(), Some(0));
    let mut file = std::io::BufReader::with_capacity(1 << 20, fs_err::File::open(&path).unwrap());
    let mut chunk = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        let length = file.read(&mut chunk).unwrap();
        if length == 0 {
            break;
        }
        assert!(chunk[..length].iter().all(|byte| *byte == b'x'));
        total += length as u64;
    }
    assert_eq!(total, BYTES);
}

#[test]
fn many_ranks_write_at_once_and_no_byte_is_lost() {
    let mut run = ranks(16).start("head -c 3000000 /dev/zero; head -c 300000 /dev/zero >&2");
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(0));
    for rank in 0..16 {
        let stdout = run.stdout_path(rank);
        assert_eq!(fs_err::metadata(&stdout).unwrap().len(), 3_000_000);
        assert_eq!(fs_err::metadata(stdout.with_file_name("stderr.log")).unwrap().len(), 300_000);
    }
}
