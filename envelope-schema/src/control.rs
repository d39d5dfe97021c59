//! What a client asks of an allocator.
//!
//! Owns `RemoteProcessAllocatorMessage` with the published variants and fields, our terms behind them, and the reader of control
//! messages: bounded, path-aware, and without trust in who sent them. Must not act on one.
//!
//! When you change this: the list in [`crate::state`] holds here too.

mod message;
mod read;
mod reply;
mod validity;

pub use message::{ClientContext, RemoteProcessAllocatorMessage, Terms};
pub use read::{MAX_BYTES, MessageError, allocator_message, control_reply, record_line, state_message};
pub use reply::{ControlReply, Holder, RecordLine};
