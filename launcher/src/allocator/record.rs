//! The ordered record of one allocation: the only source of what became of its ranks.
//!
//! Numbers count from 1 without a gap, so that a reader that lost its connection goes on where it was. Must not know who reads.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::RecordLine;

/// A record that is written by one and read by many.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    lines: Arc<Mutex<Vec<RecordLine>>>,
    /// How many lines there are, and whether it is complete.
    grown: Arc<watch::Sender<(usize, bool)>>,
}

impl Record {
    pub(crate) fn new() -> Self {
        Self { lines: Arc::default(), grown: Arc::new(watch::Sender::new((0, false))) }
    }

    /// Appends a message; `Done` completes the record.
    pub(crate) fn append(&self, message: Told) {
        let is_done = matches!(message, Told::Done(_));
        let length = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let number = lines.len() as u64 + 1;
            lines.push(RecordLine::new(number, message));
            lines.len()
        };
        self.grown.send_replace((length, is_done));
    }

    /// The line behind the first `after` ones.
    pub(crate) fn line(&self, after: usize) -> Option<RecordLine> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).get(after).cloned()
    }

    /// Tells when it has grown. Closed when nobody writes it any more.
    pub(crate) fn watch(&self) -> watch::Receiver<(usize, bool)> {
        self.grown.subscribe()
    }
}
