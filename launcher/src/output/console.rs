//! Ranks' lines on the console: whole, labelled, by one writer.
//!
//! A rank's stdout goes to stdout and its stderr to stderr (or both to stderr where stdout is for data).
//! Must not lose a byte of a file: it only sees what the files have already got.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::framing::{Framer, Line};
use super::terminal::visible;
use crate::clock::Moment;
use crate::event::{Event, Observer, Rank, Stream};
use crate::plan::LaunchPlan;

/// Colours of labels, by rank: those that can be read on light and dark, without red, which is for errors.
const COLOURS: [u8; 5] = [36, 33, 32, 35, 34];

/// What stands before a rank's line: host and rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The host's name, as a terminal may have it.
    pub host: String,
    /// The rank.
    pub rank: Rank,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}]", self.host, self.rank.0)
    }
}

/// Shows what ranks write.
pub(crate) struct Console {
    ranks: Vec<RankLines>,
    out: Sink,
    err: Option<Sink>,
}

struct RankLines {
    label: Label,
    folder: PathBuf,
    framers: [Framer; 2],
}

struct Sink {
    writer: Box<dyn Write>,
    is_coloured: bool,
    /// The reader is gone: nothing more is written, and nobody is troubled.
    is_closed: bool,
    buffer: Vec<u8>,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("ranks", &self.ranks.len()).finish_non_exhaustive()
    }
}

impl Console {
    /// A console for the ranks of an attempt of `plan`. Without `err`, both streams go to `out`.
    ///
    /// Each writer comes with whether it is a terminal that wants colour.
    pub(crate) fn new(
        plan: &LaunchPlan,
        attempt: u32,
        out: (Box<dyn Write>, bool),
        err: Option<(Box<dyn Write>, bool)>,
    ) -> Self {
        let ranks = plan.hosts.iter().flat_map(|host| {
            host.ranks.iter().map(|rank| (host.name.as_str(), rank.rank, plan.rank_dir(rank.rank, attempt)))
        });
        Self::of(ranks, out, err)
    }

    /// A console for ranks in their order: each one's host, itself, and the folder of its files.
    pub(crate) fn of<'a>(
        ranks: impl Iterator<Item = (&'a str, Rank, PathBuf)>,
        out: (Box<dyn Write>, bool),
        err: Option<(Box<dyn Write>, bool)>,
    ) -> Self {
        let ranks = ranks.map(|(host, rank, folder)| RankLines {
            label: Label { host: visible(host).into_owned(), rank },
            folder,
            framers: Default::default(),
        });
        let sink = |(writer, is_coloured)| Sink { writer, is_coloured, is_closed: false, buffer: Vec::new() };
        Self { ranks: ranks.collect(), out: sink(out), err: err.map(sink) }
    }

    /// Applies `step` to one stream of one rank, then writes the lines that came of it at once.
    fn with(&mut self, rank: Rank, stream: Stream, step: impl FnOnce(&mut Framer, &mut dyn FnMut(Line<'_>))) {
        let Some(lines) = self.ranks.get_mut(rank.0 as usize) else { return };
        let sink = match (stream, &mut self.err) {
            (Stream::Stderr, Some(err)) => err,
            _ => &mut self.out,
        };
        let RankLines { label, folder, framers } = lines;
        step(&mut framers[index(stream)], &mut |line| sink.put(label, folder, stream, line));
        sink.send();
    }

    fn all(&self) -> impl Iterator<Item = (Rank, Stream)> + use<> {
        (0..self.ranks.len() as u32).flat_map(|rank| [(Rank(rank), Stream::Stdout), (Rank(rank), Stream::Stderr)])
    }
}

impl Sink {
    fn put(&mut self, label: &Label, folder: &Path, stream: Stream, line: Line<'_>) {
        let _ = if self.is_coloured {
            let colour = COLOURS[label.rank.0 as usize % COLOURS.len()];
            write!(self.buffer, "\x1b[{colour}m{label}\x1b[0m ")
        } else {
            write!(self.buffer, "{label} ")
        };
        self.buffer.extend_from_slice(String::from_utf8_lossy(line.bytes).as_bytes());
        if self.is_coloured && line.bytes.contains(&b'\x1b') {
            // A colour that the rank left on would run into the next rank's line.
            self.buffer.extend_from_slice(b"\x1b[0m");
        }
        if line.is_cut {
            let file = folder.join(super::files::file_name(stream));
            let _ = write!(self.buffer, " … (cut here; the whole line is in `{}`)", visible(&file.to_string_lossy()));
        }
        self.buffer.push(b'\n');
    }

    fn send(&mut self) {
        if !self.buffer.is_empty() && !self.is_closed {
            // Whatever the reason, a console that cannot be written to must not end a run.
            self.is_closed = write_all(&mut *self.writer, &self.buffer).is_err();
        }
        self.buffer.clear();
    }
}

fn write_all(writer: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes)?;
    writer.flush()
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

impl Observer for Console {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        match event {
            Event::Output { rank, stream, bytes } => {
                // No look at the pause here: where the rest of a line has come, the line is not torn, however late it is.
                self.with(*rank, *stream, |framer, emit| framer.push(now, bytes, emit));
            }
            Event::OutputClosed { rank, stream } => self.with(*rank, *stream, |framer, emit| framer.close(emit)),
            Event::Finished { .. } => {
                for (rank, stream) in self.all() {
                    self.with(rank, stream, |framer, emit| framer.close(emit));
                }
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Moment> {
        self.ranks.iter().flat_map(|rank| &rank.framers).filter_map(Framer::deadline).min()
    }

    fn tick(&mut self, now: Moment) {
        for (rank, stream) in self.all() {
            self.with(rank, stream, |framer, emit| framer.pause(now, emit));
        }
    }
}
