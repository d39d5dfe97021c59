//! How many files this process may have open.
//!
//! A rank costs the launcher two pipe ends; a soft limit of 1024 is soon used up.
//! The launcher raises its own soft limit; ranks get the original one, because programs that use `select` or close every
//! descriptor up to the limit depend on it.

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Open files that one rank costs the launcher: the read ends of its pipes.
const PIPES: u64 = 2;
/// Log files that whoever observes a run keeps open, at most: room for them is made with the rest.
pub(crate) const LOG_FILES: usize = 128;
/// Log files that one rank may have.
const LOGS: u64 = 2;
/// Open files that one host costs: its guard's socket and its pidfd.
const PER_HOST: u64 = 2;
/// Room for what is open for a moment: the ends of pipes on their way to a guard, /proc, the console, the report.
const RESERVE: u64 = 64;

/// The hard limit is below what the run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFewFiles {
    /// Open files that the run needs.
    pub(crate) needed: u64,
    /// Open files that the hard limit allows.
    pub(crate) hard: u64,
}

/// The soft limit, which ranks get: to be asked for before the first room is made.
pub(crate) fn soft() -> nix::Result<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft)
}

/// Makes sure that this many hosts and ranks fit.
pub(crate) fn make_room(hosts: usize, ranks: u32) -> nix::Result<Result<(), TooFewFiles>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = needed(hosts, ranks);
    match plan(needed, soft, hard) {
        Err(too_few) => Ok(Err(too_few)),
        Ok(wanted) => {
            if wanted > soft {
                setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
            }
            Ok(Ok(()))
        }
    }
}

/// Open files that this many hosts and ranks take, with those that are open now.
fn needed(hosts: usize, ranks: u32) -> u64 {
    open_now() + for_ranks(u64::from(ranks)) + PER_HOST * hosts as u64 + RESERVE
}

/// Whether this many hosts and ranks would fit; changes nothing.
pub(crate) fn check(hosts: usize, ranks: u32) -> Result<(), TooFewFiles> {
    // A limit that cannot be read is told when it is needed.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    plan(needed(hosts, ranks), soft, hard).map(drop)
}

fn for_ranks(ranks: u64) -> u64 {
    PIPES * ranks + (LOGS * ranks).min(LOG_FILES as u64)
}

/// The soft limit to have.
fn plan(needed: u64, soft: rlim_t, hard: rlim_t) -> Result<rlim_t, TooFewFiles> {
    if needed > hard { Err(TooFewFiles { needed, hard }) } else { Ok(soft.max(needed)) }
}

fn open_now() -> u64 {
    fs_err::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_rises_to_what_is_needed_and_never_falls() {
        assert_eq!(plan(500, 256, 4096), Ok(500));
        assert_eq!(plan(100, 256, 4096), Ok(256));
    }

    #[test]
    fn many_ranks_need_no_more_log_files_than_are_kept_open() {
        assert_eq!(for_ranks(3), 12);
        assert_eq!(for_ranks(1000), 2128);
    }

    #[test]
    fn a_hard_limit_below_the_need_is_refused_with_both_numbers() {
        assert_eq!(plan(5000, 256, 4096), Err(TooFewFiles { needed: 5000, hard: 4096 }));
    }
}
