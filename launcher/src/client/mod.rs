//! The client of allocators: one allocation over many hosts, from the first `Allocate` to the last `Done`.
//!
//! Purpose, by file: [`split`] says which host has which ranks; `link` is one host's connection and `state` all of them, both
//! pure; `task` carries out what they say; `http` is how it travels, over a `stream`. `crate::dispatcher` carries out the same for
//! allocators in its own process.
//! Must not know what ranks are for: who stops a run, and when, is decided by whoever holds the allocation.

#[cfg(feature = "net")]
mod http;
pub(crate) mod link;
#[cfg(test)]
#[cfg(feature = "net")]
mod simulation;
pub mod split;
pub(crate) mod state;
#[cfg(feature = "net")]
mod stream;
#[cfg(feature = "net")]
mod task;

pub use link::Patience;
pub use split::SplitError;
pub use state::{AllocEvent, AllocSpec, HostSpec};
#[cfg(feature = "net")]
pub use task::RemoteProcessAlloc;
