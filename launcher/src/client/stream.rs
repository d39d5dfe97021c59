//! A stream that remembers why it was refused.
//!
//! What the other side of TLS has against a certificate comes with the first read, and HTTP/2 passes on no more of it than that
//! reading failed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::channel::BoxStream;
use crate::reach::Reach;

/// Why a connection was refused, once it was.
pub(super) type Refusal = Arc<OnceLock<String>>;

/// A stream over which somebody else speaks.
pub(super) struct Watched {
    stream: BoxStream,
    way: Reach,
    refusal: Refusal,
}

impl Watched {
    pub(super) fn new(stream: BoxStream, way: Reach) -> (Self, Refusal) {
        let refusal = Refusal::default();
        (Self { stream, way, refusal: Arc::clone(&refusal) }, refusal)
    }

    fn look<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled
            && let Some(refusal) = self.way.refusal(error)
        {
            // The first one is the reason.
            let _ = self.refusal.set(refusal);
        }
        polled
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.look(polled)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.look(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.look(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.look(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
