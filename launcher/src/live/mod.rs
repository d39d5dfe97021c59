//! A run as it is asked from another terminal: over a socket of its user alone, as long as it lives.
//!
//! Purpose, by file: `message` is what is asked and answered, `place` where sockets lie, `snapshot` what a run knows of itself,
//! `door` the thread that answers, `ask` the other side. Must not decide about a run: a stop is a signal to its process, as
//! anybody's would be.

mod ask;
mod door;
pub(crate) mod message;
mod place;
mod snapshot;

pub(crate) use ask::{Living, Look, look, stop, sweep, watch};
pub(crate) use door::Live;
