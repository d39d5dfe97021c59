//! What an allocator's clients are told: records, output, numbers.
//!
//! Owns the record and the spool of each allocation by its key, and who may read them. Must not know how anybody reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use torchlift_schema::control::Holder;
use torchlift_schema::state::{AllocKey, WorldId};
use torchlift_schema::{ChannelAddr, RemoteProcessProcStateMessage as Told};

use super::output::Output;
use super::tally::{Course, Tally};
use super::{Found, Handle, Status, deliver};
use crate::allocator::engine::{OpenError, Outlet};
use crate::allocator::record::Record;
use crate::allocator::state::{Reply, Request};
use crate::allocator::steward::Surroundings;
use crate::channel::dial::Dialler;
use crate::process::handle::Household;

/// What is told of one allocation.
#[derive(Debug)]
struct Entry {
    record: Record,
    owner: String,
    ranks: usize,
    output: Output,
    course: Course,
}

/// What all clients are told.
#[derive(Debug)]
pub(super) struct Desk {
    incarnation: String,
    /// Below which output is kept.
    spool: PathBuf,
    dialler: Dialler,
    handle: Handle,
    household: Household,
    entries: BTreeMap<AllocKey, Entry>,
    tally: Tally,
}

impl Desk {
    pub(super) fn new(incarnation: String, spool: PathBuf, dialler: Dialler, handle: Handle) -> Self {
        let (household, entries, tally) = (Household::take_over(), BTreeMap::new(), Tally::new());
        Self { incarnation, spool, dialler, handle, household, entries, tally }
    }

    pub(super) fn incarnation(&self) -> &str {
        &self.incarnation
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A message is answered so.
    pub(super) fn answered(&mut self, reply: &Reply) {
        self.tally.answered(reply);
    }

    /// What a reader needs of an allocation, if it is this owner's.
    pub(super) fn find(&self, key: &AllocKey, owner: &str) -> Option<Found> {
        let entry = self.entries.get(key).filter(|entry| entry.owner == owner)?;
        Some(Found { record: entry.record.clone(), output: entry.output.watch(), ranks: entry.ranks })
    }

    pub(super) fn status(&self, holders: Vec<Holder>) -> Status {
        Status { incarnation: self.incarnation.clone(), holders, tally: self.tally.clone() }
    }
}

impl Surroundings for Desk {
    fn hold(&mut self, key: &AllocKey, owner: String, world: &WorldId, request: &Request) {
        let record = Record::new();
        if request.bootstrap_addr != ChannelAddr::Caller {
            let told = deliver::Told { key: key.clone(), handle: self.handle.clone() };
            let to = request.bootstrap_addr.clone();
            let (dialler, session) = (self.dialler.clone(), world.0.clone());
            tokio::spawn(deliver::all(dialler, to, session, record.clone(), Some(told)));
        }
        let ranks = request.view.num_ranks();
        let output = Output::below(self.spool.join(key.as_str()), ranks);
        self.entries.insert(key.clone(), Entry { record, owner, ranks, output, course: Course::default() });
    }

    fn open(&mut self, key: &AllocKey) -> Result<(), OpenError> {
        let folder = self.spool.join(key.as_str());
        fs_err::create_dir_all(&folder).map_err(|source| OpenError::Spool { folder, source })
    }

    fn outlet(&mut self, key: &AllocKey) -> Option<&mut dyn Outlet> {
        Some(&mut self.entries.get_mut(key)?.output)
    }

    fn record(&mut self, key: &AllocKey, message: Told) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.tally.told(&mut entry.course, &message);
            entry.record.append(message);
        }
    }

    fn forget(&mut self, key: &AllocKey) {
        self.entries.remove(key);
        // What cannot be removed does no harm.
        let _ = fs_err::remove_dir_all(self.spool.join(key.as_str()));
    }

    fn refuse(&mut self, bootstrap_addr: ChannelAddr, messages: Vec<Told>) {
        let record = Record::new();
        messages.into_iter().for_each(|message| record.append(message));
        let (dialler, session) = (self.dialler.clone(), self.incarnation.clone());
        tokio::spawn(deliver::all(dialler, bootstrap_addr, session, record, None));
    }

    fn kill_strays(&mut self, guards: Vec<i32>) {
        self.household.kill_strays(&guards);
    }
}
