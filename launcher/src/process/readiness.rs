//! An epoll as something that tokio can wait for.
//!
//! Whoever has a loop of its own over an epoll waits for it here, beside channels and timers. Must not read the epoll's events.

#![expect(unsafe_code, reason = "tokio wants a promise that the descriptor stays open and the same")]

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::epoll::Epoll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An epoll, registered with the runtime.
#[derive(Debug)]
pub(crate) struct Readiness(AsyncFd<Owned>);

#[derive(Debug)]
struct Owned(Epoll);

impl AsRawFd for Owned {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

impl Readiness {
    /// Registers an epoll. Has to be called within a runtime.
    ///
    /// # Errors
    /// When the runtime's own epoll takes no more.
    pub(crate) fn of(epoll: Epoll) -> io::Result<Self> {
        // SAFETY: the epoll is owned and never exchanged, so that its descriptor is open and the same for as long.
        let registered = unsafe { AsyncFd::register_with_interest(Owned(epoll), Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// The epoll itself.
    pub(crate) fn epoll(&self) -> &Epoll {
        &self.0.get_ref().0
    }

    /// Waits until it has an event. It tells once: all that is there has to be taken before it is waited for again.
    ///
    /// # Errors
    /// When the runtime is ending.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
