//! What the launcher and its guard say to each other.
//!
//! Both are the same file on disk, so frames carry no version: four words in the machine's own order.
//! What does not fit travels beside the frame: a rank's command as a letter or a memfd, its pipes as file descriptors.

use nix::libc;

use crate::event::{End, StartStep};

/// One message: a tag and three words.
pub(crate) type Frame = [u32; 4];

/// From the launcher to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Start this rank. The write ends of its two pipes come along, and its command: as the letter, or in a memfd before them.
    Spawn {
        /// The rank's number, given back in reports.
        rank: u32,
    },
    /// Send this signal to the ranks' process groups.
    SignalRanks {
        /// The signal's number.
        signal: i32,
    },
    /// Send this signal to every descendant.
    SignalAll {
        /// The signal's number.
        signal: i32,
    },
    /// SIGKILL for every descendant, until none is left.
    Kill,
}

/// From the guard to the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The guard runs and waits for requests.
    Ready,
    /// A rank runs.
    Started {
        /// The rank's number.
        rank: u32,
        /// Its process id.
        pid: u32,
    },
    /// A rank could not be started.
    NotStarted {
        /// The rank's number.
        rank: u32,
        /// What failed.
        step: StartStep,
        /// Why.
        errno: i32,
    },
    /// A rank ended.
    Ended {
        /// The rank's number.
        rank: u32,
        /// Its wait status, as `waitpid` gave it.
        status: i32,
    },
    /// No descendant is alive any more.
    Empty,
}

impl Request {
    pub(crate) fn encode(self) -> Frame {
        match self {
            Self::Spawn { rank } => [1, rank, 0, 0],
            Self::SignalRanks { signal } => [2, signal.cast_unsigned(), 0, 0],
            Self::SignalAll { signal } => [3, signal.cast_unsigned(), 0, 0],
            Self::Kill => [4, 0, 0, 0],
        }
    }

    /// None for a frame that no launcher sends.
    pub(crate) fn decode(frame: Frame) -> Option<Self> {
        match frame {
            [1, rank, _, _] => Some(Self::Spawn { rank }),
            [2, signal, _, _] => Some(Self::SignalRanks { signal: signal.cast_signed() }),
            [3, signal, _, _] => Some(Self::SignalAll { signal: signal.cast_signed() }),
            [4, ..] => Some(Self::Kill),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn encode(self) -> Frame {
        match self {
            Self::Ready => [1, 0, 0, 0],
            Self::Started { rank, pid } => [2, rank, pid, 0],
            Self::NotStarted { rank, step, errno } => [3, rank, step_word(step), errno.cast_unsigned()],
            Self::Ended { rank, status } => [4, rank, status.cast_unsigned(), 0],
            Self::Empty => [5, 0, 0, 0],
        }
    }

    /// None for a frame that no guard sends.
    pub(crate) fn decode(frame: Frame) -> Option<Self> {
        match frame {
            [1, ..] => Some(Self::Ready),
            [2, rank, pid, _] => Some(Self::Started { rank, pid }),
            [3, rank, step, errno] => {
                Some(Self::NotStarted { rank, step: word_step(step)?, errno: errno.cast_signed() })
            }
            [4, rank, status, _] => Some(Self::Ended { rank, status: status.cast_signed() }),
            [5, ..] => Some(Self::Empty),
            _ => None,
        }
    }
}

fn step_word(step: StartStep) -> u32 {
    match step {
        StartStep::Fork => 0,
        StartStep::Folder => 1,
        StartStep::Program => 2,
    }
}

fn word_step(word: u32) -> Option<StartStep> {
    match word {
        0 => Some(StartStep::Fork),
        1 => Some(StartStep::Folder),
        2 => Some(StartStep::Program),
        _ => None,
    }
}

/// What a wait status says. Only statuses of processes that ended are asked for.
pub(crate) fn end_of(status: i32) -> End {
    if libc::WIFSIGNALED(status) {
        End::Signaled { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }
    } else {
        End::Exited(libc::WEXITSTATUS(status) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_back_as_it_was_sent() {
        let requests = [
            Request::Spawn { rank: u32::MAX },
            Request::SignalRanks { signal: 15 },
            Request::SignalAll { signal: 2 },
            Request::Kill,
        ];
        for request in requests {
            assert_eq!(Request::decode(request.encode()), Some(request));
        }
        let steps = [StartStep::Fork, StartStep::Folder, StartStep::Program];
        let not_started = steps.map(|step| Report::NotStarted { rank: 3, step, errno: libc::ENOENT });
        let others = [
            Report::Ready,
            Report::Started { rank: 1, pid: 4_194_304 },
            Report::Ended { rank: 2, status: -1 },
            Report::Empty,
        ];
        for report in not_started.into_iter().chain(others) {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
    }

    #[test]
    fn a_frame_that_nobody_sends_is_not_understood() {
        assert_eq!(Request::decode([0; 4]), None);
        assert_eq!(Report::decode([9, 0, 0, 0]), None);
        assert_eq!(Report::decode([3, 0, 7, 0]), None);
    }

    #[test]
    fn a_wait_status_tells_a_code_from_a_signal() {
        assert_eq!(end_of(3 << 8), End::Exited(3));
        assert_eq!(end_of(11 | 0x80), End::Signaled { signal: 11, core: true });
        assert_eq!(end_of(9), End::Signaled { signal: 9, core: false });
    }
}
