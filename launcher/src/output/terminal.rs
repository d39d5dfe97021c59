//! The process's own stdout and stderr, written without a buffer in between.
//!
//! Owns what can go wrong there: a reader that went away is told once and never again, a descriptor that somebody
//! made non-blocking is waited for, and a text of anybody's may have characters in it that a terminal obeys.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Where bytes for people or programs go.
#[derive(Debug)]
pub(crate) enum Terminal {
    /// The process's stdout.
    Stdout(io::Stdout),
    /// The process's stderr.
    Stderr(io::Stderr),
}

impl Terminal {
    /// The process's stdout.
    pub(crate) fn stdout() -> Self {
        Self::Stdout(io::stdout())
    }

    /// The process's stderr.
    pub(crate) fn stderr() -> Self {
        Self::Stderr(io::stderr())
    }

    /// Whether a person looks at it: colours make sense then, unless they said no.
    pub(crate) fn is_terminal(&self) -> bool {
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

/// A text of anybody's (a path, an argument, a name) on one line as people may see it: what a terminal would obey is spelled
/// out, so that the name of a file can neither move the cursor nor pass for a line of ours.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let spell = |spelled: String, character: char| {
        if is_obeyed(character) {
            spelled + &character.escape_debug().to_string()
        } else {
            spelled + character.encode_utf8(&mut [0; 4])
        }
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), spell))
}

/// Whether a terminal obeys this character and does not show it: control characters, the ends of lines that Unicode has
/// beside them, and the marks that turn the order of what is shown.
pub(crate) fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints data to stdout. A reader that has seen enough (`| head`) is no failure; a full disk is.
///
/// # Errors
/// What the write said, but for a closed pipe.
pub(crate) fn print_data(bytes: &[u8]) -> io::Result<()> {
    match Terminal::stdout().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_spelled_out_and_all_else_stays() {
        for (text, expected) in [
            ("plain `it's` C:\\x \"q\"", "plain `it's` C:\\x \"q\""),
            ("Gro\u{308}ße 名前 😀", "Gro\u{308}ße 名前 😀"),
            ("a\x1b[31mb\r\n\tc\0\x7f\u{9b}", r"a\u{1b}[31mb\r\n\tc\0\u{7f}\u{9b}"),
            ("exe\u{202e}gnp\u{2028}", r"exe\u{202e}gnp\u{2028}"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }
}
