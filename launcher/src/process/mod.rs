//! Processes: the guard, the spawning of ranks, the tree below them.
//!
//! Owns every system call about processes and signals, and with them this crate's only `unsafe` code beside `preflight::map`.
//! Must not decide anything: `crate::state` decides, [`crate::dispatcher`] acts.
//!
//! ```text
//! launcher (subreaper) ── SOCK_SEQPACKET ── guard (subreaper, own session) ── ranks (own process group each) ── …
//! ```

pub(crate) mod channel;
pub mod guard;
pub(crate) mod handle;
pub(crate) mod limit;
pub mod marked;
pub(crate) mod message;
pub(crate) mod owner;
#[cfg(feature = "net")]
pub(crate) mod readiness;
pub mod signal;
pub mod spawn;
pub(crate) mod tree;
pub mod watchdog;
