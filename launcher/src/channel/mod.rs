//! Channels: from an address to a stream of bytes, served or dialled, and the order of messages over it.
//!
//! Owns which addresses may be used how: a Unix socket by its own user, plain TCP on loopback and with a token, TLS by those
//! who have a certificate for it. Must not know what the messages say.

pub(crate) mod dial;
pub(crate) mod listen;
pub(crate) mod sequence;
pub(crate) mod tls;
pub(crate) mod token;

use hyper::header::HeaderName;
use tokio::io::{AsyncRead, AsyncWrite};

/// The session that a message belongs to: a connection of its own where it is missing.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("torchlift-session");
/// The number of a message in its session, from 1.
pub(crate) const SEQUENCE: HeaderName = HeaderName::from_static("torchlift-seq");

/// A stream of bytes in both directions.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Any of them.
pub(crate) type BoxStream = Box<dyn Stream>;
