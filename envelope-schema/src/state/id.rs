//! How allocations, processes and those who speak for them are called.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::addr::ChannelAddr;
use crate::named::named;
use crate::rule;
use crate::tree::shown;

/// What an allocator calls one allocation: another one each time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct WorldId(pub String);

named!(WorldId = "hyperactor::reference::WorldId");

impl From<&str> for WorldId {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for WorldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a client calls one allocation, on every host of it: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::ALLOC_KEY))]
pub struct AllocKey(String);

/// A text that is no key of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no key of an allocation: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with a dot", shown(.text))]
pub struct IdError {
    text: String,
}

impl AllocKey {
    /// The key with this text.
    ///
    /// # Errors
    /// When it is not in the form.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        if rule::is_alloc_key(&text) { Ok(Self(text)) } else { Err(IdError { text }) }
    }

    /// Its text: usable as a segment of a URL and as a file's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AllocKey {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl FromStr for AllocKey {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl From<AllocKey> for String {
    fn from(key: AllocKey) -> Self {
        key.0
    }
}

impl fmt::Display for AllocKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A process: by its place in a world, or by an address of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProcId {
    /// The rank of a world.
    Ranked(WorldId, #[schemars(range(max = rule::MAX_SIZE))] usize),
    /// The process with this name at this address.
    Direct(ChannelAddr, String),
}

named!(ProcId = "hyperactor::reference::ProcId", [Ranked, Direct]);

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ranked(world, rank) => write!(f, "{world}[{rank}]"),
            Self::Direct(addr, name) => write!(f, "{addr},{name}"),
        }
    }
}

/// One who acts within a process: the process, a name, and the number among those of that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ActorId(ProcId, String, #[schemars(range(max = rule::MAX_SIZE))] usize);

named!(ActorId = "hyperactor::reference::ActorId");

impl ActorId {
    /// The one with this name and number in this process.
    pub fn new(proc_id: ProcId, name: impl Into<String>, number: usize) -> Self {
        Self(proc_id, name.into(), number)
    }

    /// Its process.
    pub fn proc_id(&self) -> &ProcId {
        &self.0
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}[{}]", self.0, self.1, self.2)
    }
}

/// A reference to the one who speaks for a process. The published type says too of which kind that is, within the program only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ActorRef {
    /// Who.
    actor_id: ActorId,
}

impl ActorRef {
    /// A reference to this one.
    pub fn new(actor_id: ActorId) -> Self {
        Self { actor_id }
    }

    /// Who.
    pub fn actor_id(&self) -> &ActorId {
        &self.actor_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_those_who_act_in_them_have_the_published_text() {
        let ranked = ProcId::Ranked(WorldId::from("test"), 3);
        assert_eq!(ranked.to_string(), "test[3]");
        assert_eq!(ActorId::new(ranked, "mesh", 0).to_string(), "test[3].mesh[0]");
        assert_eq!(ProcId::Direct(ChannelAddr::Local(7), "p".to_owned()).to_string(), "local:7,p");
    }

    #[test]
    fn a_key_can_be_a_part_of_a_path_and_nothing_else() {
        for good in ["a", "20261130-142305-abcd", "run_1.2", &"x".repeat(64)] {
            assert_eq!(AllocKey::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "a b", "ü", "a\n", "a?b", &"x".repeat(65)] {
            assert!(AllocKey::new(bad).is_err(), "{bad:?}");
        }
    }
}
