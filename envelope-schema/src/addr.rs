//! Where a message goes: the address of a channel.
//!
//! Owns the text form, the published one and our additions, and what an address may be. Must not resolve or dial one.

use std::fmt;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::num::ParseIntError;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::named::named;

/// The most bytes that the path or the name of a Unix socket has: the kernel's field has 108, one of which ends it or begins an
/// abstract name.
pub const MAX_UNIX: usize = 107;

/// As much of an address as a pattern can say; which IP addresses, names and ports there are is the reader's.
const PATTERN: &str =
    r"^((tcp|metatls|tls)[:!][^\x00]+:[0-9]{1,5}|local[:!]\+?[0-9]+|unix[:!][^\x00]{0,108}|caller[:!])$";

/// The address of a channel.
///
/// Written `tcp:IP:PORT`, `metatls:HOST:PORT`, `local:N`, `unix:PATH`, `unix:@NAME`, `tls:HOST:PORT`, `caller:`; the older form
/// with `!` in place of the first `:` is read. In JSON it is that text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelAddr {
    /// A plain TCP socket: an IP address and a port, never a name. Loopback only, and only with a run's token.
    Tcp(SocketAddr),
    /// The publisher's own TLS; read and written, never dialled.
    MetaTls(HostPort),
    /// Within this process.
    Local(u64),
    /// A Unix socket.
    Unix(UnixAddr),
    /// TCP with mutual TLS.
    Tls(HostPort),
    /// Back over the connection that the message came by.
    Caller,
}

named!(ChannelAddr = "hyperactor::channel::ChannelAddr", [Tcp, MetaTls, Local, Unix, Tls, Caller]);

/// A host and a TCP port on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// The address of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnixAddr {
    /// One that whoever serves it picks: `unix:`.
    Any,
    /// A name in the kernel's own space, without the `@`.
    Abstract(String),
    /// A path.
    Path(String),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddrError {
    /// Nothing says of which kind it is.
    #[error("no channel type specified: `{}`", crate::tree::shown(.text))]
    NoType {
        /// The text.
        text: String,
    },
    /// Of a kind that is not there.
    #[error("no such channel type: {}", crate::tree::shown(.name))]
    NoSuchType {
        /// The kind.
        name: String,
    },
    /// `tcp:` without an IP address and a port.
    #[error("`tcp:{}` has no IP address with a port", crate::tree::shown(.text))]
    Tcp {
        /// What stands behind `tcp:`.
        text: String,
        /// Why not.
        #[source]
        source: AddrParseError,
    },
    /// `local:` without a number.
    #[error("`local:{}` has no number", crate::tree::shown(.text))]
    Local {
        /// What stands behind `local:`.
        text: String,
        /// Why not.
        #[source]
        source: ParseIntError,
    },
    /// No host with a port.
    #[error("`{}` is no host with a port, such as `node-a:7700` or `[::1]:7700`", crate::tree::shown(.text))]
    HostPort {
        /// The text.
        text: String,
    },
    /// A path or a name that no Unix socket has.
    #[error("`unix:{}` {reason}", crate::tree::shown(.text))]
    Unix {
        /// What stands behind `unix:`.
        text: String,
        /// Why not.
        reason: &'static str,
    },
    /// Something behind `caller:`.
    #[error("`caller:` stands alone, and `{}` follows it", crate::tree::shown(.text))]
    Caller {
        /// What follows.
        text: String,
    },
}

impl AddrError {
    /// What to do next: a lower-case fragment.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "`tcp:` takes an IP address; a host by name is reached with `tls:HOST:PORT`",
            Self::Unix { .. } => "give a shorter path, such as one below `$XDG_RUNTIME_DIR`, or `unix:@NAME`",
            _ => "write `tls:HOST:PORT`, `unix:PATH`, `tcp:127.0.0.1:PORT`, `local:N` or `caller:`",
        }
    }
}

impl HostPort {
    /// A host by name or by address, and a port.
    ///
    /// # Errors
    /// When the host is no DNS name and no IP address.
    pub fn new(host: impl Into<String>, port: u16) -> Result<Self, AddrError> {
        let host = host.into();
        if is_host(&host) {
            Ok(Self { host, port })
        } else {
            Err(AddrError::HostPort { text: format!("{host}:{port}") })
        }
    }

    /// A DNS name or an IP address, the latter without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port; 0 means any, where something is served.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A DNS name (an underscore is let through, as resolvers do) or an IP address.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label);
    is_name || text.parse::<IpAddr>().is_ok()
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for HostPort {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let refused = || AddrError::HostPort { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = is_number.then(|| port.parse().ok()).flatten().ok_or_else(refused)?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) if inner.contains(':') => inner,
            Some(_) => return Err(refused()),
            // The publisher writes IPv6 addresses of `metatls` without brackets.
            None => host,
        };
        Self::new(host, port).map_err(|_| refused())
    }
}

