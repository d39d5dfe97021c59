//! Serving a channel: who may connect, and what is known of whoever does.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;
use tokio::net::{TcpListener, UnixListener};
use torchlift_schema::ChannelAddr;
use torchlift_schema::addr::{HostPort, UnixAddr};

use super::BoxStream;
use super::tls::Stranger;
use crate::keys::Credentials;

/// Why a channel cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// Not an address that anybody could be served at.
    #[error("`{addr}` cannot be served: {why}")]
    Kind {
        /// The address.
        addr: ChannelAddr,
        /// Why not.
        why: &'static str,
    },
    /// Plain TCP beyond this machine.
    #[error("`{addr}` is no loopback address: plain TCP is for this machine alone")]
    NotLoopback {
        /// The address.
        addr: ChannelAddr,
    },
    /// A name that leads nowhere.
    #[error("`{addr}` cannot be served: its name leads to no address")]
    Unresolved {
        /// The address.
        addr: ChannelAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// An address of another machine.
    #[error("`{addr}` cannot be served: {} of another machine", shown(.found))]
    Elsewhere {
        /// The address.
        addr: ChannelAddr,
        /// What its name leads to.
        found: Vec<SocketAddr>,
    },
    /// Somebody serves there.
    #[error("`{addr}` is served already")]
    Taken {
        /// The address.
        addr: ChannelAddr,
    },
    /// The path is something else.
    #[error("`{}` is there and is no socket", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// Others may put another socket in its place.
    #[error("the folder `{}` can be written by others (mode {mode:04o})", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The system.
    #[error("`{addr}` cannot be served")]
    System {
        /// The address.
        addr: ChannelAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl ListenError {
    /// What to do next.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Kind { .. } | Self::NotLoopback { .. } => {
                "listen on `unix:PATH`, `unix:@NAME`, `tcp:127.0.0.1:PORT` or `tls:HOST:PORT`"
            }
            Self::Unresolved { .. } | Self::Elsewhere { .. } => {
                "listen on an address of this machine, or on `tls:0.0.0.0:PORT` for all of them; clients may dial any name that is in the certificate"
            }
            Self::Taken { .. } => "stop the other one, or choose another address",
            Self::NoSocket { .. } => "choose another path, or move away what is there",
            Self::Folder { .. } => "choose a folder of your own, such as one below `$XDG_RUNTIME_DIR`, with mode 0700",
            Self::System { .. } => "choose another address",
        }
    }
}

/// A served channel. Dropping it ends that, and removes a socket's file.
#[derive(Debug)]
pub(crate) struct Listener {
    kind: Kind,
    addr: ChannelAddr,
    file: Option<PathBuf>,
}

#[derive(Debug)]
enum Kind {
    Unix(UnixListener),
    Tcp(TcpListener),
    Tls(Vec<TcpListener>, Arc<Credentials>),
}

/// Whoever connected.
pub(crate) enum Arrival {
    /// Somebody of whom this is known.
    Known(BoxStream, Proof),
    /// Somebody who has yet to show a certificate.
    Stranger(Stranger),
}

/// What a connection proves of its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It is this user.
    User(u32),
    /// Nothing: it has to show a token.
    Nothing,
}

