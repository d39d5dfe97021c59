//! Events in, bytes out: files and console driven as the dispatcher drives them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::framing::{LINE_LIMIT, PAUSE};
use super::*;
use crate::clock::Moment;
use crate::event::{End, Event, Observer, Outcome, Rank, Stream};
use crate::plan::{HostPlan, LaunchPlan, RankPlan};

/// A writer whose bytes can still be read after it was given away, and which may break.
#[derive(Clone, Default)]
struct Shared {
    bytes: Rc<RefCell<Vec<u8>>>,
    is_broken: Rc<RefCell<bool>>,
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.bytes.borrow().clone()).unwrap()
    }

    fn given(&self, is_coloured: bool) -> (Box<dyn Write>, bool) {
        (Box::new(self.clone()), is_coloured)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if *self.is_broken.borrow() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bytes.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn plan(run_dir: &Path, ranks: u32) -> LaunchPlan {
    let ranks = (0..ranks).map(|rank| RankPlan { rank: Rank(rank), local_rank: rank, env: BTreeMap::new() });
    LaunchPlan {
        run_id: "run".to_owned(),
        run_dir: run_dir.to_owned(),
        master_addr: "127.0.0.1".to_owned(),
        master_port: None,
        grace: Duration::ZERO,
        hosts: vec![HostPlan {
            name: "node-a".to_owned(),
            program: "/bin/true".into(),
            args: Vec::new(),
            cwd: "/".into(),
            env: BTreeMap::new(),
            ranks: ranks.collect(),
        }],
    }
}

const NOW: Moment = Moment::after_zero(Duration::ZERO);

fn output<'a>(rank: u32, stream: Stream, bytes: &'a [u8]) -> Event<'a> {
    Event::Output { rank: Rank(rank), stream, bytes }
}

fn closed(rank: u32, stream: Stream) -> Event<'static> {
    Event::OutputClosed { rank: Rank(rank), stream }
}

#[test]
fn files_hold_every_byte_and_the_console_goes_on_after_a_bad_one() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), 1);
    let mut files = LogFiles::create(&plan, 0).unwrap();
    let (out, err) = (Shared::default(), Shared::default());
    let mut console = Console::new(&plan, 0, out.given(false), Some(err.given(false)));
    let whole: &[u8] = b"bad \xb1 byte\ncaf\xc3\xa9 and \0 and \x1b[31mred\x1b[0m\r\nend";
    // Cut inside the two bytes of the letter.
    for part in [&whole[..16], &whole[16..]] {
        files.observe(NOW, &output(0, Stream::Stdout, part));
        console.observe(NOW, &output(0, Stream::Stdout, part));
    }
    console.observe(NOW, &closed(0, Stream::Stdout));
    assert_eq!(fs_err::read(files.path(Rank(0), Stream::Stdout)).unwrap(), whole);
    assert!(!files.path(Rank(0), Stream::Stderr).exists(), "a file was made for a stream without a byte");
    assert_eq!(
        out.text(),
        "[node-a:0] bad \u{fffd} byte\n[node-a:0] caf\u{e9} and \0 and \x1b[31mred\x1b[0m\n[node-a:0] end\n"
    );
    assert_eq!(err.text(), "");
}

#[test]
fn lines_of_many_ranks_never_mix() {
    const RANKS: u32 = 8;
    const LINES: usize = 10_000;
    let plan = plan(Path::new("/nowhere"), RANKS);
    let out = Shared::default();
    let mut console = Console::new(&plan, 0, out.given(false), None);
    let whole: Vec<Vec<u8>> = (0..RANKS)
        .map(|rank| (0..LINES).flat_map(|line| format!("rank {rank} line {line}\n").into_bytes()).collect())
        .collect();
    // Turn by turn, in pieces of different sizes that fall anywhere into lines.
    let mut at = vec![0; whole.len()];
    let mut turn = 0_usize;
    while at.iter().zip(&whole).any(|(at, bytes)| *at < bytes.len()) {
        let rank = turn % whole.len();
        let end = (at[rank] + 1 + turn * 37 % 4_093).min(whole[rank].len());
        console.observe(NOW, &output(rank as u32, Stream::Stdout, &whole[rank][at[rank]..end]));
        at[rank] = end;
        turn += 1;
    }
    let mut next = vec![0; whole.len()];
    for line in out.text().lines() {
        let (label, text) = line.split_once(' ').unwrap();
        let rank: usize = label.strip_prefix("[node-a:").unwrap().strip_suffix(']').unwrap().parse().unwrap();
        assert_eq!(text, format!("rank {rank} line {}", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, vec![LINES; whole.len()]);
}

#[test]
fn a_line_without_end_is_cut_on_the_console_and_whole_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), 1);
    let mut files = LogFiles::create(&plan, 0).unwrap();
    let out = Shared::default();
    let mut console = Console::new(&plan, 0, out.given(false), None);
    let part = [b'x'; 65_536];
    for _ in 0..64 {
        files.observe(NOW, &output(0, Stream::Stdout, &part));
        console.observe(NOW, &output(0, Stream::Stdout, &part));
    }
    console.observe(NOW, &output(0, Stream::Stdout, b"\nnext\n"));
    assert_eq!(fs_err::metadata(files.path(Rank(0), Stream::Stdout)).unwrap().len(), 64 * 65_536);
    let text = out.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    let path = files.path(Rank(0), Stream::Stdout);
    let mark = format!(" … (cut here; the whole line is in `{}`)", path.display());
    assert_eq!(lines[0].len(), "[node-a:0] ".len() + LINE_LIMIT + mark.len());
    assert!(lines[0].ends_with(&mark));
    assert_eq!(lines[1], "[node-a:0] next");
}

