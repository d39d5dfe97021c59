//! Dialling a channel.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream as BlockingUnixStream};
use std::sync::Arc;

use nix::unistd::geteuid;
use tokio::net::{TcpStream, UnixStream};
use torchlift_schema::ChannelAddr;
use torchlift_schema::addr::UnixAddr;

use super::{BoxStream, tls};
use crate::keys::Credentials;
use crate::keys::tls::refusal::explain_io;

/// Who dials, and what it shows.
#[derive(Clone, Debug)]
pub(crate) struct Dialler {
    identity: Option<Arc<Credentials>>,
    speaks: Speaks,
}

/// What is offered over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/2, and HTTP/1.1 with those who know nothing newer.
    Any,
    /// HTTP/1.1 alone.
    Http1,
}

impl Dialler {
    /// One that shows this identity where it is asked for one: a client's to an allocator, a host's to a launcher.
    pub(crate) fn new(identity: Arc<Credentials>) -> Self {
        Self { identity: Some(identity), speaks: Speaks::Any }
    }

    /// One that has nothing to show: it dials what is on this machine.
    pub(crate) fn plain() -> Self {
        Self { identity: None, speaks: Speaks::Any }
    }

    /// The same for those who speak HTTP/1.1 alone.
    pub(crate) fn for_http1(self) -> Self {
        Self { speaks: Speaks::Http1, ..self }
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// When nobody is there, somebody else is, or the address is none to dial ([`io::ErrorKind::Unsupported`], which does not
    /// pass).
    pub(crate) async fn dial(&self, addr: &ChannelAddr) -> io::Result<BoxStream> {
        let unsupported =
            |why: &'static str| Err(io::Error::new(io::ErrorKind::Unsupported, format!("`{addr}`: {why}")));
        let stream = match addr {
            ChannelAddr::Tcp(socket) if socket.ip().is_loopback() => {
                let stream = TcpStream::connect(socket).await?;
                stream.set_nodelay(true)?;
                return Ok(Box::new(stream));
            }
            ChannelAddr::Unix(UnixAddr::Path(path)) => UnixStream::connect(path).await?,
            ChannelAddr::Unix(UnixAddr::Abstract(name)) => {
                let stream = BlockingUnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream)?
            }
            ChannelAddr::Tls(to) => match &self.identity {
                Some(identity) => return tls::dial(identity, addr, to, self.speaks).await,
                None => return unsupported("there are no keys to show, and `--keys DIR` names them"),
            },
            ChannelAddr::Tcp(_) => return unsupported("plain TCP is for this machine alone"),
            ChannelAddr::Unix(UnixAddr::Any) => return unsupported("it names no socket"),
            ChannelAddr::MetaTls(_) => return unsupported("it is the publisher's own"),
            ChannelAddr::Local(_) => return unsupported("it is within a process"),
            ChannelAddr::Caller => return unsupported("it is the way back of a connection"),
        };
        let uid = stream.peer_cred()?.uid();
        if uid != geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("`{addr}` is served by user {uid}")));
        }
        Ok(Box::new(stream))
    }

    /// Why TLS ended a connection to this address, in words, and what to do next; none when it did not. What the other side has against ours comes
    /// with the first read, after the connection was made.
    pub(crate) fn refusal(&self, addr: &ChannelAddr, error: &io::Error) -> Option<String> {
        let refusal = explain_io(error, &self.identity.as_ref()?.role(), &format!("`{addr}`"))?;
        Some(format!("{refusal}; {}", refusal.next))
    }
}