impl fmt::Display for UnixAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::Abstract(name) => write!(f, "@{name}"),
            Self::Path(path) => f.write_str(path),
        }
    }
}

impl FromStr for UnixAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let refused = |reason| Err(AddrError::Unix { text: text.to_owned(), reason });
        if text.contains('\0') {
            return refused("has a NUL");
        }
        match text.strip_prefix('@') {
            _ if text.is_empty() => Ok(Self::Any),
            Some("") => refused("has no name"),
            Some(name) if name.len() > MAX_UNIX => refused("is longer than 107 bytes, the most that the kernel takes"),
            Some(name) => Ok(Self::Abstract(name.to_owned())),
            None if text.len() > MAX_UNIX => refused("is longer than 107 bytes, the most that the kernel takes"),
            None => Ok(Self::Path(text.to_owned())),
        }
    }
}

impl ChannelAddr {
    /// The kind: what stands before the first `:`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::MetaTls(_) => "metatls",
            Self::Local(_) => "local",
            Self::Unix(_) => "unix",
            Self::Tls(_) => "tls",
            Self::Caller => "caller",
        }
    }

    /// The TCP port; none where there is none.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(socket) => Some(socket.port()),
            Self::MetaTls(at) | Self::Tls(at) => Some(at.port()),
            Self::Local(_) | Self::Unix(_) | Self::Caller => None,
        }
    }
}

impl fmt::Display for ChannelAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            Self::Tcp(socket) => socket.fmt(f),
            Self::MetaTls(at) | Self::Tls(at) => at.fmt(f),
            Self::Local(number) => number.fmt(f),
            Self::Unix(at) => at.fmt(f),
            Self::Caller => Ok(()),
        }
    }
}

impl FromStr for ChannelAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        // Whichever comes first: the published parser took any `!`, also one in the path of a socket.
        let parts = text.split_once(['!', ':']);
        let (kind, rest) = parts.ok_or_else(|| AddrError::NoType { text: text.to_owned() })?;
        match kind {
            "tcp" => match rest.parse() {
                Ok(socket) => Ok(Self::Tcp(socket)),
                Err(source) => Err(AddrError::Tcp { text: rest.to_owned(), source }),
            },
            "metatls" => rest.parse().map(Self::MetaTls),
            "tls" => rest.parse().map(Self::Tls),
            "local" => match rest.parse() {
                Ok(number) => Ok(Self::Local(number)),
                Err(source) => Err(AddrError::Local { text: rest.to_owned(), source }),
            },
            "unix" => rest.parse().map(Self::Unix),
            "caller" if rest.is_empty() => Ok(Self::Caller),
            "caller" => Err(AddrError::Caller { text: rest.to_owned() }),
            other => Err(AddrError::NoSuchType { name: other.to_owned() }),
        }
    }
}

impl JsonSchema for ChannelAddr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChannelAddr".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "The address of a channel, such as `tls:node-a:7700`, `unix:@name`, `caller:`.",
            "type": "string",
            "pattern": PATTERN,
        })
    }
}

/// The published layout of binary formats, ours behind it. `Sim` is there for its number alone.
#[derive(Serialize, Deserialize)]
#[serde(rename = "ChannelAddr")]
enum Binary {
    Tcp(SocketAddr),
    MetaTls(String, u16),
    Local(u64),
    Sim(()),
    Unix(String),
    Tls(String, u16),
    Caller,
}

impl Serialize for ChannelAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        let binary = match self {
            Self::Tcp(socket) => Binary::Tcp(*socket),
            Self::MetaTls(at) => Binary::MetaTls(at.host.clone(), at.port),
            Self::Local(number) => Binary::Local(*number),
            Self::Unix(at) => Binary::Unix(at.to_string()),
            Self::Tls(at) => Binary::Tls(at.host.clone(), at.port),
            Self::Caller => Binary::Caller,
        };
        binary.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ChannelAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return text.parse().map_err(|error: AddrError| D::Error::custom(full(&error)));
        }
        let addr = match Binary::deserialize(deserializer)? {
            Binary::Tcp(socket) => Ok(Self::Tcp(socket)),
            Binary::MetaTls(host, port) => HostPort::new(host, port).map(Self::MetaTls),
            Binary::Local(number) => Ok(Self::Local(number)),
            Binary::Sim(()) => Err(AddrError::NoSuchType { name: "sim".to_owned() }),
            Binary::Unix(text) => text.parse().map(Self::Unix),
            Binary::Tls(host, port) => HostPort::new(host, port).map(Self::Tls),
            Binary::Caller => Ok(Self::Caller),
        };
        addr.map_err(|error| D::Error::custom(full(&error)))
    }
}

