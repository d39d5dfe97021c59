//! What is right with a folder of keys and what is not: ends that come near, files that others can read, commands that did not
//! come to their end.
//!
//! Owns the findings `keys-…`. It reads the index and the modes of files and no certificate, so that the doctor needs no
//! cryptography; what a certificate says is looked at where it is used. Must not change anything.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift_schema::{Finding, Place};

use super::disk;
use super::error::KeysError;
use super::index::{DAY, Duty, Holds, Index, Issued, Stamp};
use super::place;
use super::role::RoleKind;
use crate::report::words;

/// An end is told this long ahead: time to issue anew and to carry that to all hosts. Days.
pub const WARN_DAYS: u64 = 30;

/// What there is in a folder of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// No keys.
    Absent,
    /// Keys, with all that is wrong or doubtful.
    There {
        /// What there is.
        index: Index,
        /// What is wrong or doubtful with it.
        findings: Vec<Finding>,
    },
    /// No index that can be read.
    Unusable(Vec<Finding>),
}

/// Looks at a folder of keys.
pub fn look(folder: &Path, now: Duration) -> Looked {
    match disk::read_index(folder) {
        Ok(None) => Looked::Absent,
        Ok(Some(index)) => {
            let mut findings = of_files(folder, &index);
            findings.extend(of_dates(folder, &index, now));
            findings.extend(of_changes(folder, &index));
            Looked::There { index, findings }
        }
        Err(error) => Looked::Unusable(vec![unusable(folder, &error)]),
    }
}

fn unusable(folder: &Path, error: &KeysError) -> Finding {
    let place = Place::file(folder.join(place::INDEX).display().to_string());
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    Finding::error("keys-index", place, message).remedy(error.hint())
}

/// What there is in a few words: `the authority of 2 hosts and 1 client; the next to expire is host `a`, on 2027-11-30`.
pub fn summary(index: &Index) -> String {
    let current: Vec<&Issued> = index.issued.iter().filter(|entry| entry.is_current()).collect();
    let count = |kind: RoleKind| current.iter().filter(|entry| entry.role == kind).count();
    let next = current.iter().min_by_key(|entry| entry.not_after);
    match (index.holds, next) {
        (Holds::Authority, Some(next)) => format!(
            "the authority of {} and {}; the next to expire is {} `{}`, on {}",
            words::count(count(RoleKind::Host), "host"),
            words::count(count(RoleKind::Client), "client"),
            next.role.word(),
            next.name,
            next.not_after.day()
        ),
        (Holds::Authority, None) => "an authority that has issued nothing yet".to_owned(),
        (Holds::Certificate, Some(own)) => {
            format!("the certificate of {} `{}`, until {}", own.role.word(), own.name, own.not_after.day())
        }
        (Holds::Certificate, None) => "no certificate".to_owned(),
    }
}

/// What a file or folder of keys must not allow to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// Has a private key: nobody else reads it.
    Secret,
    /// Has the one that issues all others: nobody else reads it.
    Authority,
    /// Says who is trusted: nobody else writes it.
    Trust,
    /// A folder: nobody else changes what is in it.
    Folder,
}

/// Everything that an index says is there.
fn files(folder: &Path, index: &Index) -> Vec<(PathBuf, Nature)> {
    let mut files = vec![(folder.to_owned(), Nature::Folder)];
    let public = |files: &mut Vec<_>, folder: &Path| {
        for name in [place::INDEX, place::TRUST, place::REVOKED] {
            files.push((folder.join(name), Nature::Trust));
        }
    };
    public(&mut files, folder);
    if index.holds == Holds::Certificate {
        files.push((folder.join(place::IDENTITY), Nature::Secret));
        return files;
    }
    files.push((folder.join(place::AUTHORITY), Nature::Folder));
    files.extend(index.authorities.iter().map(|entry| (place::authority(folder, &entry.id), Nature::Authority)));
    for role in index.issued.iter().filter(|entry| entry.is_current()).filter_map(|entry| entry.role().ok()) {
        let own = place::issued(folder, &role);
        // What was carried away and removed here is where it should be.
        if own.is_dir() {
            files.push((own.clone(), Nature::Folder));
            public(&mut files, &own);
            files.push((own.join(place::IDENTITY), Nature::Secret));
        }
    }
    files
}

/// What is wrong with the files that an index says are there: gone, or open to others.
pub(super) fn of_files(folder: &Path, index: &Index) -> Vec<Finding> {
    files(folder, index).into_iter().filter_map(|(path, nature)| of_file(&path, nature, index.holds)).collect()
}

/// What is wrong with a folder in which keys are to be made.
#[cfg(feature = "net")]
pub(super) fn of_folder(folder: &Path) -> Option<Finding> {
    of_file(folder, Nature::Folder, Holds::Authority)
}

