//! Those who read a record or a rank's output, line by line or chunk by chunk, until there is no more.

use std::io::SeekFrom;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use torchlift_schema::control::RecordLine;
use torchlift_schema::state::AllocKey;

use super::deliver::HEARTBEAT;
use super::{Found, Handle};
use crate::allocator::state::Input;

/// Bytes of output that are sent at a time.
const CHUNK: usize = 64 * 1024;

/// One who reads a record.
pub(super) struct Reader {
    pub(super) found: Found,
    pub(super) next: usize,
    pub(super) key: AllocKey,
    pub(super) handle: Handle,
    pub(super) is_over: bool,
}

impl Reader {
    /// The lines that are there, or one that says that the allocator lives; none when nothing more comes.
    pub(super) async fn text(&mut self) -> Option<Bytes> {
        if self.is_over {
            // What went before this has left for the client: it is asked for more only then.
            self.handle.tell(Input::Delivered { key: self.key.clone() }).await;
            return None;
        }
        let mut grown = self.found.record.watch();
        loop {
            let (length, is_done) = *grown.borrow_and_update();
            let mut text = Vec::new();
            while let Some(line) = self.found.record.line(self.next) {
                append(&mut text, &line);
                self.next += 1;
            }
            if !text.is_empty() {
                self.is_over = is_done && self.next >= length;
                return Some(text.into());
            }
            if is_done {
                self.is_over = true;
                return Some(Bytes::new());
            }
            match tokio::time::timeout(HEARTBEAT, grown.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    append(&mut text, &RecordLine::heartbeat());
                    return Some(text.into());
                }
            }
        }
    }
}

fn append(text: &mut Vec<u8>, line: &RecordLine) {
    if let Ok(line) = serde_json::to_vec(line) {
        text.extend(line);
        text.push(b'\n');
    }
}

/// One who reads a rank's output.
pub(super) struct Spooled {
    pub(super) file: PathBuf,
    pub(super) at: u64,
    pub(super) found: Found,
    pub(super) follow: bool,
}

impl Spooled {
    pub(super) async fn bytes(&mut self) -> Option<Bytes> {
        let mut grown = self.found.record.watch();
        loop {
            self.found.output.borrow_and_update();
            let is_done = grown.borrow_and_update().1;
            let bytes = self.read().await;
            if !bytes.is_empty() {
                self.at += bytes.len() as u64;
                return Some(bytes.into());
            }
            if is_done || !self.follow {
                return None;
            }
            tokio::select! {
                changed = self.found.output.changed() => changed.ok()?,
                changed = grown.changed() => changed.ok()?,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// What the file has from here on; nothing where there is no file yet.
    async fn read(&self) -> Vec<u8> {
        let read = async {
            let mut file = tokio::fs::File::open(&self.file).await.ok()?;
            file.seek(SeekFrom::Start(self.at)).await.ok()?;
            let mut bytes = vec![0; CHUNK];
            let length = file.read(&mut bytes).await.ok()?;
            bytes.truncate(length);
            Some(bytes)
        };
        read.await.unwrap_or_default()
    }
}