impl Listener {
    /// Serves this address, one of TLS with these keys. A socket's file has mode 0600 from its first moment, and one that nobody
    /// serves any more is replaced.
    ///
    /// # Errors
    /// When the address is none to serve, is served, or the system refuses it.
    pub(crate) async fn bind(addr: &ChannelAddr, credentials: Option<Arc<Credentials>>) -> Result<Self, ListenError> {
        let system = |source| ListenError::System { addr: addr.clone(), source };
        let refused = |why| Err(ListenError::Kind { addr: addr.clone(), why });
        match addr {
            ChannelAddr::Unix(UnixAddr::Path(path)) => {
                let path = PathBuf::from(path);
                make_way(addr, &path)?;
                let before = umask(Mode::from_bits_truncate(0o177));
                let bound = UnixListener::bind(&path);
                umask(before);
                let kind = Kind::Unix(bound.map_err(system)?);
                Ok(Self { kind, addr: addr.clone(), file: Some(path) })
            }
            ChannelAddr::Unix(UnixAddr::Abstract(name)) => {
                let bound = abstract_listener(name).and_then(UnixListener::from_std);
                match bound {
                    Ok(bound) => Ok(Self { kind: Kind::Unix(bound), addr: addr.clone(), file: None }),
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        Err(ListenError::Taken { addr: addr.clone() })
                    }
                    Err(error) => Err(system(error)),
                }
            }
            ChannelAddr::Unix(UnixAddr::Any) => refused("it names no socket"),
            ChannelAddr::Tcp(socket) if !socket.ip().is_loopback() => {
                Err(ListenError::NotLoopback { addr: addr.clone() })
            }
            ChannelAddr::Tcp(socket) => match TcpListener::bind(socket).await {
                Ok(bound) => {
                    let addr = ChannelAddr::Tcp(bound.local_addr().map_err(system)?);
                    Ok(Self { kind: Kind::Tcp(bound), addr, file: None })
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    Err(ListenError::Taken { addr: addr.clone() })
                }
                Err(error) => Err(system(error)),
            },
            ChannelAddr::Tls(to) => {
                let Some(credentials) = credentials else { return refused("there are no keys to show") };
                let (bound, port) = everywhere(addr, to).await?;
                let to = HostPort::new(to.host(), port).map_err(|error| system(io::Error::other(error)))?;
                Ok(Self { kind: Kind::Tls(bound, credentials), addr: ChannelAddr::Tls(to), file: None })
            }
            ChannelAddr::MetaTls(_) => refused("it is the publisher's own"),
            ChannelAddr::Local(_) => refused("it is within a process"),
            ChannelAddr::Caller => refused("it is the way back of a connection"),
        }
    }

    /// The address, with the port that the system chose.
    pub(crate) fn addr(&self) -> &ChannelAddr {
        &self.addr
    }

    /// Whether whoever connects proves nothing by that, and has to show a token.
    pub(crate) fn meets_guests(&self) -> bool {
        matches!(self.kind, Kind::Tcp(..))
    }

    /// Whether whoever connects is a stranger.
    pub(crate) fn meets_strangers(&self) -> bool {
        matches!(self.kind, Kind::Tls(..))
    }

    /// The next connection. One of another user is closed without a word and not told of.
    ///
    /// # Errors
    /// When the system has no room for another one; that passes.
    pub(crate) async fn accept(&self) -> io::Result<Arrival> {
        loop {
            match &self.kind {
                Kind::Unix(listener) => {
                    let (stream, _) = listener.accept().await?;
                    let uid = stream.peer_cred()?.uid();
                    if uid == geteuid().as_raw() {
                        return Ok(Arrival::Known(Box::new(stream), Proof::User(uid)));
                    }
                }
                Kind::Tcp(listener) => {
                    let (stream, _) = listener.accept().await?;
                    stream.set_nodelay(true)?;
                    return Ok(Arrival::Known(Box::new(stream), Proof::Nothing));
                }
                Kind::Tls(listeners, credentials) => {
                    let any = poll_fn(|context| {
                        let mut ready = listeners.iter().map(|listener| listener.poll_accept(context));
                        ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
                    });
                    let (stream, peer) = any.await?;
                    return Ok(Arrival::Stranger(Stranger::new(stream, peer, credentials)));
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs_err::remove_file(file);
        }
    }
}

/// Listens on every address of this machine that a name leads to, at one port.
async fn everywhere(addr: &ChannelAddr, to: &HostPort) -> Result<(Vec<TcpListener>, u16), ListenError> {
    let resolved = tokio::net::lookup_host((to.host(), to.port())).await;
    let mut found: Vec<_> =
        resolved.map_err(|source| ListenError::Unresolved { addr: addr.clone(), source })?.collect();
    found.sort();
    found.dedup();
    let (mut bound, mut port) = (Vec::new(), to.port());
    for one in &mut found {
        // The first of them has the system choose, the others follow.
        one.set_port(port);
        match TcpListener::bind(*one).await {
            Ok(listener) => {
                port =
                    listener.local_addr().map_err(|source| ListenError::System { addr: addr.clone(), source })?.port();
                bound.push(listener);
            }
            // A name may have addresses of several machines, and of a protocol that this one has not.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenError::Taken { addr: addr.clone() });
            }
            Err(source) => return Err(ListenError::System { addr: addr.clone(), source }),
        }
    }
    match bound.is_empty() {
        true => Err(ListenError::Elsewhere { addr: addr.clone(), found }),
        false => Ok((bound, port)),
    }
}

fn shown(found: &[SocketAddr]) -> String {
    let shown: Vec<_> = found.iter().map(|one| format!("`{}`", one.ip())).collect();
    let verb = if found.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", shown.join(", "))
}

/// Makes sure that a socket's file can be made: its folder is there and nobody else's, and nobody serves the path.
fn make_way(addr: &ChannelAddr, path: &Path) -> Result<(), ListenError> {
    let system = |source| ListenError::System { addr: addr.clone(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = fs_err::metadata(folder).map_err(system)?;
    let (mode, is_sticky) = (metadata.mode() & 0o7777, metadata.mode() & 0o1000 != 0);
    if mode & 0o022 != 0 && !is_sticky {
        return Err(ListenError::Folder { folder: folder.to_owned(), mode });
    }
    match fs_err::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system(error)),
        Ok(there) if !there.file_type().is_socket() => Err(ListenError::NoSocket { path: path.to_owned() }),
        Ok(_) => match BlockingUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs_err::remove_file(path).map_err(system),
            _ => Err(ListenError::Taken { addr: addr.clone() }),
        },
    }
}

fn abstract_listener(name: &str) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::linux::net::SocketAddrExt as _;
    let addr = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let listener = std::os::unix::net::UnixListener::bind_addr(&addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
