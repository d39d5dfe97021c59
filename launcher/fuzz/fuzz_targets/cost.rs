//! What one input may cost in memory and time.
//!
//! libFuzzer's own limit on memory is looked at once a second, and lays the blame on whichever input is read then; its
//! limit on time counts what other programs of the machine take. Both are asked here right behind the reader, so that the
//! input that is kept is the one that did it.

use std::time::Duration;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// MiB by which one input of at most 64 KiB may raise the most that this process ever had. The limits of the readers add
/// up to about 60: 4096 names of 4096 bytes, each of which may be written as a replacement character of three.
const MAX_GROWTH: i64 = 128;
/// Time on a processor that one input may take, counters and all; what was found so far takes milliseconds.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Runs `read`.
///
/// # Panics
/// When it took more than an input may.
pub fn bounded(read: impl FnOnce()) {
    let before = usage();
    read();
    let after = usage();
    // The kernel counts in KiB.
    let grown = (after.max_rss() - before.max_rss()) / 1024;
    assert!(grown <= MAX_GROWTH, "one input took {grown} MiB, and may take {MAX_GROWTH}");
    let taken = time(&after).saturating_sub(time(&before));
    assert!(taken <= MAX_TIME, "one input took {taken:?}, and may take {MAX_TIME:?}");
}

fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask for its own usage")
}

fn time(usage: &Usage) -> Duration {
    let micros =
        |time: TimeVal| Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0));
    micros(usage.user_time()) + micros(usage.system_time())
}
