//! The ranks' output, from their pipes to the observer.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::unistd::read;

use super::RankPipes;
use crate::clock::Moment;
use crate::event::{Event, Observer, Rank, Stream};

/// Bytes read at a time: all that a pipe holds by default. One read a turn, so that a rank that writes without end
/// does not keep the others waiting.
const BUFFER: usize = 64 * 1024;

/// Every rank's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    buffer: Vec<u8>,
    /// By token; none once it is closed.
    open: Vec<Option<Pipe>>,
    open_count: usize,
    /// Pipes of ranks that the guard has not answered for: nothing is read before a rank is known to run, so that its
    /// start is told before its output.
    waiting: BTreeMap<Rank, RankPipes>,
    /// Ranks whose pipes are not being read yet.
    to_come: BTreeSet<Rank>,
}

#[derive(Debug)]
struct Pipe {
    rank: Rank,
    stream: Stream,
    fd: OwnedFd,
}

enum Look {
    Data,
    Nothing,
    End,
}

impl Pipes {
    /// Of the ranks from 0 to this one.
    pub(crate) fn of(ranks: usize) -> Self {
        let to_come = (0..ranks as u32).map(Rank).collect();
        Self {
            buffer: vec![0; BUFFER],
            open: Vec::with_capacity(2 * ranks),
            open_count: 0,
            waiting: BTreeMap::new(),
            to_come,
        }
    }

    /// Keeps a rank's pipes until it runs.
    pub(crate) fn add(&mut self, pipes: RankPipes) {
        self.waiting.insert(pipes.rank, pipes);
    }

    /// The rank runs: watches its pipes, with tokens from 0 on.
    pub(crate) fn watch(&mut self, rank: Rank, epoll: &Epoll) -> nix::Result<()> {
        let Some(RankPipes { stdout, stderr, .. }) = self.waiting.remove(&rank) else { return Ok(()) };
        self.to_come.remove(&rank);
        for (stream, fd) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            epoll.add(&fd, EpollEvent::new(EpollFlags::EPOLLIN, self.open.len() as u64))?;
            self.open.push(Some(Pipe { rank, stream, fd }));
            self.open_count += 1;
        }
        Ok(())
    }

    /// If nothing came from the rank yet, nothing will: it does not run.
    pub(crate) fn forget(&mut self, rank: Rank) {
        self.waiting.remove(&rank);
        self.to_come.remove(&rank);
    }

    /// Whether nothing more can come.
    pub(crate) fn are_closed(&self) -> bool {
        self.to_come.is_empty() && self.open_count == 0
    }

    /// Reads once from one pipe, which the epoll has just told of; says whether there was anything.
    pub(crate) fn read(&mut self, token: usize, now: Moment, observer: &mut dyn Observer) -> bool {
        matches!(self.look(token, now, observer, BUFFER).0, Look::Data)
    }

    /// Reads what one rank's pipes hold at this moment, so that the end of its output is known with its own.
    pub(crate) fn catch_up(&mut self, rank: Rank, now: Moment, observer: &mut dyn Observer) {
        for token in 0..self.open.len() {
            let Some(Some(pipe)) = self.open.get(token) else { continue };
            if pipe.rank != rank || fcntl(&pipe.fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
                continue;
            }
            let mut left = fcntl(&pipe.fd, FcntlArg::F_GETPIPE_SZ).map_or(BUFFER, |size| size as usize);
            while left > 0 {
                match self.look(token, now, observer, left.min(BUFFER)) {
                    (Look::Data, length) => left -= length,
                    (Look::Nothing | Look::End, _) => break,
                }
            }
        }
    }

    /// Reads what the pipes hold at this moment and closes them. Whoever still holds the other end is not waited for.
    pub(crate) fn drain(&mut self, now: Moment, observer: &mut dyn Observer) {
        for token in 0..self.open.len() {
            let Some(Some(pipe)) = self.open.get(token) else { continue };
            // Nobody has told that there is something to read: without this the read could wait for ever.
            let may_read = fcntl(&pipe.fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok();
            let mut left = fcntl(&pipe.fd, FcntlArg::F_GETPIPE_SZ).map_or(BUFFER, |size| size as usize);
            while may_read && left > 0 {
                match self.look(token, now, observer, left.min(BUFFER)) {
                    (Look::Data, length) => left -= length,
                    (Look::Nothing | Look::End, _) => break,
                }
            }
            self.close(token, now, observer);
        }
    }

    fn look(&mut self, token: usize, now: Moment, observer: &mut dyn Observer, most: usize) -> (Look, usize) {
        let Some(Some(pipe)) = self.open.get(token) else { return (Look::Nothing, 0) };
        match read(&pipe.fd, &mut self.buffer[..most]) {
            Ok(length) if length > 0 => {
                let bytes = &self.buffer[..length];
                observer.observe(now, &Event::Output { rank: pipe.rank, stream: pipe.stream, bytes });
                (Look::Data, length)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => (Look::Nothing, 0),
            // The end of the file; a pipe has no other error that could pass.
            Ok(_) | Err(_) => {
                self.close(token, now, observer);
                (Look::End, 0)
            }
        }
    }

    fn close(&mut self, token: usize, now: Moment, observer: &mut dyn Observer) {
        if let Some(pipe) = self.open.get_mut(token).and_then(Option::take) {
            self.open_count -= 1;
            observer.observe(now, &Event::OutputClosed { rank: pipe.rank, stream: pipe.stream });
        }
    }
}
