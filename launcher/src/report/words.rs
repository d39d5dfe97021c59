//! How ends, signals, times and ranks read.
//!
//! Pure; shared by the console and the JSON report, so that both say the same.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::event::{End, Rank, StartStep};

/// A signal's name, such as `SIGTERM`; real-time signals have only their number.
pub(crate) fn signal(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// A system error's text without its number, such as `Permission denied`.
pub(crate) fn errno(number: i32) -> String {
    let text = io::Error::from_raw_os_error(number).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// How a rank ended, after its name: `exited with 3`.
pub(crate) fn end(end: End) -> String {
    match end {
        End::Exited(code) => format!("exited with {code}"),
        End::Signaled { signal: number, core } => {
            let core = if core { ", with a core file" } else { "" };
            format!("died by {}{core}", signal(number))
        }
        End::NotStarted { step, errno: number } => {
            let step = match step {
                StartStep::Fork => "there was no room for its process",
                StartStep::Folder => "its working folder cannot be entered",
                StartStep::Program => "its program cannot be executed",
            };
            format!("could not be started: {step}: {}", errno(number))
        }
        End::Lost => "was lost: the guard that was its parent is gone".to_owned(),
    }
}

/// A time span for people: `850 ms`, `12.3 s`, `4 min 12 s`, `3 h 2 min`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 if span.subsec_millis() == 0 => format!("{seconds} s"),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A number of bytes for people, in the largest binary unit of which there is one: `512 B`, `1.5 MiB`, `79.6 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() / 10).min(UNITS.len() as u32 - 1);
    let whole = 1_u64 << (10 * unit);
    let name = UNITS[unit as usize];
    // In tenths; what is a multiple of the unit has none.
    match (u128::from(bytes) * 10 / u128::from(whole)) as u64 {
        tenths if bytes.is_multiple_of(whole) || tenths >= 10_000 => format!("{} {name}", tenths / 10),
        tenths => format!("{}.{} {name}", tenths / 10, tenths % 10),
    }
}

/// `1 rank`, `4 ranks`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Ranks in their order with runs joined: `0-3, 7`.
pub(crate) fn ranks(ranks: &[Rank]) -> String {
    let mut numbers: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    numbers.sort_unstable();
    let parts: Vec<String> = numbers
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_in_its_own_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (40 << 30, "40 GiB"),
            ((80 << 30) - 1, "79.9 GiB"),
            (1 << 50, "1024 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert!(size(u64::MAX).ends_with(" TiB"));
    }

    #[test]
    fn spans_have_the_unit_that_matters() {
        let of = |millis| span(Duration::from_millis(millis));
        assert_eq!(of(850), "850 ms");
        assert_eq!(of(30_000), "30 s");
        assert_eq!(of(12_340), "12.3 s");
        assert_eq!(of(252_000), "4 min 12 s");
        assert_eq!(of(10_920_000), "3 h 2 min");
    }

    #[test]
    fn ranks_in_a_row_are_joined() {
        let of = |numbers: &[u32]| ranks(&numbers.iter().map(|number| Rank(*number)).collect::<Vec<_>>());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[5]), "5");
        assert_eq!(of(&[3, 0, 1, 2, 7]), "0-3, 7");
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal(11), "SIGSEGV");
        assert_eq!(signal(40), "signal 40");
    }
}
