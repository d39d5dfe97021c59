//! What earlier commands left: a lock that is held, processes of runs whose launcher is gone.

use std::collections::BTreeMap;

use torchlift::process::marked::left_behind;

use super::{Check, Scene, Section, SectionId, quoted};
use crate::cargo::describe_process;
use crate::execute::lock_file;
use crate::libtorch::hold::lock_holders;

/// Processes that are named; the rest is counted.
const MOST_NAMED: usize = 4;

pub(super) fn look(scene: &Scene) -> Section {
    let mut section = Section::new(SectionId::Leftovers);
    let lock = lock_file(&scene.folder);
    section.push(match lock_holders(&lock).first() {
        Some(holder) => Check::doubtful(
            "build-lock",
            format!("{} is held by {holder}: a build there waits for it", quoted(&lock)),
            "wait for that build; the lock goes with the process, whatever ends it",
        ),
        None => Check::right("build-lock", format!("no build is at work in {}", quoted(&scene.folder))),
    });
    let mut runs: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for process in left_behind() {
        let folder = process.run_dir.map(|folder| format!(" in `{}`", folder.display())).unwrap_or_default();
        runs.entry(format!("`{}`{folder}", process.run_id)).or_default().push(process.pid);
    }
    if runs.is_empty() {
        section.push(Check::right("processes", "no process of an earlier run is left"));
    }
    for (run, pids) in runs {
        let named: Vec<String> =
            pids.iter().take(MOST_NAMED).map(|pid| describe_process(pid.cast_unsigned())).collect();
        let more = pids.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let list = pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        section.push(Check::doubtful(
            "processes",
            format!("{} of run {run} outlived its launcher: {}{more}", counted_processes(pids.len()), named.join(", ")),
            format!("if nobody needs them: `kill {list}`, and a moment later `kill -9 {list}` for those that are left"),
        ));
    }
    section
}

fn counted_processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}
