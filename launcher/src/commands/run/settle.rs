//! Files of a network file system that are not yet what their envelope says: they are looked at again for a while.
//!
//! A client of such a file system may show a file as it was before it was replaced, until what it remembers of it is too
//! old. To open the file again asks the server. What lies on a disk of this machine is what it is, and is not waited for.

use std::path::Path;
use std::time::Duration;

use nix::sys::statfs::statfs;
use torchlift_schema::Finding;

use crate::clock::{self, Clock};
use crate::preflight::code;

/// How long a client may show what it remembers: `acdirmax`, the longest default of nfs(5).
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The first look comes after this; each further one after twice the time, until [`LONGEST`].
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(8);

/// Types of file systems that another machine serves, as statfs(2) has them: AFS, BeeGFS, Ceph, CIFS, Coda, FUSE (sshfs,
/// GlusterFS, S3, and what else is no disk), GPFS, Lustre, NFS, PanFS, SMB, SMB2, 9P, Weka.
const NETWORK: [u32; 14] = [
    0x5346_414F,
    0x1983_0326,
    0x00C3_6400,
    0xFF53_4D42,
    0x7375_7245,
    0x6573_5546,
    0x4750_4653,
    0x0BD0_0BD0,
    0x0000_6969,
    0xAAD7_AAEA,
    0x0000_517B,
    0xFE53_4D42,
    0x0102_1997,
    0x1803_1977,
];

/// Makes a check, and makes it again while all that stops a run is files of a network file system that are not those of
/// their envelope; `tell` is told once that it waits.
pub(super) fn check(check: impl FnMut() -> Vec<Finding>, tell: impl FnOnce(&Finding)) -> Vec<Finding> {
    let clock = Clock::start();
    let began = clock.now();
    until_settled(check, is_on_network, tell, |pause| {
        let left = PATIENCE.saturating_sub(clock.now().since(began));
        clock::pause(pause.min(left));
        !left.is_zero()
    })
}

/// `pause` lets time pass, and says whether there was any left.
fn until_settled(
    mut check: impl FnMut() -> Vec<Finding>,
    is_on_network: impl Fn(&Path) -> bool,
    tell: impl FnOnce(&Finding),
    mut pause: impl FnMut(Duration) -> bool,
) -> Vec<Finding> {
    let mut findings = check();
    let mut tell = Some(tell);
    let mut time = FIRST;
    while let Some(finding) = unsettled(&findings, &is_on_network) {
        if let Some(tell) = tell.take() {
            tell(finding);
        }
        if !pause(time) {
            break;
        }
        time = (time * 2).min(LONGEST);
        findings = check();
    }
    findings
}

/// The first file that may yet change, unless something else stops the run, which no time mends.
fn unsettled(findings: &[Finding], is_on_network: impl Fn(&Path) -> bool) -> Option<&Finding> {
    let may_settle = |finding: &&Finding| {
        let is_changed = [code::PROGRAM_CHANGED, code::LIBRARY_CHANGED].contains(&finding.code.as_str());
        is_changed && finding.place.file.as_ref().is_some_and(|file| is_on_network(Path::new(file)))
    };
    let errors = || findings.iter().filter(|finding| finding.is_error());
    if errors().all(|finding| may_settle(&finding)) { errors().next() } else { None }
}

fn is_on_network(file: &Path) -> bool {
    // The word is of another width on each architecture, and the types have 32 bits.
    statfs(file).is_ok_and(|system| NETWORK.contains(&(system.filesystem_type().0 as u32)))
}

#[cfg(test)]
mod tests {
    use torchlift_schema::Place;

    use super::*;

    fn changed(file: &str) -> Finding {
        Finding::error(code::PROGRAM_CHANGED, Place::file(file), "another file")
    }

    /// Checks that find `rounds` one after the other, and no time is left after `pauses`: what is found, how often it was
    /// looked, and how often it was told.
    fn looked(rounds: &[Vec<Finding>], pauses: usize) -> (Vec<Finding>, usize, usize) {
        let (mut looks, mut told, mut left) = (0, 0, pauses);
        let check = || {
            looks += 1;
            rounds[(looks - 1).min(rounds.len() - 1)].clone()
        };
        let pause = |_| {
            let is_left = left > 0;
            left = left.saturating_sub(1);
            is_left
        };
        let findings = until_settled(check, |file| file.starts_with("/net"), |_| told += 1, pause);
        (findings, looks, told)
    }

    #[test]
    fn a_file_that_a_network_file_system_still_shows_as_it_was_is_looked_at_again() {
        let old = vec![changed("/net/train")];
        assert_eq!(looked(&[old.clone(), old.clone(), Vec::new()], 9), (Vec::new(), 3, 1));
        assert_eq!(looked(std::slice::from_ref(&old), 4), (old.clone(), 5, 1), "and is refused when the time is over");
    }

    #[test]
    fn a_file_of_this_machine_is_refused_at_once_and_so_is_a_run_that_something_else_stops() {
        let here = vec![changed("/disk/train")];
        assert_eq!(looked(&[here.clone(), Vec::new()], 9), (here, 1, 0));
        let missing = Finding::error(code::LIBRARY_MISSING, Place::file("/net/train"), "gone");
        let both = vec![changed("/net/train"), missing];
        assert_eq!(looked(&[both.clone(), Vec::new()], 9), (both, 1, 0));
        let warning = Finding::warning(code::PROGRAM_CHANGED, Place::file("/net/train"), "accepted");
        assert_eq!(looked(&[vec![warning.clone()], Vec::new()], 9), (vec![warning], 1, 0));
    }

    #[test]
    fn the_file_system_of_a_folder_of_this_machine_is_no_network() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_on_network(folder.path()));
        assert!(!is_on_network(Path::new("/not/there")));
    }
}
