//! What a signal does between cargo's end and the first rename: it ends the build at once.
//!
//! Files that are copied are taken back by whoever holds them, when the error reaches them. Must not be asked once
//! renaming has begun: that takes a moment, and is then done to its end.

use std::io;
use std::os::fd::AsFd as _;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use torchlift_schema::exit_code;

use crate::cargo::Signals;
use crate::error::CommandError;

/// The signals of a build, and what it builds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupt<'a> {
    /// Held back since before cargo was started.
    pub(super) signals: &'a Signals,
    /// The program's name.
    pub(super) program: &'a str,
}

impl Interrupt<'_> {
    /// An error when a signal came.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        self.signals.take().map_or(Ok(()), |signal| Err(self.interrupted(signal)))
    }

    /// Does `work` in a thread of its own, and leaves it there when a signal comes: gigabytes of libraries are read.
    ///
    /// The thread then lives until the process ends, so that `work` must only read and own nothing that lies on disk.
    pub(super) fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, CommandError> {
        let failed = |error: io::Error| {
            CommandError::new(exit_code::BUILD, format!("`{}` cannot be verified", self.program)).because(error)
        };
        // Its end is the end of the work, a panic too.
        let (reader, writer) = io::pipe().map_err(failed)?;
        let spawned = thread::Builder::new().name("verify".to_owned()).spawn(move || {
            let _end = writer;
            work()
        });
        let thread = spawned.map_err(failed)?;
        loop {
            let mut ready = [self.signals.as_fd(), reader.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            self.check()?;
            if ready[1].any().unwrap_or(false) {
                return Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        }
    }

    fn interrupted(&self, signal: Signal) -> CommandError {
        CommandError::new(exit_code::INTERRUPTED, format!("`{}` was built and not published", self.program))
            .because(format!("interrupted by {signal}"))
            .hint("build again: what was compiled is kept")
    }
}
