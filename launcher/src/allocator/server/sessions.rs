//! Sessions: the order of a client's messages, whichever connection they come by.
//!
//! A session lives while it has a connection or an allocation. Its messages are numbered from 1; a repeated one gets the answer
//! that it got before, and one that comes too early is told which is expected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use torchlift_schema::control::ControlReply;

use crate::channel::sequence::{Receiver, Verdict};

/// Sessions that are remembered without a connection, at most: the one that was used longest ago goes first.
const MOST_AWAY: usize = 256;

/// Every session of an allocator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    by_name: BTreeMap<String, Session>,
    uses: u64,
}

#[derive(Debug, Default)]
struct Session {
    connections: usize,
    last_use: u64,
    /// Held while a message is being answered, so that messages of one session go one after the other.
    order: Arc<tokio::sync::Mutex<Order>>,
}

/// How far a session is.
#[derive(Debug, Default)]
pub(crate) struct Order {
    receiver: Receiver,
    /// The answer to the last message.
    last: Option<ControlReply>,
}

impl Order {
    /// What a numbered message is answered with, unless it is the one that is due: then [`Self::answered`] has to follow.
    pub(crate) fn look(&self, number: u64) -> Option<ControlReply> {
        match (self.receiver.look(number), &self.last) {
            (Verdict::Gap { expected }, _) => Some(ControlReply::Gap { expected }),
            (Verdict::Repeat, Some(last)) => Some(last.clone()),
            (Verdict::Repeat, None) | (Verdict::Act, _) => None,
        }
    }

    /// The message that was due got this answer.
    pub(crate) fn answered(&mut self, reply: ControlReply) {
        self.receiver.act();
        self.last = Some(reply);
    }
}

impl Sessions {
    /// The order of a session. It is made when it is not there.
    pub(crate) fn order(&self, session: &str) -> Arc<tokio::sync::Mutex<Order>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&all.touch(session).order)
    }

    /// A connection takes part in a session; says whether it had none before.
    pub(crate) fn join(&self, session: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.touch(session);
        entry.connections += 1;
        entry.connections == 1
    }

    /// A connection of a session closed; says whether it was the last.
    pub(crate) fn leave(&self, session: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.touch(session);
        entry.connections = entry.connections.saturating_sub(1);
        let is_last = entry.connections == 0;
        all.forget_oldest();
        is_last
    }
}

impl All {
    fn touch(&mut self, session: &str) -> &mut Session {
        self.uses += 1;
        let entry = self.by_name.entry(session.to_owned()).or_default();
        entry.last_use = self.uses;
        entry
    }

    fn forget_oldest(&mut self) {
        let away = self.by_name.iter().filter(|(_, session)| session.connections == 0);
        let mut away: Vec<(u64, String)> = away.map(|(name, session)| (session.last_use, name.clone())).collect();
        away.sort();
        for (_, name) in away.iter().take(away.len().saturating_sub(MOST_AWAY)) {
            self.by_name.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_there_while_a_connection_is() {
        let sessions = Sessions::default();
        assert!(sessions.join("a"));
        assert!(!sessions.join("a"));
        assert!(!sessions.leave("a"));
        assert!(sessions.leave("a"));
        assert!(sessions.join("a"), "it comes back");
    }

    #[test]
    fn sessions_without_connections_do_not_pile_up() {
        let sessions = Sessions::default();
        sessions.join("stays");
        for number in 0..2000 {
            let name = number.to_string();
            sessions.join(&name);
            sessions.leave(&name);
        }
        let count = sessions.0.lock().unwrap().by_name.len();
        assert!(count <= MOST_AWAY + 1, "{count}");
        assert!(!sessions.join("stays"));
    }
}