/// An error of a deserializer has one text and no source.
fn full(error: &AddrError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        full(&text.parse::<ChannelAddr>().unwrap_err())
    }

    #[test]
    fn every_form_is_read_and_written_with_a_colon() {
        for (text, written) in [
            ("tcp:127.0.0.1:26600", "tcp:127.0.0.1:26600"),
            ("tcp![::]:26600", "tcp:[::]:26600"),
            ("tcp:[::1]:0", "tcp:[::1]:0"),
            ("metatls!node-a.example.org:1234", "metatls:node-a.example.org:1234"),
            ("metatls:2401:db00::1:1234", "metatls:[2401:db00::1]:1234"),
            ("tls:node_a:7700", "tls:node_a:7700"),
            ("tls:[fe80::1]:7700", "tls:[fe80::1]:7700"),
            ("tls:10.0.0.1:7700", "tls:10.0.0.1:7700"),
            ("local:123", "local:123"),
            ("local!0", "local:0"),
            ("unix:", "unix:"),
            ("unix:@torchlift-ab", "unix:@torchlift-ab"),
            ("unix:/run/user/1000/torchlift/a b.sock", "unix:/run/user/1000/torchlift/a b.sock"),
            ("unix!@yolo", "unix:@yolo"),
            ("unix:/tmp/a!b:c", "unix:/tmp/a!b:c"),
            ("caller:", "caller:"),
            ("caller!", "caller:"),
        ] {
            let addr: ChannelAddr = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(addr.to_string(), written);
            assert_eq!(addr.to_string().parse::<ChannelAddr>().as_ref(), Ok(&addr), "{text}");
            let json = serde_json::to_string(&addr).unwrap();
            assert_eq!(json, format!("{written:?}"));
            assert_eq!(serde_json::from_str::<ChannelAddr>(&json).unwrap(), addr);
        }
    }

    // The published tests look for these words.
    #[test]
    fn the_published_refusals_keep_their_words() {
        assert!(said("tcp:abcdef..123124").contains("invalid socket address syntax"));
        assert!(said("xxx:foo").contains("no such channel type: xxx"));
        assert!(said("127.0.0.1").contains("no channel type specified"));
        assert!(said("local:abc").contains("invalid digit found in string"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("unix:/{}", "x".repeat(MAX_UNIX));
        for text in [
            "",
            "tcp:",
            "tcp:localhost:1",
            "tcp:127.0.0.1",
            "tcp:127.0.0.1:65536",
            "tls:",
            "tls:node",
            "tls::1",
            "tls:a b:1",
            "tls:[node]:1",
            "tls:-a:1",
            "tls:node:+1",
            "tls:node:65536",
            "metatls:x",
            "local:",
            "local:-1",
            "unix:@",
            "unix:a\0b",
            "caller:x",
            "sim:1",
            "alias:x",
            "unix",
            &long,
        ] {
            let error = text.parse::<ChannelAddr>().expect_err(text);
            assert!(!error.to_string().is_empty() && !error.hint().is_empty(), "{text}");
        }
        assert!(format!("unix:/{}", "x".repeat(MAX_UNIX - 1)).parse::<ChannelAddr>().is_ok());
    }

    #[test]
    fn the_schema_takes_every_address_that_is_read() {
        let validator = jsonschema::validator_for(&serde_json::json!({ "pattern": PATTERN })).unwrap();
        for text in [
            "tcp:127.0.0.1:26600",
            "tcp![::1]:1",
            "metatls:a:1",
            "tls:[fe80::1]:65535",
            "local:18446744073709551615",
            "local:+1",
            "unix:",
            "unix!@a",
            "unix:/a b",
            "caller:",
            "caller!",
        ] {
            assert!(text.parse::<ChannelAddr>().is_ok() && validator.is_valid(&text.into()), "{text}");
        }
        for text in ["", "tcp", "tcp:x", "tls:a:", "local:", "sim:1", "caller:x", "unix"] {
            assert!(text.parse::<ChannelAddr>().is_err() && !validator.is_valid(&text.into()), "{text}");
        }
    }

    #[test]
    fn an_address_knows_its_kind_and_port() {
        let addr = |text: &str| text.parse::<ChannelAddr>().unwrap();
        let known = |text| (addr(text).kind(), addr(text).port());
        assert_eq!(known("tcp:127.0.0.1:26600"), ("tcp", Some(26600)));
        assert_eq!(known("tls:node-a:7700"), ("tls", Some(7700)));
        assert_eq!(known("metatls:node-a:1"), ("metatls", Some(1)));
        assert_eq!(known("unix:@x"), ("unix", None));
        assert_eq!(known("local:7"), ("local", None));
        assert_eq!(known("caller:"), ("caller", None));
    }
}
