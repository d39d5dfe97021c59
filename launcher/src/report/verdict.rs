//! From how a run ended to how the launcher ends.
//!
//! Pure; the codes themselves are `torchlift_schema::exit_code`'s. The JSON report is the authority where a code says too little.

use torchlift_schema::exit_code;

use crate::event::{End, Outcome};

/// How the launcher itself ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With this code.
    Code(u8),
    /// By this signal, so that a shell or a service manager sees what ended it.
    DieBy(i32),
}

impl Verdict {
    /// The verdict on a run.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Code(exit_code::OK),
            Outcome::RankFailed { end, .. } => Self::Code(of_rank(end)),
            Outcome::Signaled { ranks_ran: false, .. } => Self::Code(exit_code::INTERRUPTED),
            Outcome::Signaled { signal, ranks_ran: true } => Self::DieBy(signal),
            Outcome::HostLost { .. } => Self::Code(exit_code::LOST_HOST),
        }
    }

    /// The code that a shell shows.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::DieBy(signal) => by_signal(signal),
        }
    }
}

/// Whether a rank's own code is one of those that the launcher keeps for itself.
pub(crate) fn is_ours(code: u8) -> bool {
    (exit_code::USAGE..=exit_code::RANK_USED_OUR_CODE).contains(&code)
}

fn of_rank(end: End) -> u8 {
    match end {
        End::Exited(code) if is_ours(code) => exit_code::RANK_USED_OUR_CODE,
        End::Exited(code) => code,
        End::Signaled { signal, .. } => by_signal(signal),
        End::NotStarted { .. } => exit_code::VERIFY,
        End::Lost => exit_code::LOST_HOST,
    }
}

/// 128 + signal, as shells have it. There is no signal above 64.
fn by_signal(signal: i32) -> u8 {
    128 + u8::try_from(signal.clamp(0, 64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{HostIndex, Rank};

    #[test]
    fn the_first_failing_rank_gives_the_code() {
        let failed = |end| Verdict::of(Outcome::RankFailed { rank: Rank(3), end });
        for (end, code) in [
            (End::Exited(1), 1),
            (End::Exited(127), 127),
            (End::Exited(199), 199),
            (End::Exited(200), 219),
            (End::Exited(203), 219),
            (End::Exited(219), 219),
            (End::Exited(220), 220),
            (End::Exited(255), 255),
            (End::Signaled { signal: 11, core: true }, 139),
            (End::Signaled { signal: 9, core: false }, 137),
            (End::Signaled { signal: 64, core: false }, 192),
            (End::Lost, 206),
        ] {
            assert_eq!(failed(end), Verdict::Code(code), "{end:?}");
        }
    }

    #[test]
    fn the_launcher_dies_by_the_signal_that_ended_its_ranks() {
        let signaled = |ranks_ran| Verdict::of(Outcome::Signaled { signal: 15, ranks_ran });
        assert_eq!(signaled(true), Verdict::DieBy(15));
        assert_eq!(signaled(true).exit_code(), 143);
        assert_eq!(signaled(false), Verdict::Code(208));
    }

    #[test]
    fn success_and_a_lost_host_have_codes_of_their_own() {
        assert_eq!(Verdict::of(Outcome::Success), Verdict::Code(0));
        assert_eq!(Verdict::of(Outcome::HostLost { host: HostIndex(1) }), Verdict::Code(206));
    }
}
