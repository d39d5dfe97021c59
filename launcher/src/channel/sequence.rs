//! The order of messages in one direction: numbered from 1, one at a time, each acted on once.
//!
//! Pure. A message that comes again is answered again and not acted on; one that comes too early is answered with the number
//! that is expected, and its sender goes on from there.

/// What a receiver does with a numbered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next one.
    Act,
    /// It is the last one once more: give the same answer.
    Repeat,
    /// Another one is due.
    Gap {
        /// Its number.
        expected: u64,
    },
}

/// The receiving side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receiver {
    acted: u64,
}

impl Receiver {
    /// What to do with the message of this number.
    pub(crate) fn look(self, number: u64) -> Verdict {
        match number {
            number if number == self.acted + 1 => Verdict::Act,
            number if number == self.acted && number > 0 => Verdict::Repeat,
            _ => Verdict::Gap { expected: self.acted + 1 },
        }
    }

    /// The message that was due has been acted on.
    pub(crate) fn act(&mut self) {
        self.acted += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_next_is_acted_on_the_last_repeated_and_any_other_refused() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.look(0), Verdict::Gap { expected: 1 });
        assert_eq!(receiver.look(2), Verdict::Gap { expected: 1 });
        assert_eq!(receiver.look(1), Verdict::Act);
        receiver.act();
        assert_eq!(receiver.look(1), Verdict::Repeat);
        assert_eq!(receiver.look(2), Verdict::Act);
        receiver.act();
        assert_eq!(receiver.look(1), Verdict::Gap { expected: 3 });
        assert_eq!(receiver.look(u64::MAX), Verdict::Gap { expected: 3 });
    }

    proptest! {
        // A sender that goes to the expected number at each gap, over a network that loses, repeats and holds back.
        #[test]
        fn every_message_is_acted_on_once_and_in_order(faults in prop::collection::vec(0..5_u8, 0..200)) {
            let (mut receiver, mut acted, mut next, mut held) = (Receiver::default(), Vec::new(), 1_u64, Vec::new());
            let mut arrive = |number: u64, next: &mut u64| match receiver.look(number) {
                Verdict::Act => {
                    receiver.act();
                    acted.push(number);
                    *next = (*next).max(number + 1);
                }
                Verdict::Repeat => *next = (*next).max(number + 1),
                Verdict::Gap { expected } => *next = expected,
            };
            for fault in faults {
                let number = next;
                match fault {
                    0 => next += 1,
                    1 => held.push(number),
                    2 => {
                        arrive(number, &mut next);
                        arrive(number, &mut next);
                    }
                    3 => held.pop().into_iter().for_each(|late| arrive(late, &mut next)),
                    _ => arrive(number, &mut next),
                }
            }
            prop_assert_eq!(&acted, &(1..=acted.len() as u64).collect::<Vec<_>>());
        }
    }
}
