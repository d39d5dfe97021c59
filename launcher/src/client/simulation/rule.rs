//! What has to hold in every world: of what the client tells while it goes on, and of what is left at its end.

use torchlift_schema::state::{ProcId, ProcState, ProcStopReason};

use super::host::Life;
use super::world::World;
use crate::client::state::AllocEvent;

/// What the client told of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Created,
    Running,
    Stopped(ProcStopReason),
}

impl World {
    /// What the client tells, in order, with nothing doubled and every place right.
    pub(super) fn see(&mut self, event: AllocEvent) {
        let (host, rank, state) = match event {
            AllocEvent::Allocated { host, incarnation, .. } => {
                self.incarnations[host] = incarnation;
                return;
            }
            AllocEvent::HostLost { host, why } => {
                assert!(!std::mem::replace(&mut self.lost[host], true), "host {host} is lost twice");
                assert!(self.hosts[host].is_harmed, "host {host} is lost, and nothing was wrong with it: {why}");
                return;
            }
            AllocEvent::State { host, rank, state } => (host, rank, state),
        };
        let entry = |proc_id: &ProcId| (host, proc_id.clone());
        match state {
            ProcState::Created { proc_id, point, .. } => {
                let rank = rank.expect("a process has a rank");
                assert_eq!(point, self.extent.point_of_rank(rank).unwrap(), "projected");
                assert!(self.views[host].local(rank).is_some(), "in the host's part");
                let before = self.seen.insert(entry(&proc_id), (rank, Seen::Created));
                assert_eq!(before, None, "{proc_id} is created twice");
            }
            ProcState::Running { proc_id, .. } => {
                let seen = self.seen.get_mut(&entry(&proc_id)).expect("created before it runs");
                assert_eq!(seen.1, Seen::Created, "{proc_id} runs");
                seen.1 = Seen::Running;
            }
            ProcState::Stopped { proc_id, reason } => {
                let seen = self.seen.get_mut(&entry(&proc_id)).expect("created before it stops");
                assert!(!matches!(seen.1, Seen::Stopped(_)), "{proc_id} stops twice");
                seen.1 = Seen::Stopped(reason);
            }
            ProcState::Failed { .. } => {}
        }
    }

    pub(super) fn look_back(&self) {
        assert!(self.is_client_crashed || self.ended_at.is_some(), "the client does not end");
        for (index, host) in self.hosts.iter().enumerate() {
            let alive = host.life.as_ref().map_or(0, Life::alive);
            assert_eq!(alive, 0, "ranks of host {index} are left");
            let starts = host.starts + host.life.as_ref().map_or(0, |life| life.starts);
            // A client that was not told of a life before it crashed cannot tell the next one of it.
            let most = if self.generation > 0 && host.is_harmed { 2 } else { 1 };
            assert!(starts <= most, "host {index} started its ranks {starts} times");
        }
        if self.is_client_crashed {
            return;
        }
        for ((host, proc_id), (rank, seen)) in &self.seen {
            let Seen::Stopped(told) = seen else {
                panic!("{proc_id} of host {host} is never told of as stopped: {seen:?}")
            };
            if *told == ProcStopReason::HostWatchdog {
                assert!(self.lost[*host], "{proc_id} is stopped with its host, and that is not lost");
                continue;
            }
            let local = self.views[*host].local(*rank).unwrap();
            let life = self.hosts[*host].life.as_ref().map(Life::ends).unwrap_or_default();
            let mut ends = life.into_iter().chain(self.hosts[*host].crashed.iter().cloned()).peekable();
            // A record that was fetched is forgotten.
            if ends.peek().is_some() {
                assert!(ends.any(|end| end == (local, told.clone())), "{proc_id} of host {host} did not end by {told}");
            }
        }
    }
}