#[test]
fn a_closed_stdout_loses_no_byte_of_a_file_and_no_line_of_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), 1);
    let mut files = LogFiles::create(&plan, 0).unwrap();
    let (out, err) = (Shared::default(), Shared::default());
    let mut console = Console::new(&plan, 0, out.given(false), Some(err.given(false)));
    for line in ["one\n", "two\n"] {
        for stream in [Stream::Stdout, Stream::Stderr] {
            files.observe(NOW, &output(0, stream, line.as_bytes()));
            console.observe(NOW, &output(0, stream, line.as_bytes()));
        }
        *out.is_broken.borrow_mut() = true;
    }
    assert_eq!(out.text(), "[node-a:0] one\n");
    assert_eq!(err.text(), "[node-a:0] one\n[node-a:0] two\n");
    assert_eq!(fs_err::read(files.path(Rank(0), Stream::Stdout)).unwrap(), b"one\ntwo\n");
}

#[test]
fn a_full_disk_is_told_once_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), 1);
    let mut files = LogFiles::create(&plan, 0).unwrap();
    // The real thing: every write to it says that no space is left.
    let path = files.path(Rank(0), Stream::Stdout);
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    files.observe(NOW, &output(0, Stream::Stdout, b"12345"));
    assert_eq!(files.take_trouble().unwrap().kind(), io::ErrorKind::StorageFull);
    files.observe(NOW, &output(0, Stream::Stdout, b"678"));
    files.observe(NOW, &output(0, Stream::Stderr, b"kept"));
    assert!(files.take_trouble().is_none());
    assert_eq!(files.lost(), 8);
    assert_eq!(fs_err::read(files.path(Rank(0), Stream::Stderr)).unwrap(), b"kept");
}

#[test]
fn more_files_than_may_be_open_are_all_written() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path(), 300);
    let mut files = LogFiles::create(&plan, 0).unwrap();
    for round in ["a", "b"] {
        for rank in 0..300 {
            files.observe(NOW, &output(rank, Stream::Stdout, round.as_bytes()));
        }
    }
    for rank in 0..300 {
        assert_eq!(fs_err::read(files.path(Rank(rank), Stream::Stdout)).unwrap(), b"ab");
    }
}

#[test]
fn a_question_is_shown_after_the_pause_and_the_rest_at_the_end() {
    let plan = plan(Path::new("/nowhere"), 2);
    let out = Shared::default();
    let mut console = Console::new(&plan, 0, out.given(false), None);
    assert_eq!(console.deadline(), None);
    console.observe(NOW, &output(1, Stream::Stdout, b"ready? "));
    let deadline = console.deadline().unwrap();
    assert_eq!(deadline, NOW.plus(PAUSE));
    console.tick(NOW);
    assert_eq!(out.text(), "");
    console.tick(deadline);
    assert_eq!((out.text().as_str(), console.deadline()), ("[node-a:1] ready? \n", None));
    console.observe(deadline, &output(0, Stream::Stderr, b"no end"));
    console.observe(deadline, &Event::Ended { rank: Rank(0), end: End::Exited(0) });
    console.observe(deadline, &Event::Finished { outcome: Outcome::Success });
    assert_eq!(out.text(), "[node-a:1] ready? \n[node-a:0] no end\n");
}

#[test]
fn a_colour_that_a_rank_leaves_on_ends_with_its_line() {
    let plan = plan(Path::new("/nowhere"), 1);
    let out = Shared::default();
    let mut console = Console::new(&plan, 0, out.given(true), None);
    console.observe(NOW, &output(0, Stream::Stdout, b"\x1b[31mred\nplain\n"));
    assert_eq!(out.text(), "\x1b[36m[node-a:0]\x1b[0m \x1b[31mred\x1b[0m\n\x1b[36m[node-a:0]\x1b[0m plain\n");
}
