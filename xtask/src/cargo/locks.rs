//! Who holds the file that cargo waits for.
//!
//! Read from `/proc/locks`, where a waiter stands behind the holder with an arrow, and not from cargo's words, which
//! change from version to version. Where the system does not say, nothing is said.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What a process waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    /// The locked file.
    pub(super) file: Option<String>,
    /// The process that has it, as `process 123 (cargo build)`.
    pub(super) holder: String,
}

/// The lock that process `pid` waits for.
pub(super) fn blocked(pid: u32) -> Option<Blocked> {
    let text = fs_err::read_to_string("/proc/locks").ok()?;
    let (holder, inode) = holder_of(&text, pid)?;
    Some(Blocked { file: open_file(pid, inode), holder: describe(holder) })
}

/// The holder's process id and the file's inode.
///
/// Lines are `1: FLOCK  ADVISORY  WRITE 4321 fd:00:1234 0 EOF`, those of waiters `1: -> FLOCK …` with the same number.
fn holder_of(text: &str, pid: u32) -> Option<(u32, u64)> {
    let pid = pid.to_string();
    let mut holder = None;
    for line in text.lines() {
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        let is_waiter = fields.get(1) == Some(&"->");
        if is_waiter {
            fields.remove(1);
        }
        let (Some(owner), Some(file)) = (fields.get(4), fields.get(5)) else { continue };
        if !is_waiter {
            holder = Some((*owner, *file));
        } else if *owner == pid {
            let (owner, _) = holder?;
            let inode = file.rsplit(':').next()?.parse().ok()?;
            return Some((owner.parse().ok()?, inode));
        }
    }
    None
}

fn open_file(pid: u32, inode: u64) -> Option<String> {
    let entries = fs_err::read_dir(format!("/proc/{pid}/fd")).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|link| fs_err::metadata(link).is_ok_and(|metadata| metadata.ino() == inode))
        .and_then(|link| fs_err::read_link(link).ok())
        .map(|path| path.display().to_string())
}

/// A process for people: `process 123 (`cargo build`)`.
pub(crate) fn describe(pid: u32) -> String {
    let command = fs_err::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let words: Vec<_> = command
        .split(|byte| *byte == 0)
        .take(4)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() { format!("process {pid}") } else { format!("process {pid} (`{}`)", words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  READ 77 fd:00:5 128 128
2: FLOCK  ADVISORY  WRITE 4321 fd:00:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 99 fd:00:1234 0 EOF
2: -> FLOCK  ADVISORY  WRITE 100 fd:00:1234 0 EOF
3: FLOCK  ADVISORY  WRITE 8 fd:00:9 0 EOF
";

    #[test]
    fn the_holder_is_the_one_before_the_arrow() {
        assert_eq!(holder_of(LOCKS, 99), Some((4321, 1234)));
        assert_eq!(holder_of(LOCKS, 100), Some((4321, 1234)));
        assert_eq!(holder_of(LOCKS, 4321), None, "who holds a lock does not wait for it");
        assert_eq!(holder_of("nonsense\n1:\n", 99), None);
    }
}
