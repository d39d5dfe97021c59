//! TLS over TCP: the handshake of both sides, and the time that it may take.
//!
//! Owns that a stranger costs nothing but its own connection. Who is let in is [`crate::keys`]' to say.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use torchlift_schema::ChannelAddr;
use torchlift_schema::addr::HostPort;

use super::BoxStream;
use super::dial::Speaks;
use crate::error::one_line;
use crate::keys::role::Role;
use crate::keys::tls::refusal::explain_io;
use crate::keys::tls::{Admit, Refusal, RoleError, TlsError, peer_role, server_name};
use crate::keys::{Credentials, Identity, KeysError};
use crate::output::terminal::visible;

/// Time in which a handshake has to be over, and for the side that dials, the connection made.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time and bytes for which a refused one is listened to, so that it hears why.
const LAST_WORDS: Duration = Duration::from_secs(1);
const MOST_WORDS: u64 = 64 * 1024;
/// Silence after which the other machine is asked whether it is there, and the pause between asking again. Seconds.
const SILENCE: u32 = 15;
const AGAIN: u32 = 5;
/// How often it is asked before it counts as gone.
const ASKED: u32 = 3;
/// Most characters of a line about a failed handshake: the other side's words are in it.
const MOST_SAID: usize = 1000;

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// One of both certificates did not do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It took too long.
    #[error("no connection with {peer}: its handshake was not over in {} s", HANDSHAKE.as_secs())]
    Slow {
        /// Who.
        peer: String,
    },
    /// The connection ended.
    #[error("no connection with {peer}: it ended within its handshake")]
    Ended {
        /// Who.
        peer: String,
        /// How.
        #[source]
        source: io::Error,
    },
    /// The keys of this side.
    #[error("no connection with {peer}: the keys here cannot be used")]
    Keys {
        /// Who.
        peer: String,
        /// Why not.
        #[source]
        source: KeysError,
    },
    /// The keys of this side make no TLS.
    #[error("no connection with {peer}: the keys here cannot be used")]
    Config {
        /// Who.
        peer: String,
        /// Why not.
        #[source]
        source: TlsError,
    },
    /// What was let in has no role after all.
    #[error("no connection with {peer}")]
    Role {
        /// Who.
        peer: String,
        /// Why not.
        #[source]
        source: RoleError,
    },
}

impl HandshakeError {
    /// What to do next, where there is something.
    fn next(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => Some(refusal.next.clone()),
            Self::Keys { source, .. } => Some(source.hint()),
            Self::Config { source, .. } => Some(source.hint().to_owned()),
            Self::Slow { .. } | Self::Ended { .. } | Self::Role { .. } => None,
        }
    }

    /// All of it on one line of bounded length, without what a terminal would obey.
    pub(crate) fn line(&self) -> String {
        let mut line = one_line(self);
        if let Self::Keys { source: KeysError::Findings { findings, .. }, .. } = self {
            findings.iter().for_each(|finding| line += &format!("; {}: {}", finding.place, finding.message));
        }
        line.extend(self.next().map(|next| format!("; {next}")));
        let line = visible(&line);
        match line.char_indices().nth(MOST_SAID) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.into_owned(),
        }
    }
}

/// A connection that has yet to prove who is at its other end.
#[derive(Debug)]
pub(crate) struct Stranger {
    stream: TcpStream,
    peer: String,
    credentials: Arc<Credentials>,
}

impl Stranger {
    /// Of a connection that came in.
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr, credentials: &Arc<Credentials>) -> Self {
        // As people know it, also where IPv4 came by a socket of IPv6.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string();
        Self { stream, peer, credentials: Arc::clone(credentials) }
    }

    /// Gives it its time to prove that it may control; says who it is.
    ///
    /// # Errors
    /// When it does not, or the keys here cannot be used.
    pub(crate) async fn prove(self) -> Result<(BoxStream, Role), HandshakeError> {
        let peer = self.peer.clone();
        let proved = timeout(HANDSHAKE, self.shake_hands()).await;
        proved.unwrap_or_else(|_| Err(HandshakeError::Slow { peer }))
    }

    async fn shake_hands(self) -> Result<(BoxStream, Role), HandshakeError> {
        let Self { stream, peer, credentials } = self;
        let ended = |peer: &str, source| HandshakeError::Ended { peer: peer.to_owned(), source };
        tune(&stream).map_err(|error| ended(&peer, error))?;
        let identity = current(credentials, &peer).await?;
        let config = identity.server_config(Admit::Clients);
        let config = config.map_err(|source| HandshakeError::Config { peer: peer.clone(), source })?;
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => {
                let role = peer_role(stream.get_ref().1.peer_certificates());
                let role = role.map_err(|source| HandshakeError::Role { peer, source })?;
                Ok((Box::new(stream), role))
            }
            Err((error, mut stream)) => {
                // A connection that is closed with something unread takes back the alert that says why.
                let listen = async {
                    let _ = stream.shutdown().await;
                    let _ = tokio::io::copy(&mut (&mut stream).take(MOST_WORDS), &mut tokio::io::sink()).await;
                };
                let _ = timeout(LAST_WORDS, listen).await;
                Err(match explain_io(&error, identity.role(), &peer) {
                    Some(refusal) => refusal.into(),
                    None => ended(&peer, error),
                })
            }
        }
    }
}

/// Connects to a host, and makes sure that it is one.
///
/// # Errors
/// When nobody is there in time, or somebody else is.
pub(super) async fn dial(
    credentials: &Arc<Credentials>,
    addr: &ChannelAddr,
    to: &HostPort,
    speaks: Speaks,
) -> io::Result<BoxStream> {
    let peer = format!("`{addr}`");
    let name = server_name(to.host())
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, format!("{peer}: {}", one_line(&error))))?;
    let dialled = async {
        let stream = TcpStream::connect((to.host(), to.port())).await?;
        tune(&stream)?;
        let denied = |error: HandshakeError| io::Error::new(io::ErrorKind::PermissionDenied, error.line());
        let identity = current(Arc::clone(credentials), &peer).await.map_err(denied)?;
        let config = identity.client_config(None);
        let mut config = config.map_err(|source| denied(HandshakeError::Config { peer: peer.clone(), source }))?;
        if speaks == Speaks::Http1 {
            Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        let stream = TlsConnector::from(config).connect(name, stream).await;
        stream.map(|stream| Box::new(stream) as BoxStream)
    };
    timeout(HANDSHAKE, dialled).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// The keys as the disk has them now, which may be far away: never read on the thread that serves others.
async fn current(credentials: Arc<Credentials>, peer: &str) -> Result<Arc<Identity>, HandshakeError> {
    let read = tokio::task::spawn_blocking(move || credentials.current()).await;
    match read {
        Ok(identity) => identity.map_err(|source| HandshakeError::Keys { peer: peer.to_owned(), source }),
        Err(error) => Err(HandshakeError::Ended { peer: peer.to_owned(), source: io::Error::other(error) }),
    }
}

/// Small messages leave at once, and a machine that vanished is found out even when nobody has anything to say.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &SILENCE)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &AGAIN)?;
    setsockopt(stream, sockopt::TcpKeepCount, &ASKED)?;
    Ok(())
}
