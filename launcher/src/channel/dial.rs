//! Dialling a channel.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream as BlockingUnixStream};

use nix::unistd::geteuid;
use tokio::net::{TcpStream, UnixStream};
use torchlift_schema::ChannelAddr;
use torchlift_schema::addr::UnixAddr;

use super::BoxStream;

/// Connects to an address.
///
/// # Errors
/// When nobody is there, somebody else is, or the address is none to dial ([`io::ErrorKind::Unsupported`], which does not pass).
pub(crate) async fn dial(addr: &ChannelAddr) -> io::Result<BoxStream> {
    let unsupported = |why: &'static str| Err(io::Error::new(io::ErrorKind::Unsupported, format!("`{addr}`: {why}")));
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
        ChannelAddr::Tcp(_) => return unsupported("plain TCP is for this machine alone"),
        ChannelAddr::Unix(UnixAddr::Any) => return unsupported("it names no socket"),
        ChannelAddr::Tls(_) => return unsupported("TLS is not there yet"),
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
