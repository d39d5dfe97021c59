//! How a host is reached: each way brings an allocator up on the host and gives back a connection to it.

#[cfg(feature = "net")]
pub mod agent;
pub mod local;

#[cfg(feature = "net")]
pub use agent::Agent;

/// A way to a host's allocator.
#[cfg(feature = "net")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reach {
    /// One that a service manager keeps up.
    Agent(Agent),
}

#[cfg(feature = "net")]
impl Reach {
    /// Makes a connection, a new one each time.
    pub(crate) async fn connect(&self) -> std::io::Result<crate::channel::BoxStream> {
        match self {
            Self::Agent(agent) => agent.connect().await,
        }
    }

    /// Why the other side and this one do not trust each other, where an error says so: then it does not pass.
    pub(crate) fn refusal(&self, error: &std::io::Error) -> Option<String> {
        match self {
            Self::Agent(agent) => agent.refusal(error),
        }
    }

    /// The secret that each request shows, where the connection itself proves nothing.
    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.token(),
        }
    }
}