fn of_file(path: &Path, nature: Nature, holds: Holds) -> Option<Finding> {
    let place = Place::file(path.display().to_string());
    let metadata = match fs_err::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            let what = match error.kind() {
                io::ErrorKind::NotFound => "is not there".to_owned(),
                kind => format!("cannot be looked at: {kind}"),
            };
            let remedy = match holds {
                Holds::Authority => {
                    "restore the folder from a copy; what was issued can be issued again with `torchlift keys issue … --force`"
                }
                Holds::Certificate => "carry the folder here again from where the authority is",
            };
            return Some(
                Finding::error("keys-missing", place, format!("what `{}` names {what}", place::INDEX)).remedy(remedy),
            );
        }
    };
    let quoted = shlex::try_quote(&path.to_string_lossy()).map(|quoted| quoted.into_owned()).unwrap_or_default();
    let user = nix::unistd::geteuid();
    let owner = metadata.uid();
    // An administrator may look at another user's keys.
    if owner != user.as_raw() && owner != 0 && !user.is_root() {
        let message = format!("it belongs to another user (uid {owner}), who can change it");
        return Some(
            Finding::error("keys-owner", place, message)
                .remedy(format!("`chown {user} {quoted}`, by the administrator")),
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    let (forbidden, wanted, message) = match nature {
        Nature::Secret | Nature::Authority => (0o077, "600", "others than its owner can read this private key"),
        Nature::Trust => (0o022, "600", "others than its owner can change who is trusted"),
        Nature::Folder => (0o022, "700", "others than its owner can change these keys"),
    };
    (mode & forbidden != 0).then(|| {
        let remedy = match nature {
            Nature::Secret => format!("`chmod {wanted} {quoted}`; whoever may have read it meanwhile has it: then have it issued again and revoke the old one"),
            Nature::Authority => format!(
                "`chmod {wanted} {quoted}`; whoever may have read it meanwhile can issue certificates: then begin anew with `torchlift keys init` in another folder"
            ),
            Nature::Trust | Nature::Folder => format!("`chmod {wanted} {quoted}`, and see that what is in it is yours"),
        };
        Finding::error("keys-mode", place, format!("{message} (mode {mode:04o})")).remedy(remedy)
    })
}

/// What has expired, soon will, or is not valid yet.
pub(super) fn of_dates(folder: &Path, index: &Index, now: Duration) -> Vec<Finding> {
    let now = Stamp::of(now);
    let mut findings = Vec::new();
    let is_here = index.holds == Holds::Authority;
    // Who is one host's may have been carried a new `trust.pem` alone: one that retires need not be trusted any more.
    for authority in index.authorities.iter().filter(|entry| is_here || entry.duty == Duty::Signs) {
        let remedy = match (is_here, authority.not_after <= now) {
            (true, false) => "`torchlift keys rotate`, carry the new folders, `torchlift keys rotate --finish`",
            (true, true) => {
                "begin anew: move the folder away, `torchlift keys init`, issue all certificates and carry them"
            }
            (false, _) => {
                "carry the folder here again once the authority was rotated where it is (`torchlift keys rotate`)"
            }
        };
        let what = format!("the authority `{}`", authority.id);
        findings.extend(of_span(folder, &what, (authority.not_before, authority.not_after), now, remedy));
    }
    for entry in index.issued.iter().filter(|entry| entry.is_current()) {
        let arguments = entry.role.arguments(&entry.name);
        let remedy = match (index.holds, entry.role) {
            (Holds::Authority, RoleKind::Client) => format!(
                "`torchlift keys issue {arguments} --force`, or `torchlift keys revoke {arguments}` when nobody needs it"
            ),
            (Holds::Authority, RoleKind::Host) => format!(
                "`torchlift keys issue {arguments} --force` and carry it, or `torchlift keys revoke {arguments}` when the host is no more"
            ),
            (Holds::Certificate, _) => {
                format!("`torchlift keys issue {arguments} --force` where the authority is, and carry that here")
            }
        };
        let what = format!("the certificate of {} `{}`", entry.role.word(), entry.name);
        findings.extend(of_span(folder, &what, (entry.not_before, entry.not_after), now, &remedy));
    }
    findings
}

fn of_span(folder: &Path, what: &str, (from, to): (Stamp, Stamp), now: Stamp, remedy: &str) -> Option<Finding> {
    let place = Place::file(folder.display().to_string());
    if to <= now {
        return Some(Finding::error("keys-expired", place, format!("{what} expired on {}", to.day())).remedy(remedy));
    }
    if from > now {
        let message = format!("{what} is valid from {from} on, and this machine's clock says {now}");
        return Some(
            Finding::error("keys-early", place, message)
                .remedy("set the clocks of all machines (`timedatectl set-ntp true`)"),
        );
    }
    let left = (to.0 - now.0) / DAY;
    (left < WARN_DAYS).then(|| {
        let message = format!(
            "{what} expires on {}, in {}",
            to.day(),
            words::count(usize::try_from(left).unwrap_or_default(), "day")
        );
        Finding::warning("keys-expiring", place, message).remedy(remedy)
    })
}

/// That a command was cut short.
pub(super) fn unfinished(folder: &Path, command: &str) -> Finding {
    let message = format!("`torchlift keys {command}` did not come to its end");
    Finding::error("keys-unfinished", Place::file(folder.display().to_string()), message)
        .remedy(format!("repeat it: `torchlift keys {command}`"))
}

/// What was begun and not finished.
fn of_changes(folder: &Path, index: &Index) -> Vec<Finding> {
    let place = || Place::file(folder.display().to_string());
    let mut findings = Vec::new();
    findings.extend(index.unfinished.as_deref().map(|command| unfinished(folder, command)));
    if let (Holds::Authority, Some(retiring)) = (index.holds, index.retiring()) {
        let message = format!("two authorities are trusted: `{}` until the rotation is finished", retiring.id);
        findings.push(
            Finding::warning("keys-rotating", place(), message)
                .remedy("carry the new folders to all hosts and clients, then `torchlift keys rotate --finish`"),
        );
    }
    findings
}
