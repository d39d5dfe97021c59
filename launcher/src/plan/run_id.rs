//! Names of runs: readable, sorted by their start, and not the same for two that start at once.

use std::time::Duration;

/// A run's id such as `20261130-142305.118-4711`: the time in UTC to the millisecond and the launcher's process id.
///
/// Two launchers of one machine differ in the process id. Machines that share a folder of runs may still meet:
/// whoever makes the folder makes it exclusively.
pub fn run_id(wall: Duration, pid: u32) -> String {
    let seconds = wall.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = wall.subsec_millis();
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{millis:03}-{pid}")
}

/// A stamp such as `2026-11-30T14:23:05.118Z`.
pub fn stamp(wall: Duration) -> String {
    let seconds = wall.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", wall.subsec_millis())
}

/// Year, month and day of a day since 1970 in the Gregorian calendar.
///
/// Counted from the first of March of year 0, so that the leap day is the last of a year: then a month's first day is
/// linear in its number (153 days every five months), and a year's in eras of 400 years with 146,097 days.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Whole days from a stamp in the form of `stamp` to `wall`; none for another text, and for a time to come.
pub fn days_since(stamp: &str, wall: Duration) -> Option<u64> {
    Some(wall.as_secs().checked_sub(seconds_of(stamp)?)? / 86_400)
}

/// Whole seconds since 1970 of a stamp in the form of `stamp`; none for another text.
pub fn seconds_of(stamp: &str) -> Option<u64> {
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(str::parse::<u64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut time = time.split(':').map(|part| part.split('.').next().unwrap_or(part).parse::<u64>());
    let (hour, minute, second) = (time.next()?.ok()?, time.next()?.ok()?, time.next()?.ok()?);
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = hour < 24 && minute < 60 && second < 61;
    if !is_date || !is_time {
        return None;
    }
    Some(day_number(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days since 1970 of a date: the other way round as [`civil`].
fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let year_from_march = if month > 2 { year } else { year - 1 };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leaps = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    (365 * year_from_march + leaps + day_of_year).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_right_around_leap_days_and_ends_of_years() {
        // Seconds by `date -u -d … +%s`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(stamp(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_stamp_is_as_many_days_ago_as_it_says() {
        for day in (0..60_000).step_by(7).chain([11_016, 11_017, 19_781, 19_782]) {
            let wall = Duration::from_secs(day * 86_400 + 3_723);
            assert_eq!(days_since(&stamp(wall), wall + Duration::from_secs(86_400 * 91 - 1)), Some(90), "{day}");
            assert_eq!(days_since(&stamp(wall), wall), Some(0), "{day}");
        }
        let now = Duration::from_secs(1_796_048_585);
        assert_eq!(days_since("2026-11-30T14:23:06Z", now), None, "a time to come");
        for wrong in [
            "",
            "2026-11-30",
            "2026-13-30T14:23:05Z",
            "2026-11-30T24:23:05Z",
            "x-11-30T14:23:05Z",
            "1969-01-01T00:00:00Z",
        ] {
            assert_eq!(days_since(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn ids_sort_by_their_start_and_differ_by_process() {
        let at = |millis: u64| Duration::from_millis(1_796_048_585_000 + millis);
        let ids = [run_id(at(118), 7), run_id(at(119), 5), run_id(at(1_118), 7)];
        assert_eq!(ids[0], "20261130-142305.118-7");
        assert!(ids.is_sorted());
        assert_ne!(run_id(at(0), 7), run_id(at(0), 8));
    }
}
