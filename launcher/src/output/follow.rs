//! Ranks' files as they grow: what is in them, each byte once, in the order of its stream.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use fs_err::File;

use super::files::file_name;
use crate::event::{Rank, Stream};

/// Bytes read at a time.
const BUFFER: usize = 64 * 1024;

/// Whoever takes what is read.
pub(crate) type Take<'a> = &'a mut dyn FnMut(Rank, Stream, &[u8]) -> io::Result<()>;

/// The files of some ranks.
#[derive(Debug)]
pub(crate) struct Follow {
    tails: Vec<Tail>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Tail {
    rank: Rank,
    stream: Stream,
    path: PathBuf,
    /// None before it is there: a file is made with its first byte.
    file: Option<File>,
    /// Where to begin in it.
    begin: u64,
}

impl Follow {
    /// The streams of ranks with these folders, from the beginning, or from what is there now.
    pub(crate) fn new<'a>(
        ranks: impl Iterator<Item = (Rank, &'a Path)>,
        streams: &[Stream],
        is_from_now: bool,
    ) -> Self {
        let tails = ranks.flat_map(|(rank, folder)| {
            streams.iter().map(move |stream| {
                let path = folder.join(file_name(*stream));
                let begin = if is_from_now { fs_err::metadata(&path).map_or(0, |metadata| metadata.len()) } else { 0 };
                Tail { rank, stream: *stream, path, file: None, begin }
            })
        });
        Self { tails: tails.collect(), buffer: vec![0; BUFFER] }
    }

    /// Bytes that are passed over: what was there before.
    pub(crate) fn passed_over(&self) -> u64 {
        self.tails.iter().map(|tail| tail.begin).sum()
    }

    /// Gives what is there now and was not given before.
    ///
    /// # Errors
    /// When a file cannot be read, or whoever takes it has enough.
    pub(crate) fn turn(&mut self, take: Take<'_>) -> io::Result<()> {
        for tail in &mut self.tails {
            let (rank, stream) = (tail.rank, tail.stream);
            let Some(file) = tail.open()? else { continue };
            loop {
                match file.read(&mut self.buffer) {
                    Ok(0) => break,
                    Ok(length) => take(rank, stream, &self.buffer[..length])?,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Tail {
    fn open(&mut self) -> io::Result<Option<&mut File>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(mut file) => {
                    file.seek(SeekFrom::Start(self.begin))?;
                    self.file = Some(file);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.file.as_mut())
    }
}
