//! Per-rank files: every byte that a rank wrote, in its order, and nothing else.
//!
//! Owns `<run dir>/attempt-<n>/<rank>/{stdout,stderr}.log`. A file is made with its first byte: most ranks write to one stream
//! only, and two empty files a rank would double what a short run costs. A file that cannot be written loses its bytes and
//! says so once; the ranks go on.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};

use crate::clock::Moment;
use crate::event::{Event, Observer, Rank, Stream};
use crate::plan::LaunchPlan;
use crate::process::limit::LOG_FILES;

/// The name of a stream's file in a rank's folder.
pub(crate) fn file_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout.log",
        Stream::Stderr => "stderr.log",
    }
}

/// Writes the files of one attempt.
#[derive(Debug)]
pub(crate) struct LogFiles {
    folders: Vec<PathBuf>,
    open: BTreeMap<(Rank, Stream), Open>,
    uses: u64,
    lost: u64,
    trouble: Option<io::Error>,
}

#[derive(Debug)]
struct Open {
    file: File,
    last_use: u64,
}

impl LogFiles {
    /// Makes the folder of each rank, which the rank itself may write to as well.
    ///
    /// # Errors
    /// When a folder cannot be made; nothing has been started then.
    pub(crate) fn create(plan: &LaunchPlan, attempt: u32) -> io::Result<Self> {
        let folders: Vec<PathBuf> = (0..plan.world_size()).map(|rank| plan.rank_dir(Rank(rank), attempt)).collect();
        if let Some(parent) = folders.first().and_then(|folder| folder.parent()) {
            fs_err::create_dir_all(parent)?;
        }
        for folder in &folders {
            fs_err::create_dir(folder)?;
        }
        Ok(Self::below(folders))
    }

    /// Of ranks with these folders, each of which is made with its first file.
    pub(crate) fn below(folders: Vec<PathBuf>) -> Self {
        Self { folders, open: BTreeMap::new(), uses: 0, lost: 0, trouble: None }
    }

    /// Where a stream's bytes lie, once there are any.
    pub(crate) fn path(&self, rank: Rank, stream: Stream) -> PathBuf {
        self.folders[rank.0 as usize].join(file_name(stream))
    }

    /// Bytes that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// The first trouble since the last call, to be told once.
    pub(crate) fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    fn append(&mut self, rank: Rank, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match self.file(rank, stream) {
                Ok(file) => file.write(rest),
                Err(error) => Err(error),
            };
            match written {
                Ok(0) => self.lose(rest.len(), io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = &rest[count..];
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.lose(rest.len(), error),
            }
            return;
        }
    }

    fn lose(&mut self, count: usize, error: io::Error) {
        if self.lost == 0 {
            self.trouble = Some(error);
        }
        self.lost += count as u64;
    }

    fn file(&mut self, rank: Rank, stream: Stream) -> io::Result<&mut File> {
        self.uses += 1;
        let key = (rank, stream);
        if !self.open.contains_key(&key) {
            if self.open.len() >= LOG_FILES
                && let Some(oldest) = self.open.iter().min_by_key(|(_, open)| open.last_use).map(|(key, _)| *key)
            {
                self.open.remove(&oldest);
            }
            let file = append_to(&self.path(rank, stream))?;
            self.open.insert(key, Open { file, last_use: 0 });
        }
        let open = self.open.get_mut(&key).ok_or(io::ErrorKind::NotFound)?;
        open.last_use = self.uses;
        Ok(&mut open.file)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().create(true).append(true).open(path);
    match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs_err::create_dir_all(folder)?;
            open()
        }
        (opened, _) => opened,
    }
}

impl Observer for LogFiles {
    fn observe(&mut self, _now: Moment, event: &Event<'_>) {
        match event {
            Event::Output { rank, stream, bytes } => self.append(*rank, *stream, bytes),
            Event::OutputClosed { rank, stream } => {
                self.open.remove(&(*rank, *stream));
            }
            _ => {}
        }
    }
}
