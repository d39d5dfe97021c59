//! Processes of runs whose launcher is gone.
//!
//! Every process of a run has the run's id in the environment that it was started with, whatever became of its parents: what
//! has the mark and no guard above it was left behind. Reads /proc and signals nobody: whether such a process may be ended is
//! for a person to say.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::tree::{self, Process};
use crate::env_vars::{TORCHLIFT_INTERNAL_GUARD, TORCHLIFT_RUN_DIR, TORCHLIFT_RUN_ID};

/// A process that a run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Its process id.
    pub pid: i32,
    /// The run's id.
    pub run_id: String,
    /// The run's folder.
    pub run_dir: Option<PathBuf>,
}

/// Every process of this user that a run left behind, by process id. This one, and what it was started by, are none.
pub fn left_behind() -> Vec<LeftBehind> {
    let processes: BTreeMap<i32, Process> = tree::all().into_iter().map(|process| (process.pid, process)).collect();
    let own: BTreeSet<i32> = above(std::process::id().cast_signed(), &processes).collect();
    let mut guards: BTreeMap<i32, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for process in processes.values().filter(|process| !process.is_zombie && !own.contains(&process.pid)) {
        let environment = environment(process.pid);
        let Some(run_id) = variable(&environment, TORCHLIFT_RUN_ID) else { continue };
        let is_guarded = above(process.pid, &processes).any(|pid| {
            *guards.entry(pid).or_insert_with(|| variable(&self::environment(pid), TORCHLIFT_INTERNAL_GUARD).is_some())
        });
        if !is_guarded {
            let run_dir = variable(&environment, TORCHLIFT_RUN_DIR).map(PathBuf::from);
            found.push(LeftBehind { pid: process.pid, run_id: run_id.to_string_lossy().into_owned(), run_dir });
        }
    }
    found
}

/// A process and those above it, up to the first.
fn above(pid: i32, processes: &BTreeMap<i32, Process>) -> impl Iterator<Item = i32> {
    let mut seen = BTreeSet::new();
    // An id that was recycled between two looks could make a ring of them.
    std::iter::successors(Some(pid), |pid| {
        processes.get(pid).map(|process| process.parent).filter(|parent| *parent > 0)
    })
    .take_while(move |pid| seen.insert(*pid))
}

/// What a process was started with; empty where this user may not read it.
fn environment(pid: i32) -> Vec<u8> {
    fs_err::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

fn variable(environment: &[u8], name: &str) -> Option<OsString> {
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        (!value.is_empty()).then(|| OsString::from_vec(value.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_marked_process_without_a_guard_was_left_behind_and_one_below_a_guard_was_not() {
        let start = |name: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "echo; read -r word"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.env(TORCHLIFT_RUN_ID, "marked-test").env(TORCHLIFT_RUN_DIR, "/runs/ü b").env(name, "3");
            let mut child = command.spawn().unwrap();
            // Its first byte says that it is the shell by now, with the environment of its own.
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
            child
        };
        let (mut orphan, mut guarded) = (start("OTHER"), start(TORCHLIFT_INTERNAL_GUARD));
        let found: Vec<LeftBehind> = left_behind().into_iter().filter(|found| found.run_id == "marked-test").collect();
        let expected = LeftBehind {
            pid: orphan.id().cast_signed(),
            run_id: "marked-test".to_owned(),
            run_dir: Some("/runs/ü b".into()),
        };
        for child in [&mut orphan, &mut guarded] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!(found, [expected]);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"XTORCHLIFT_RUN_ID=a\0TORCHLIFT_RUN_IDX=b\0TORCHLIFT_RUN_ID=\0TORCHLIFT_RUN_ID=c=d\0";
        assert_eq!(variable(environment, TORCHLIFT_RUN_ID).unwrap(), "c=d");
        assert_eq!(variable(b"", TORCHLIFT_RUN_ID), None);
    }
}
