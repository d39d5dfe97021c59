//! The process's own stdout and stderr, written without a buffer in between.
//!
//! Owns what can go wrong there: a reader that went away is told once and never again, a descriptor that somebody
//! made non-blocking is waited for.

use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Where bytes for people or programs go.
#[derive(Debug)]
pub enum Terminal {
    /// The process's stdout.
    Stdout(io::Stdout),
    /// The process's stderr.
    Stderr(io::Stderr),
}

impl Terminal {
    /// The process's stdout.
    pub fn stdout() -> Self {
        Self::Stdout(io::stdout())
    }

    /// The process's stderr.
    pub fn stderr() -> Self {
        Self::Stderr(io::stderr())
    }

    /// Whether a person looks at it: colours make sense then, unless they said no.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Stdout(stdout) => stdout.is_terminal(),
            Self::Stderr(stderr) => stderr.is_terminal(),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdout(stdout) => stdout.as_fd(),
            Self::Stderr(stderr) => stderr.as_fd(),
        }
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::write(self.fd(), bytes) {
                // Another program on the same terminal made it non-blocking: wait as a blocking one would.
                Err(Errno::EAGAIN) => {
                    let _ = poll(&mut [PollFd::new(self.fd(), PollFlags::POLLOUT)], PollTimeout::NONE);
                }
                Err(Errno::EINTR) => {}
                result => return result.map_err(io::Error::from),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints data to stdout. A reader that has seen enough (`| head`) is no failure; a full disk is.
///
/// # Errors
/// What the write said, but for a closed pipe.
pub fn print_data(bytes: &[u8]) -> io::Result<()> {
    match Terminal::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
