//! Events in, words out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::record::Record;
use super::{console, dry_run};
use crate::clock::Moment;
use crate::event::{End, Event, HostIndex, Observer, Outcome, Rank, StartStep, StopCause, Stream};
use crate::output::LogFiles;
use crate::plan::{HostPlan, LaunchPlan, RankPlan};

fn plan(run_dir: &Path) -> LaunchPlan {
    let host = |name: &str, first: u32| HostPlan {
        name: name.to_owned(),
        program: "/bin/true".into(),
        args: Vec::new(),
        cwd: "/".into(),
        env: BTreeMap::new(),
        ranks: (0..2)
            .map(|local_rank| RankPlan { rank: Rank(first + local_rank), local_rank, env: BTreeMap::new() })
            .collect(),
    };
    LaunchPlan {
        run_id: "run-1".to_owned(),
        run_dir: run_dir.to_owned(),
        master_addr: "127.0.0.1".to_owned(),
        master_port: None,
        grace: Duration::from_secs(30),
        hosts: vec![host("node-a", 0), host("node-b", 2)],
    }
}

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

/// What a person sees of these events, but for ranks' own lines.
fn told(plan: &LaunchPlan, events: &[(u64, Event<'_>)], outcome: Outcome) -> String {
    let mut record = Record::new(plan, 0, at(0), Duration::ZERO);
    let mut text = console::start(plan);
    for (millis, event) in events {
        record.observe(at(*millis), event);
        text.push_str(&console::progress(event, &record).unwrap_or_default());
    }
    text.push_str(&console::failure(outcome, &record).unwrap_or_default());
    text + &console::end(outcome, &record, &plan.run_id)
}

fn started(rank: u32) -> (u64, Event<'static>) {
    (10, Event::Started { rank: Rank(rank), pid: 4_711 + rank })
}

#[test]
fn a_failure_is_told_with_its_place_and_its_last_lines() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(folder.path());
    let mut files = LogFiles::create(&plan, 0).unwrap();
    let bytes = b"warming up\r10%\r20%\nno such \xb1 file\n";
    files.observe(at(0), &Event::Output { rank: Rank(3), stream: Stream::Stderr, bytes });
    let end = End::Exited(3);
    let mut events: Vec<_> = (0..4).map(started).collect();
    events.push((2_000, Event::Ended { rank: Rank(3), end }));
    let cause = StopCause::RankFailed(Rank(3));
    events.push((2_000, Event::Stopping { cause, signal: 15, grace: plan.grace }));
    events.push((32_000, Event::Killing { ranks: &[Rank(0), Rank(1)] }));
    let text = told(&plan, &events, Outcome::RankFailed { rank: Rank(3), end });
    let text = text.replace(&folder.path().display().to_string(), "RUN");
    insta::assert_snapshot!(text, @r"
    run `run-1`: 4 ranks on 2 hosts (`node-a` 0-1; `node-b` 2-3), files in `RUN`
    rank 3 exited with 3: SIGTERM to 3 ranks, SIGKILL after 30 s
    SIGKILL to ranks 0-1
    error: rank 3 on host `node-b` (local rank 1, pid 4714) exited with 3
      its stderr ends so (all of it: `RUN/attempt-0/3/stderr.log`):
      | 20%
      | no such � file
    run `run-1` failed after 32 s, exit code 3
    ");
}

#[test]
fn a_signal_is_no_failure_of_a_rank() {
    let plan = plan(Path::new("/runs/run-1"));
    let mut events: Vec<_> = (0..4).map(started).collect();
    events.push((61_000, Event::Stopping { cause: StopCause::Signal(2), signal: 2, grace: plan.grace }));
    events.push((61_500, Event::Ended { rank: Rank(0), end: End::Signaled { signal: 2, core: false } }));
    let text = told(&plan, &events, Outcome::Signaled { signal: 2, ranks_ran: true });
    insta::assert_snapshot!(text, @r"
    run `run-1`: 4 ranks on 2 hosts (`node-a` 0-1; `node-b` 2-3), files in `/runs/run-1`
    got SIGINT: SIGINT to 4 ranks, SIGKILL after 30 s
    run `run-1` was ended by SIGINT after 1 min 1 s
    ");
}

#[test]
fn a_rank_that_could_not_start_says_what_failed() {
    let plan = plan(Path::new("/runs/run-1"));
    let end = End::NotStarted { step: StartStep::Program, errno: 13 };
    let events = [(5, Event::Ended { rank: Rank(0), end })];
    let text = told(&plan, &events, Outcome::RankFailed { rank: Rank(0), end });
    insta::assert_snapshot!(text, @r"
    run `run-1`: 4 ranks on 2 hosts (`node-a` 0-1; `node-b` 2-3), files in `/runs/run-1`
    error: rank 0 on host `node-a` (local rank 0) could not be started: its program cannot be executed: Permission denied
    run `run-1` failed after 5 ms, exit code 203
    ");
}

#[test]
fn a_lost_host_is_named() {
    let plan = plan(Path::new("/runs/run-1"));
    let text = told(&plan, &[], Outcome::HostLost { host: HostIndex(1) });
    assert!(text.contains("error: host `node-b` was lost"), "{text}");
    assert!(text.contains("exit code 206"), "{text}");
}

#[test]
fn words_for_a_shell_are_quoted_so_that_they_come_back() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    for (word, quoted) in [
        (&b"plain-1.0/x"[..], "plain-1.0/x"),
        (b"", "''"),
        (b"a b", "'a b'"),
        (b"caf\xc3\xa9", "'caf\u{e9}'"),
        (b"one\ntwo", r"$'one\ntwo'"),
        (b"it's\x1b[0m\\", r"$'it\'s\033[0m\\'"),
        (b"\xb1x", r"$'\261x'"),
    ] {
        assert_eq!(dry_run::quote(OsStr::from_bytes(word)), quoted);
    }
}
