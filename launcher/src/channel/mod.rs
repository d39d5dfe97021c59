//! Channels: from an address to a stream of bytes, served or dialled, and the order of messages over it.
//!
//! Owns which addresses may be used how: a Unix socket by its own user, plain TCP on loopback and with a token, TLS by those
//! who have a certificate for it. Must not know what the messages say.

pub(crate) mod dial;
pub(crate) mod listen;
pub(crate) mod sequence;
pub(crate) mod tls;
pub(crate) mod token;

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Any of them.
pub(crate) type BoxStream = Box<dyn Stream>;
