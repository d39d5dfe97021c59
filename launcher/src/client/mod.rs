//! The client of allocators: one allocation over many hosts, from the first `Allocate` to the last `Done`.
//!
//! Purpose, by file: [`split`] says which host has which ranks; `link` is one host's connection and `state` all of them, both
//! pure; `task` carries out what they say; `http` is how it travels, over a `stream`.
//! Must not know what ranks are for: who stops a run, and when, is decided by whoever holds the allocation.

mod http;
mod link;
#[cfg(test)]
mod simulation;
pub mod split;
mod state;
mod stream;
mod task;

pub use link::Patience;
pub use split::SplitError;
pub use state::{AllocEvent, AllocSpec, HostSpec};
pub use task::RemoteProcessAlloc;
