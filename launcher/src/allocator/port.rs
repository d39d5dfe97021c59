//! The port at which rank 0 is found.
//!
//! It is held from before the first rank starts until the run ends, by a socket that is bound but never listens.
//! Linux lets a second socket bind to it and listen when both have SO_REUSEADDR; ours gets it only *after* its own bind, so that
//! the kernel picks a port that nobody else has. A picked and released port would be raced for.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, bind, getsockname,
    setsockopt, socket, sockopt,
};

use super::holder::{self, Holder};

/// Why rank 0 would have no port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Somebody listens there.
    #[error("port {port} is in use{}", holder.as_ref().map_or_else(String::new, |holder| format!(" by {holder}")))]
    Busy {
        /// TCP port.
        port: u16,
        /// Who, when /proc says so.
        holder: Option<Holder>,
    },
    /// The system refused it.
    #[error("cannot bind port {port}")]
    Refused {
        /// TCP port.
        port: u16,
        /// Why.
        #[source]
        source: Errno,
    },
    /// The system has none to give.
    #[error("cannot reserve a free port for rank 0")]
    None {
        /// Why.
        #[source]
        source: Errno,
    },
}

/// A port that is held as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    _socket: OwnedFd,
    port: u16,
}

impl Reservation {
    /// Holds a free port of this host, for IPv4 and IPv6 where there is both.
    ///
    /// # Errors
    /// When no port is free, or no socket can be made.
    pub fn new() -> Result<Self, PortError> {
        let hold = || {
            let socket = bound(0, false)?;
            setsockopt(&socket, sockopt::ReuseAddr, &true)?;
            let port = port_of(&socket)?;
            Ok(Self { _socket: socket, port })
        };
        hold().map_err(|source| PortError::None { source })
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Makes sure that a port that the user chose can be listened on. It is not held: a program that binds without
/// SO_REUSEADDR needs it free, and that is what choosing one is for.
///
/// # Errors
/// When somebody listens there, or this user may not.
pub fn check_free(port: u16) -> Result<(), PortError> {
    // With SO_REUSEADDR, as servers have it: connections of an earlier run in TIME_WAIT are no obstacle.
    match bound(port, true) {
        Ok(_) => Ok(()),
        Err(Errno::EADDRINUSE) => Err(PortError::Busy { port, holder: holder::find(port) }),
        Err(source) => Err(PortError::Refused { port, source }),
    }
}

/// A socket bound to this port on every address; IPv4 only where there is no IPv6.
fn bound(port: u16, reuse: bool) -> nix::Result<OwnedFd> {
    let six = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
    let four = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port));
    match bound_to(AddressFamily::Inet6, &six, reuse) {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL | Errno::ENOPROTOOPT | Errno::EPROTONOSUPPORT) => {
            bound_to(AddressFamily::Inet, &four, reuse)
        }
        other => other,
    }
}

fn bound_to(family: AddressFamily, address: &dyn SockaddrLike, reuse: bool) -> nix::Result<OwnedFd> {
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    if reuse {
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    }
    bind(socket.as_raw_fd(), address)?;
    Ok(socket)
}

fn port_of(socket: &OwnedFd) -> nix::Result<u16> {
    let address: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let six = address.as_sockaddr_in6().map(SockaddrIn6::port);
    six.or_else(|| address.as_sockaddr_in().map(SockaddrIn::port)).ok_or(Errno::EAFNOSUPPORT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    // The standard library sets SO_REUSEADDR before it binds, like torch's store and most servers.
    #[test]
    fn a_held_port_can_be_listened_on_by_every_address() {
        for address in ["0.0.0.0", "127.0.0.1", "[::]", "[::1]"] {
            let held = Reservation::new().unwrap();
            let listener = TcpListener::bind(format!("{address}:{}", held.port()));
            let listener = listener.unwrap_or_else(|error| panic!("{address}: {error}"));
            let target = if address.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            std::net::TcpStream::connect(format!("{target}:{}", held.port())).unwrap();
            listener.accept().unwrap();
        }
    }

    #[test]
    fn fifty_parallel_reservations_never_clash() {
        for _ in 0..4 {
            let threads: Vec<_> = (0..50).map(|_| std::thread::spawn(|| Reservation::new().unwrap())).collect();
            let held: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let ports: BTreeSet<_> = held.iter().map(Reservation::port).collect();
            assert_eq!(ports.len(), held.len());
        }
    }

    #[test]
    fn a_held_port_is_given_to_nobody_who_asks_for_any() {
        let held = Reservation::new().unwrap();
        for _ in 0..200 {
            let other = TcpListener::bind("0.0.0.0:0").unwrap();
            assert_ne!(other.local_addr().unwrap().port(), held.port());
        }
    }

    #[test]
    fn a_busy_port_is_refused_with_its_holder() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Err(PortError::Busy { port: named, holder: Some(holder) }) = check_free(port) else {
            panic!("a port that is listened on was called free, or its holder was not found");
        };
        assert_eq!(named, port);
        assert_eq!(holder.pid, std::process::id());
        drop(listener);
        check_free(port).unwrap();
    }
}
