//! `torchlift serve`: real allocators, real ranks, and `curl` as the client that knows nothing of ours.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod allocation;
mod allocator;
mod arguments;
mod channel;
mod client;
mod dialled;
mod documentation;
mod look;
mod loss;
mod output;
mod tls;
