//! The run's files for programs: `events.ndjson` while it goes on, `report.json` at its end.
//!
//! `events.ndjson` has one object a line, each with `version`, `t` (seconds since the run's start, monotonic) and `event`:
//!
//! | event | further keys |
//! | --- | --- |
//! | `run` | `run_id`, `started_at` (wall clock in UTC at `t` = 0), `hosts`: `[{name, ranks: [first, last]}]` |
//! | `allocated` | `host` |
//! | `master-port` | `port` |
//! | `started` | `rank`, `host`, `pid` |
//! | `ended` | `rank`, `host`, `end` as in `report.json` |
//! | `stopping` | `cause` (`rank-failed`, `signal`, `host-lost`) with `rank`, `signaled` or `host`; `signal` that ranks get, `grace_s` |
//! | `killing` | `ranks` |
//! | `unkillable` | `ranks` that SIGKILL did not end in time; the run ends without them |
//! | `finished` | `outcome` as in `report.json`, `exit_code` |
//!
//! A reader passes over events and keys that it does not know. No byte of a rank's output is in it, no variable's value.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use fs_err::OpenOptions;
use serde_json::{Value, json};

use super::record::{EndRecord, Record, RunReport, VERSION};
use super::stream::EventStream;
use super::verdict::Verdict;
use super::words;
use crate::clock::Moment;
use crate::event::{Event, Rank, StopCause};
use crate::plan::{LaunchPlan, stamp};

/// Name of the stream of events in a run's folder.
pub(crate) const EVENTS: &str = "events.ndjson";
/// Name of the report in a run's folder.
pub(crate) const REPORT: &str = "report.json";

/// Writes `events.ndjson`.
#[derive(Debug)]
pub(crate) struct EventLog {
    stream: EventStream,
    trouble: Option<io::Error>,
}

impl EventLog {
    /// Begins the stream in the run's folder with its `run` line. `wall` is the wall clock at `start`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn create(plan: &LaunchPlan, start: Moment, wall: Duration) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(plan.run_dir.join(EVENTS))?;
        let mut log = Self { stream: EventStream::new(file, VERSION, start), trouble: None };
        let hosts: Vec<Value> = plan
            .hosts
            .iter()
            .map(|host| {
                let ranks: Vec<u32> =
                    [host.ranks.first(), host.ranks.last()].into_iter().flatten().map(|r| r.rank.0).collect();
                json!({ "name": host.name, "ranks": ranks })
            })
            .collect();
        log.line(start, "run", json!({ "run_id": plan.run_id, "started_at": stamp(wall), "hosts": hosts }));
        Ok(log)
    }

    /// Writes the event, if it is one for this file. `record` has seen it already.
    pub(crate) fn observe(&mut self, now: Moment, event: &Event<'_>, record: &Record) {
        let place = |rank: Rank| record.place(rank).0.to_owned();
        let (name, keys) = match event {
            Event::Allocated { host } => ("allocated", json!({ "host": record.host(*host) })),
            Event::MasterPort { port } => ("master-port", json!({ "port": port })),
            Event::Started { rank, pid } => ("started", json!({ "rank": rank.0, "host": place(*rank), "pid": pid })),
            Event::Ended { rank, end } => {
                ("ended", json!({ "rank": rank.0, "host": place(*rank), "end": EndRecord::from(*end) }))
            }
            Event::HostFailed { host, why } => ("host-failed", json!({ "host": record.host(*host), "why": why })),
            Event::Stopping { cause, signal, grace } => {
                let mut keys = json!({ "signal": words::signal(*signal), "grace_s": grace.as_secs_f64() });
                let (cause, key, value) = match cause {
                    StopCause::RankFailed(rank) => ("rank-failed", "rank", json!(rank.0)),
                    StopCause::Signal(number) => ("signal", "signaled", json!(words::signal(*number))),
                    StopCause::HostLost(host) => ("host-lost", "host", json!(record.host(*host))),
                };
                keys["cause"] = json!(cause);
                keys[key] = value;
                ("stopping", keys)
            }
            Event::Killing { ranks } => ("killing", numbers(ranks)),
            Event::Unkillable { ranks } => ("unkillable", numbers(ranks)),
            Event::Finished { outcome } => {
                let report = record.report(*outcome, 0);
                let exit_code = Verdict::of(*outcome).exit_code();
                ("finished", json!({ "outcome": report.outcome, "exit_code": exit_code }))
            }
            _ => return,
        };
        self.line(now, name, keys);
    }

    /// The trouble that ended the stream, to be told once.
    pub(crate) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    fn line(&mut self, now: Moment, name: &str, keys: Value) {
        if let Err(error) = self.stream.line(now, name, keys) {
            self.trouble = Some(error);
        }
    }
}

fn numbers(ranks: &[Rank]) -> Value {
    json!({ "ranks": ranks.iter().map(|rank| rank.0).collect::<Vec<_>>() })
}

/// The text of a value for people and programs: JSON with indentation and a final newline.
pub(crate) fn text(value: &impl serde::Serialize) -> String {
    // Only a map with keys that are no strings could fail, and there is none.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Writes a whole file of the run's folder: it is there in full or not at all.
///
/// # Errors
/// When it cannot be written or renamed.
pub(crate) fn write_whole(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".").suffix(name).permissions(readable()).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(folder.join(name)).map_err(|error| error.error)?;
    Ok(())
}

/// As any other file of a person's, not for the writer alone as temporary files are. The umask still takes its part.
fn readable() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

/// Writes `report.json`.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write_report(folder: &Path, report: &RunReport) -> io::Result<()> {
    write_whole(folder, REPORT, &text(report))
}
