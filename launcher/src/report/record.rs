//! What is known of a run: gathered from its events, and the JSON report at its end.
//!
//! `report.json` in the run's folder is the authority on how a run ended. It has no byte of a rank's output and no
//! value of a variable in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::verdict::Verdict;
use super::words;
use crate::clock::Moment;
use crate::event::{End, Event, HostIndex, Observer, Outcome, Rank, StartStep, Stream};
use crate::output::files;
use crate::plan::LaunchPlan;

/// Version of `report.json` and of each line of `events.ndjson`: grows when a field changes its meaning or goes away.
pub(crate) const VERSION: u32 = 1;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RunReport {
    /// [`VERSION`].
    pub version: u32,
    /// The run's id.
    pub run_id: String,
    /// The run's folder; bytes of a path that are no UTF-8 are shown as U+FFFD, here and below.
    pub run_dir: String,
    /// When it started, in UTC: `2026-11-30T14:23:05.118Z`.
    pub started_at: String,
    /// Seconds from its start to its end.
    pub elapsed_s: f64,
    /// How it ended.
    pub outcome: OutcomeRecord,
    /// What the launcher ended with, or what a shell shows for the signal that it died by.
    pub exit_code: u8,
    /// The port of rank 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u16>,
    /// Bytes of ranks that no file could take.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_log_bytes: u64,
    /// The ranks in their order.
    pub ranks: Vec<RankReport>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum OutcomeRecord {
    /// Every rank returned 0.
    Success,
    /// This rank failed first; how is in its own entry.
    RankFailed {
        /// The rank.
        rank: u32,
    },
    /// A signal to the launcher.
    Signaled {
        /// Its number.
        signal: i32,
        /// Its name.
        name: String,
    },
    /// A host was lost.
    HostLost {
        /// Its name.
        host: String,
    },
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RankReport {
    /// Its place in the run.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its place on its host.
    pub local_rank: u32,
    /// Its process id; none when it never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Seconds from the run's start to its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_s: Option<f64>,
    /// Seconds from the run's start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// How it ended; none when that was never seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<EndRecord>,
    /// The file with its standard output.
    pub stdout: String,
    /// The file with its standard error.
    pub stderr: String,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum EndRecord {
    /// It returned a code.
    Exited {
        /// Its own code, whatever the launcher made of it.
        code: u8,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// The signal's name.
        name: String,
        /// Whether it left a core file.
        core: bool,
    },
    /// It could not be started.
    NotStarted {
        /// What failed: `fork`, `folder` or `program`.
        step: &'static str,
        /// The `errno`.
        errno: i32,
        /// What it means.
        reason: String,
    },
    /// Its guard is gone, and it with it.
    Lost,
}

impl From<End> for EndRecord {
    fn from(end: End) -> Self {
        match end {
            End::Exited(code) => Self::Exited { code },
            End::Signaled { signal, core } => Self::Signaled { signal, name: words::signal(signal), core },
            End::NotStarted { step, errno } => {
                let step = match step {
                    StartStep::Fork => "fork",
                    StartStep::Folder => "folder",
                    StartStep::Program => "program",
                };
                Self::NotStarted { step, errno, reason: words::errno(errno) }
            }
            End::Lost => Self::Lost,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Gathers what happened.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    plan: &'a LaunchPlan,
    attempt: u32,
    start: Moment,
    /// Wall clock at the start, time since 1970.
    wall: Duration,
    last: Moment,
    master_port: Option<u16>,
    ranks: BTreeMap<Rank, RankRecord>,
    /// Why hosts failed.
    failed: BTreeMap<HostIndex, String>,
}

/// What is known of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankRecord {
    /// Its process id.
    pub pid: Option<u32>,
    /// When it started.
    pub started: Option<Moment>,
    /// When and how it ended.
    pub ended: Option<(Moment, End)>,
}

impl<'a> Record<'a> {
    /// A record of nothing yet. `wall` is the wall clock at `start`.
    pub(crate) fn new(plan: &'a LaunchPlan, attempt: u32, start: Moment, wall: Duration) -> Self {
        let (ranks, failed) = (BTreeMap::new(), BTreeMap::new());
        Self { plan, attempt, start, wall, last: start, master_port: plan.master_port, ranks, failed }
    }

    /// What is known of a rank.
    pub(crate) fn rank(&self, rank: Rank) -> RankRecord {
        self.ranks.get(&rank).copied().unwrap_or_default()
    }

    /// Whether any rank has run.
    pub(crate) fn has_started(&self) -> bool {
        self.ranks.values().any(|rank| rank.started.is_some())
    }

    /// The ranks that run.
    pub(crate) fn running(&self) -> Vec<Rank> {
        let runs = |record: &&RankRecord| record.started.is_some() && record.ended.is_none();
        self.ranks.iter().filter(|(_, record)| runs(record)).map(|(rank, _)| *rank).collect()
    }

    /// A rank's host and local rank.
    pub(crate) fn place(&self, rank: Rank) -> (&str, u32) {
        let hosts = self.plan.hosts.iter();
        let mut ranks = hosts.flat_map(|host| host.ranks.iter().map(|of| (of.rank, host.name.as_str(), of.local_rank)));
        ranks.find(|(of, ..)| *of == rank).map_or(("", 0), |(_, host, local_rank)| (host, local_rank))
    }

    /// A host's name.
    pub(crate) fn host(&self, host: HostIndex) -> &str {
        self.plan.hosts.get(host.0).map_or("", |host| host.name.as_str())
    }

    /// Why a host failed first, for people.
    pub(crate) fn failed(&self, host: HostIndex) -> Option<&str> {
        self.failed.get(&host).map(String::as_str)
    }

    /// Where a stream's bytes lie.
    pub(crate) fn log(&self, rank: Rank, stream: Stream) -> PathBuf {
        self.plan.rank_dir(rank, self.attempt).join(files::file_name(stream))
    }

    /// Time from the start to the last event.
    pub(crate) fn elapsed(&self) -> Duration {
        self.last.since(self.start)
    }

    /// The report.
    pub(crate) fn report(&self, outcome: Outcome, lost_log_bytes: u64) -> RunReport {
        let outcome_record = match outcome {
            Outcome::Success => OutcomeRecord::Success,
            Outcome::RankFailed { rank, .. } => OutcomeRecord::RankFailed { rank: rank.0 },
            Outcome::Signaled { signal, .. } => OutcomeRecord::Signaled { signal, name: words::signal(signal) },
            Outcome::HostLost { host } => OutcomeRecord::HostLost { host: self.host(host).to_owned() },
        };
        let since = |moment: Moment| seconds(moment.since(self.start));
        let ranks = self.plan.hosts.iter().flat_map(|host| host.ranks.iter().map(move |rank| (host, rank)));
        let ranks = ranks.map(|(host, rank)| {
            let known = self.rank(rank.rank);
            RankReport {
                rank: rank.rank.0,
                host: host.name.clone(),
                local_rank: rank.local_rank,
                pid: known.pid,
                started_s: known.started.map(since),
                ended_s: known.ended.map(|(moment, _)| since(moment)),
                end: known.ended.map(|(_, end)| end.into()),
                stdout: shown(&self.log(rank.rank, Stream::Stdout)),
                stderr: shown(&self.log(rank.rank, Stream::Stderr)),
            }
        });
        RunReport {
            version: VERSION,
            run_id: self.plan.run_id.clone(),
            run_dir: shown(&self.plan.run_dir),
            started_at: crate::plan::stamp(self.wall),
            elapsed_s: seconds(self.elapsed()),
            outcome: outcome_record,
            exit_code: Verdict::of(outcome).exit_code(),
            master_port: self.master_port,
            lost_log_bytes,
            ranks: ranks.collect(),
        }
    }
}

impl Observer for Record<'_> {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        self.last = now;
        match event {
            Event::MasterPort { port } => self.master_port = Some(*port),
            Event::Started { rank, pid } => {
                let entry = self.ranks.entry(*rank).or_default();
                entry.pid = Some(*pid);
                entry.started = Some(now);
            }
            Event::HostFailed { host, why } => {
                self.failed.entry(*host).or_insert_with(|| (*why).to_owned());
            }
            Event::Ended { rank, end } => self.ranks.entry(*rank).or_default().ended = Some((now, *end)),
            _ => {}
        }
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Seconds, to the microsecond.
pub(super) fn seconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e6
}
