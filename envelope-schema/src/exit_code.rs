//! Exit codes: the one place where they are named.
//!
//! A run ends with the first failing rank's own code, or 128 + signal. What is ours lies in 200..=219, but for [`REFUSED`].

/// Everything ended well.
pub const OK: u8 = 0;
/// This machine refused something that nobody asked for in so many words and that nothing goes on without: open files, room on
/// a disk, a folder that may be written to. None of the codes below says so; it is what any program ends with then.
pub const REFUSED: u8 = 1;
/// The command line was wrong (clap's 2 becomes this).
pub const USAGE: u8 = 200;
/// The cluster file was wrong.
pub const CLUSTER_FILE: u8 = 201;
/// A build failed, or could not be started.
pub const BUILD: u8 = 202;
/// A binary or its libraries would not load on a host.
pub const VERIFY: u8 = 203;
/// A host could not be reached.
pub const UNREACHABLE: u8 = 204;
/// A file is not the one that the envelope names.
pub const INTEGRITY: u8 = 205;
/// A host was lost during the run.
pub const LOST_HOST: u8 = 206;
/// A time limit ended the run.
pub const TIMED_OUT: u8 = 207;
/// Interrupted before any rank ran.
pub const INTERRUPTED: u8 = 208;
/// A rank returned a code of ours; the real one is printed and in the report.
pub const RANK_USED_OUR_CODE: u8 = 219;

/// Every code of ours with its meaning, for docs and tests.
pub const TABLE: &[(u8, &str)] = &[
    (REFUSED, "this machine refused open files, room on a disk, or a folder to write to"),
    (USAGE, "usage: the command line was wrong"),
    (CLUSTER_FILE, "the cluster file was wrong"),
    (BUILD, "a build failed, or could not be started"),
    (VERIFY, "a binary or its libraries would not load on a host"),
    (UNREACHABLE, "a host could not be reached"),
    (INTEGRITY, "a file is not the one that the envelope names"),
    (LOST_HOST, "a host was lost during the run"),
    (TIMED_OUT, "a time limit ended the run"),
    (INTERRUPTED, "interrupted before any rank ran"),
    (RANK_USED_OUR_CODE, "a rank returned a code of ours"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Name and number of every constant of this file.
    fn constants() -> Vec<(&'static str, u8)> {
        include_str!("exit_code.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("pub const ")?.split_once(": u8 = "))
            .map(|(name, number)| (name, number.trim_end_matches(';').parse().unwrap()))
            .collect()
    }

    #[test]
    fn the_table_has_every_code_of_ours_once() {
        let wanted: Vec<u8> = constants().into_iter().filter(|(name, _)| *name != "OK").map(|(_, code)| code).collect();
        let found: Vec<u8> = TABLE.iter().map(|(code, _)| *code).collect();
        assert_eq!(found, wanted);
        assert!(wanted.len() >= 10);
    }

    #[test]
    fn no_two_codes_and_no_two_meanings_are_the_same() {
        let codes: BTreeSet<u8> = constants().into_iter().map(|(_, code)| code).collect();
        assert_eq!(codes.len(), constants().len());
        let meanings: BTreeSet<&str> = TABLE.iter().map(|(_, meaning)| *meaning).collect();
        assert_eq!(meanings.len(), TABLE.len());
    }

    #[test]
    fn codes_of_ours_are_no_signals_and_no_common_ones() {
        assert_eq!(OK, 0);
        assert_eq!(REFUSED, 1);
        let mut ours = TABLE.iter().filter(|(code, _)| *code != REFUSED);
        assert!(ours.all(|(code, meaning)| (200..=219).contains(code) && !meaning.is_empty()));
    }
}
