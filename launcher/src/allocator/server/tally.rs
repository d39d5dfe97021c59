//! What an allocator has counted since it began, and how it is told to those who collect numbers.
//!
//! Counts what is told to clients, so that both always agree. The text is that of Prometheus, version 0.0.4: a well-known form
//! that needs no library.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::state::{ProcState, ProcStopReason};

use crate::allocator::state::Reply;

/// How ranks end.
const REASONS: [&str; 5] = ["stopped", "exited", "killed", "watchdog", "unknown"];
/// What becomes of allocations: every rank returned 0, one did not, it failed as a whole; or there was none.
const OUTCOMES: [&str; 5] = ["clean", "unclean", "failed", "busy", "refused"];

/// Counts of one life of an allocator.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    created: u64,
    ended: BTreeMap<&'static str, u64>,
    allocations: BTreeMap<&'static str, u64>,
}

/// How one allocation has gone so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    has_failed: bool,
    is_unclean: bool,
}

/// Connections, which others count.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    open: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    pub(super) fn new() -> Self {
        // A series that is there from the beginning shows its first event as one.
        let zero = |names: [&'static str; 5]| names.into_iter().map(|name| (name, 0)).collect();
        Self { created: 0, ended: zero(REASONS), allocations: zero(OUTCOMES) }
    }

    /// A client is told this of an allocation.
    pub(super) fn told(&mut self, course: &mut Course, message: &Told) {
        match message {
            Told::Update(ProcState::Created { .. }) => self.created += 1,
            Told::Update(ProcState::Stopped { reason, .. }) => {
                course.is_unclean |= *reason != ProcStopReason::Stopped;
                let reason = match reason {
                    ProcStopReason::Stopped => "stopped",
                    ProcStopReason::Exited(..) => "exited",
                    ProcStopReason::Killed(..) => "killed",
                    ProcStopReason::Watchdog => "watchdog",
                    _ => "unknown",
                };
                *self.ended.entry(reason).or_default() += 1;
            }
            Told::Update(ProcState::Failed { .. }) => course.has_failed = true,
            Told::Done(_) => {
                let outcome = match course {
                    Course { has_failed: true, .. } => "failed",
                    Course { is_unclean: true, .. } => "unclean",
                    _ => "clean",
                };
                *self.allocations.entry(outcome).or_default() += 1;
            }
            _ => {}
        }
    }

    /// A message is answered so.
    pub(super) fn answered(&mut self, reply: &Reply) {
        let outcome = match reply {
            Reply::Busy { .. } => "busy",
            Reply::Refused(_) => "refused",
            _ => return,
        };
        *self.allocations.entry(outcome).or_default() += 1;
    }

    /// All of it, for Prometheus.
    pub(super) fn text(&self, incarnation: &str, held: usize, traffic: &Traffic) -> String {
        let ended: u64 = self.ended.values().sum();
        let mut text = String::new();
        let life = [("incarnation", incarnation), ("version", env!("CARGO_PKG_VERSION"))];
        write(&mut text, "torchlift_allocator_info", "gauge", "Which life of the allocator this is.", &[(&life, 1)]);
        write(&mut text, "torchlift_allocations_held", "gauge", "Allocations that are held.", &[(&[], held as u64)]);
        let by = |label: &'static str,
                  counts: &BTreeMap<&'static str, u64>|
         -> Vec<([(&'static str, &'static str); 1], u64)> {
            counts.iter().map(|(name, count)| ([(label, *name)], *count)).collect()
        };
        let outcomes = by("outcome", &self.allocations);
        let help = "Allocations that are over, and those that were not given.";
        write(&mut text, "torchlift_allocations_total", "counter", help, &borrowed(&outcomes));
        let alive = self.created.saturating_sub(ended);
        write(
            &mut text,
            "torchlift_ranks_alive",
            "gauge",
            "Ranks that were started and have not ended.",
            &[(&[], alive)],
        );
        write(
            &mut text,
            "torchlift_ranks_started_total",
            "counter",
            "Ranks that were started.",
            &[(&[], self.created)],
        );
        let reasons = by("reason", &self.ended);
        write(&mut text, "torchlift_ranks_ended_total", "counter", "Ranks that ended, by how.", &borrowed(&reasons));
        let open = traffic.open.load(Ordering::Relaxed);
        write(&mut text, "torchlift_connections", "gauge", "Connections that are open.", &[(&[], open)]);
        let refused = traffic.refused.load(Ordering::Relaxed);
        let help = "Connections whose handshake came to nothing.";
        write(&mut text, "torchlift_connections_refused_total", "counter", help, &[(&[], refused)]);
        text
    }
}

impl Traffic {
    /// Counts a connection for as long as what this gives lives.
    pub(crate) fn open(&self) -> impl Drop + '_ {
        struct Open<'a>(&'a AtomicU64);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(&self.open)
    }

    /// Counts one that came to nothing.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A value with its labels.
type Sample<'a> = (&'a [(&'a str, &'a str)], u64);

fn borrowed<'a>(samples: &'a [([(&'static str, &'static str); 1], u64)]) -> Vec<Sample<'a>> {
    samples.iter().map(|(labels, value)| (labels.as_slice(), *value)).collect()
}

fn write(text: &mut String, name: &str, kind: &str, help: &str, samples: &[Sample<'_>]) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_itself() {
        let mut text = String::new();
        write(&mut text, "a", "gauge", "Help.", &[(&[("b", "c\"} 1\n\\")], 2), (&[], 3)]);
        assert_eq!(text, "# HELP a Help.\n# TYPE a gauge\na{b=\"c\\\"} 1\\n\\\\\"} 2\na 3\n");
    }
}
