//! What a person sees of a run: a line at its start, what is being ended and why, the first failure, a line at its end.
//!
//! All of it on stderr. Ranks' own lines are [`crate::output::console`]'s.

use std::collections::VecDeque;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use torchlift_schema::{Finding, exit_code};

use super::record::Record;
use super::verdict::{self, Verdict};
use super::words;
use crate::event::{End, Event, Outcome, Rank, StopCause, Stream};
use crate::output::Terminal;
use crate::output::terminal::visible;
use crate::plan::LaunchPlan;

/// Lines of a failed rank's stderr that are shown again.
const TAIL_LINES: usize = 20;
/// Bytes at the end of its file that are looked at for them.
const TAIL_BYTES: u64 = 32 * 1024;

/// Prints to stderr; one write a text, so that no rank's line comes in between.
pub(crate) fn print(text: &str) {
    // Whoever closed stderr does not want to read this.
    let _ = Terminal::stderr().write_all(text.as_bytes());
}

/// A warning for people, on one line.
pub(crate) fn warning(message: &str) -> String {
    format!("warning: {}\n", visible(message))
}

/// That a file may yet become what its envelope says, and for how long it is looked at again.
pub(crate) fn settling(finding: &Finding, patience: Duration) -> String {
    let file = finding.place.file.as_deref().unwrap_or_default();
    let host = finding.place.host.as_ref().map(|host| format!(" of host `{host}`")).unwrap_or_default();
    let seconds = patience.as_secs();
    let text = format!(
        "`{file}`{host} is not the file of its envelope; a network file system may show it as it was: looking again for up to {seconds} s"
    );
    format!("note: {}\n", visible(&text))
}

/// The line at the start.
pub(crate) fn start(plan: &LaunchPlan) -> String {
    let ranks = words::count(plan.world_size() as usize, "rank");
    let hosts: Vec<String> = plan
        .hosts
        .iter()
        .map(|host| {
            let ranks: Vec<Rank> = host.ranks.iter().map(|rank| rank.rank).collect();
            format!("`{}` {}", host.name, words::ranks(&ranks))
        })
        .collect();
    let count = words::count(plan.hosts.len(), "host");
    let (hosts, folder) = (hosts.join("; "), plan.run_dir.to_string_lossy());
    format!("run `{}`: {ranks} on {count} ({}), files in `{}`\n", plan.run_id, visible(&hosts), visible(&folder))
}

/// What to say of an event while the run goes on. `record` has seen it already.
pub(crate) fn progress(event: &Event<'_>, record: &Record) -> Option<String> {
    match event {
        Event::Stopping { cause, signal, grace } => {
            let running = record.running();
            let reason = match cause {
                StopCause::RankFailed(rank) => {
                    let end = record.rank(*rank).ended.map_or_else(|| "failed".to_owned(), |(_, end)| words::end(end));
                    format!("rank {} {end}", rank.0)
                }
                StopCause::Signal(number) => format!("got {}", words::signal(*number)),
                StopCause::HostLost(host) => format!("host `{}` is lost", visible(record.host(*host))),
            };
            if running.is_empty() {
                return None;
            }
            let count = words::count(running.len(), "rank");
            let name = words::signal(*signal);
            Some(format!("{reason}: {name} to {count}, SIGKILL after {}\n", words::span(*grace)))
        }
        Event::Killing { ranks } if !ranks.is_empty() => Some(format!("SIGKILL to {}\n", named(ranks))),
        Event::Unkillable { ranks } => {
            let what = if ranks.is_empty() { "something that ranks started".to_owned() } else { named(ranks) };
            Some(warning(&format!(
                "{what} cannot be killed: the system holds it, often in a dead file system or a driver"
            )))
        }
        _ => None,
    }
}

fn named(ranks: &[Rank]) -> String {
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, words::ranks(ranks))
}

/// The first failure; none when nothing failed.
///
/// A file that cannot be read shows no last lines.
pub(crate) fn failure(outcome: Outcome, record: &Record) -> Option<String> {
    match outcome {
        Outcome::RankFailed { rank, end } => Some(rank_failure(rank, end, record)),
        Outcome::HostLost { host } => {
            let name = visible(record.host(host));
            let why = record.failed(host).map(|why| format!(": {}", visible(why))).unwrap_or_default();
            Some(format!("error: host `{name}` was lost{why}\n"))
        }
        Outcome::Success | Outcome::Signaled { .. } => None,
    }
}

fn rank_failure(rank: Rank, end: End, record: &Record) -> String {
    let (host, local_rank) = record.place(rank);
    let host = visible(host);
    let known = record.rank(rank);
    let pid = known.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    let mut text =
        format!("error: rank {} on host `{host}` (local rank {local_rank}{pid}) {}\n", rank.0, words::end(end));
    if let End::Exited(code) = end
        && verdict::is_ours(code)
    {
        let ours = exit_code::RANK_USED_OUR_CODE;
        text.push_str(&format!("  {code} is a code of the launcher's own, so the run ends with {ours}\n"));
    }
    let path = record.log(rank, Stream::Stderr);
    let lines = tail(&path).unwrap_or_default();
    if lines.is_empty() {
        if known.started.is_some() {
            text.push_str(&format!(
                "  it wrote nothing to stderr; its stdout is in `{}`\n",
                visible(&record.log(rank, Stream::Stdout).to_string_lossy())
            ));
        }
        return text;
    }
    text.push_str(&format!("  its stderr ends so (all of it: `{}`):\n", visible(&path.to_string_lossy())));
    for line in lines {
        // A colour that the rank left on ends with its line.
        let reset = if line.contains('\x1b') { "\x1b[0m" } else { "" };
        text.push_str(&format!("  | {line}{reset}\n"));
    }
    text
}

/// The last lines of a file: what a progress bar drew over is left out.
fn tail(path: &Path) -> io::Result<Vec<String>> {
    let mut file = fs_err::File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: VecDeque<&str> = text.lines().collect();
    if start > 0 && lines.len() > 1 {
        // The first is the end of a longer one.
        lines.pop_front();
    }
    let skip = lines.len().saturating_sub(TAIL_LINES);
    let last_drawn = |line: &str| line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().to_owned();
    Ok(lines.into_iter().skip(skip).map(last_drawn).collect())
}

/// The line at the end.
pub(crate) fn end(outcome: Outcome, record: &Record, run_id: &str) -> String {
    let span = words::span(record.elapsed());
    match outcome {
        Outcome::Success => format!("run `{run_id}` succeeded after {span}\n"),
        Outcome::Signaled { signal, .. } => {
            format!("run `{run_id}` was ended by {} after {span}\n", words::signal(signal))
        }
        Outcome::RankFailed { .. } | Outcome::HostLost { .. } => {
            format!("run `{run_id}` failed after {span}, exit code {}\n", Verdict::of(outcome).exit_code())
        }
    }
}
