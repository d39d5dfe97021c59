//! What becomes of the output of an allocation's ranks: it goes to the spool, and the end of stderr is remembered.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use torchlift_schema::state::AllocKey;

use crate::allocator::engine::Outlet;
use crate::clock::Moment;
use crate::event::{Event, Observer, Stream};
use crate::output::files::{LogFiles, file_name};

/// Bytes of a rank's stderr that are kept for the reason of its end.
const TAIL_BYTES: usize = 8 * 1024;
/// Lines of it that are told.
const TAIL_LINES: usize = 100;

/// Where a rank's stream lies.
pub(super) fn spool_file(spool: &Path, key: &AllocKey, rank: usize, stream: Stream) -> PathBuf {
    spool.join(key.as_str()).join(rank.to_string()).join(file_name(stream))
}

/// What becomes of the ranks' output.
#[derive(Debug)]
pub(super) struct Output {
    files: LogFiles,
    /// By local rank: the end of its stderr.
    tails: Vec<VecDeque<u8>>,
    /// Counts what came.
    grown: watch::Sender<u64>,
}

impl Output {
    pub(super) fn below(folder: PathBuf, ranks: usize) -> Self {
        let files = LogFiles::below((0..ranks).map(|rank| folder.join(rank.to_string())).collect());
        Self { files, tails: vec![VecDeque::new(); ranks], grown: watch::Sender::new(0) }
    }

    /// Tells of new output; closed when nothing more comes.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }
}

impl Outlet for Output {
    fn tail(&mut self, rank: usize) -> String {
        let Some(tail) = self.tails.get_mut(rank) else { return String::new() };
        let text = String::from_utf8_lossy(tail.make_contiguous()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Observer for Output {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        if let Event::Output { rank, stream: Stream::Stderr, bytes } = event
            && let Some(tail) = self.tails.get_mut(rank.0 as usize)
        {
            tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
            let surplus = tail.len().saturating_sub(TAIL_BYTES);
            tail.drain(..surplus);
        }
        self.files.observe(now, event);
        self.grown.send_modify(|count| *count += 1);
    }
}
