//! Reading control messages: bounded, path-aware, and without trust in who sent them.

use serde::de::DeserializeOwned;

use super::{ControlReply, RecordLine, RemoteProcessAllocatorMessage, validity};
use crate::error::{EnvelopeError, first_of};
use crate::finding::Finding;
use crate::state::RemoteProcessProcStateMessage;
use crate::tree::Node;
use crate::{limit, shape};

/// Bytes that a message may have: an `Allocate` with the environment of 1,000 ranks has about 1 MB.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Why a message was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// More bytes than [`MAX_BYTES`]; nothing of it was parsed.
    #[error("{size} bytes, and a message has at most {limit}")]
    TooLarge {
        /// Bytes that were given.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// No JSON, or not in the form of the message.
    #[error("{0}")]
    Form(EnvelopeError),
    /// Values that no message means: all of them. `Display` has the first and how many more there are.
    #[error("{}", first_of(.findings))]
    Values {
        /// One a broken rule, with the path of the key in its place.
        findings: Vec<Finding>,
    },
}

impl MessageError {
    /// A stable kebab-case name of the variant, as in a finding.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "message-too-large",
            Self::Form(_) => "message-form",
            Self::Values { .. } => "message-values",
        }
    }

    /// Path of the key that is wrong, where one is; [`MessageError::Values`] has one in each finding.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::TooLarge { .. } | Self::Values { .. } => None,
            Self::Form(error) => error.path(),
        }
    }

    /// What to do next: a lower-case fragment.
    pub fn hint(&self) -> &'static str {
        "the messages and their schemas are in `docs/protocol.md`; both sides may be of different releases"
    }
}

/// Reads what a client sent to an allocator.
///
/// # Errors
/// When it is too large, no JSON, no such message, or has values that mean nothing.
pub fn allocator_message(bytes: &[u8]) -> Result<RemoteProcessAllocatorMessage, MessageError> {
    hold(read(bytes)?, validity::of_allocator)
}

/// Reads what an allocator sent to a client.
///
/// # Errors
/// When it is too large, no JSON, no such message, or has values that mean nothing.
pub fn state_message(bytes: &[u8]) -> Result<RemoteProcessProcStateMessage, MessageError> {
    hold(read(bytes)?, validity::of_state)
}

/// Reads an allocator's answer.
///
/// # Errors
/// When it is too large, no JSON, or no such answer.
pub fn control_reply(bytes: &[u8]) -> Result<ControlReply, MessageError> {
    read(bytes)
}

/// Reads a line of a record.
///
/// # Errors
/// When it is too large, no JSON, no such line, or has values that mean nothing.
pub fn record_line(bytes: &[u8]) -> Result<RecordLine, MessageError> {
    hold(read(bytes)?, |line: &RecordLine| validity::of_state(&line.message))
}

fn hold<T>(message: T, rules: fn(&T) -> Vec<Finding>) -> Result<T, MessageError> {
    let findings = rules(&message);
    if findings.is_empty() { Ok(message) } else { Err(MessageError::Values { findings }) }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    let text = limit::within(bytes, MAX_BYTES).map_err(|error| match error {
        EnvelopeError::TooLarge { size, limit } => MessageError::TooLarge { size, limit },
        other => MessageError::Form(other),
    })?;
    let node = Node::parse(text).map_err(MessageError::Form)?;
    shape::read(&node).map_err(MessageError::Form)
}
