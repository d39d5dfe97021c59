//! What a run knows of itself at a moment: gathered from its events.

use torchlift_schema::launch::OsText;

use super::message::{RankState, RankStatus, Status, VERSION};
use crate::event::{End, Event, Rank};
use crate::plan::{self, LaunchPlan};
use crate::report::words;

/// A run of which nothing is known but its plan.
pub(super) fn of(plan: &LaunchPlan, wall: std::time::Duration) -> Status {
    let ranks = plan.hosts.iter().flat_map(|host| {
        host.ranks.iter().map(|rank| RankStatus {
            rank: rank.rank.0,
            host: host.name.clone(),
            state: RankState::Waiting,
            pid: None,
            end: None,
        })
    });
    let command = plan.hosts.first().into_iter().flat_map(|host| {
        let program = host.program.as_os_str();
        std::iter::once(program).chain(host.args.iter().map(|arg| arg.as_os_str()))
    });
    Status {
        version: VERSION,
        run_id: plan.run_id.clone(),
        run_dir: OsText::new(&plan.run_dir).unwrap_or_default(),
        pid: std::process::id(),
        started_at: plan::stamp(wall),
        command: command.map(|word| word.to_string_lossy().into_owned()).collect(),
        is_stopping: false,
        ranks: ranks.collect(),
    }
}

/// Takes up what happened.
pub(super) fn note(status: &mut Status, event: &Event<'_>) {
    let mut with = |rank: &Rank, act: &mut dyn FnMut(&mut RankStatus)| {
        if let Some(rank) = status.ranks.get_mut(rank.0 as usize) {
            act(rank);
        }
    };
    match event {
        Event::Started { rank, pid } => with(rank, &mut |rank| {
            (rank.state, rank.pid) = (RankState::Running, Some(*pid));
        }),
        Event::Ended { rank, end } => with(rank, &mut |rank| {
            rank.state = if *end == End::Exited(0) { RankState::Succeeded } else { RankState::Failed };
            rank.end = Some(words::end(*end));
        }),
        Event::Stopping { .. } => status.is_stopping = true,
        _ => {}
    }
}
