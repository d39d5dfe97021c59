//! What a certificate may do: the role that stands in it as a SAN URI, and the rules for the names in roles.
//!
//! Owns the form `torchlift://client/NAME` and `torchlift://host/NAME`. Pure.
//! When you change it: certificates that are out there have the old form, and `docs/keys.md` shows it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a role's URI begins with.
pub(crate) const SCHEME: &str = "torchlift://";
/// The longest name of a client, in bytes: a file system's name has room for it and for what is put around it.
const MAX_CLIENT: usize = 64;
/// The longest DNS name, in bytes.
const MAX_DNS: usize = 253;

/// The two kinds of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleKind {
    /// Controls allocators.
    Client,
    /// Serves an allocator, and reports on its own run.
    Host,
}

impl RoleKind {
    /// The word in the URI, in the index and in the names of folders.
    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Host => "host",
        }
    }

    /// The options of `torchlift keys issue` and `revoke` that name one: `--client me`, `node-a`.
    pub(crate) fn arguments(self, name: &str) -> String {
        match self {
            Self::Client => format!("--client {name}"),
            Self::Host => name.to_owned(),
        }
    }
}

/// What a certificate's holder is, and so what it may do. The name is one that its kind allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    kind: RoleKind,
    name: String,
}

/// A name that no role can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Of a host.
    #[error("`{name}` cannot be the name of a host")]
    Host {
        /// The name.
        name: String,
    },
    /// Of a client.
    #[error("`{name}` cannot be the name of a client")]
    Client {
        /// The name.
        name: String,
    },
    /// A further name of a host.
    #[error("`{name}` is neither a DNS name nor an IP address")]
    Address {
        /// The name.
        name: String,
    },
    /// A URI that is no role.
    #[error("`{uri}` is no role")]
    Uri {
        /// The URI.
        uri: String,
    },
}

impl NameError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Host { .. } => {
                "give the name that the cluster file has for it: 1 to 63 letters, digits and dashes, no dash at either end"
            }
            Self::Client { .. } => "use 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit",
            Self::Address { .. } => {
                "give a name such as `node-a.example.org`, without a wildcard, or an address such as `10.0.0.5`"
            }
            Self::Uri { .. } => "a role is `torchlift://client/NAME` or `torchlift://host/NAME`",
        }
    }
}

impl Role {
    /// The host of this name in the cluster file.
    ///
    /// # Errors
    /// When it is no DNS label.
    pub fn host(name: &str) -> Result<Self, NameError> {
        if torchlift_schema::is_host_name(name) {
            Ok(Self { kind: RoleKind::Host, name: name.to_owned() })
        } else {
            Err(NameError::Host { name: name.to_owned() })
        }
    }

    /// The client of this name.
    ///
    /// # Errors
    /// When it has other characters than letters, digits, `-`, `_` and `.`, or begins with none of the first two.
    pub fn client(name: &str) -> Result<Self, NameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= MAX_CLIENT && name.bytes().all(is_allowed) {
            Ok(Self { kind: RoleKind::Client, name: name.to_owned() })
        } else {
            Err(NameError::Client { name: name.to_owned() })
        }
    }

    /// The role of this kind and name.
    ///
    /// # Errors
    /// When the kind does not allow the name.
    pub fn new(kind: RoleKind, name: &str) -> Result<Self, NameError> {
        match kind {
            RoleKind::Client => Self::client(name),
            RoleKind::Host => Self::host(name),
        }
    }

    /// Which of the two it is.
    pub fn kind(&self) -> RoleKind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As it stands in a certificate.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}", self.kind.word(), self.name)
    }

    /// Whether its holder may allocate and stop.
    pub fn may_control(&self) -> bool {
        self.kind == RoleKind::Client
    }

    /// Whether its holder may report on the part of a run that is the host's of this name.
    pub fn may_report_for(&self, host: &str) -> bool {
        self.kind == RoleKind::Host && self.name == host
    }
}

/// For people: ``host `node-a` ``.
impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind.word(), self.name)
    }
}

/// From the URI.
impl FromStr for Role {
    type Err = NameError;

    fn from_str(uri: &str) -> Result<Self, NameError> {
        let wrong = || NameError::Uri { uri: uri.to_owned() };
        let (kind, name) = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        match kind {
            "client" => Self::client(name),
            "host" => Self::host(name),
            _ => Err(wrong()),
        }
    }
}

/// Whether a host can be dialled by this: a DNS name, or an IP address.
///
/// # Errors
/// When it is neither; a wildcard is neither.
pub(crate) fn check_address(name: &str) -> Result<(), NameError> {
    let is_dns = name.len() <= MAX_DNS && name.split('.').all(torchlift_schema::is_host_name);
    // What has only digits in its last label is meant as an address, and no resolver takes it for a name.
    let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if name.parse::<IpAddr>().is_ok() || (is_dns && (!is_number || !name.contains('.'))) {
        Ok(())
    } else {
        Err(NameError::Address { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_reads_back_from_its_uri() {
        for role in [Role::host("node-01").unwrap(), Role::client("me.at_home-2").unwrap()] {
            assert_eq!(role.uri().parse::<Role>().unwrap(), role);
        }
        assert_eq!(Role::host("a").unwrap().uri(), "torchlift://host/a");
        assert_eq!(Role::client("a").unwrap().to_string(), "client `a`");
    }

    #[test]
    fn no_name_is_a_path_or_has_what_a_uri_gives_a_meaning() {
        for name in
            ["", ".", "..", "a/b", "/a", "../a", "a\\b", "a b", "a\0", "ä", "-a", "a?b", "a#b", "a%2fb", "a@b", "a:1"]
        {
            assert!(Role::host(name).is_err(), "{name:?}");
            assert!(Role::client(name).is_err(), "{name:?}");
            for kind in ["host", "client"] {
                assert!(format!("torchlift://{kind}/{name}").parse::<Role>().is_err(), "{name:?}");
            }
        }
        assert!(Role::host("a.b").is_err() && Role::client("a.b").is_ok());
        assert!(Role::client(&"a".repeat(64)).is_ok() && Role::client(&"a".repeat(65)).is_err());
        assert!(Role::host(&"a".repeat(63)).is_ok() && Role::host(&"a".repeat(64)).is_err());
    }

    #[test]
    fn another_uri_is_no_role() {
        for uri in [
            "",
            "host/a",
            "torchlift:host/a",
            "torchlift://",
            "torchlift://root/a",
            "torchlift://host",
            "TORCHLIFT://host/a",
            "https://host/a",
        ] {
            assert!(uri.parse::<Role>().is_err(), "{uri}");
        }
    }

    #[test]
    fn clients_control_and_hosts_report_on_themselves_alone() {
        let (host, client) = (Role::host("a").unwrap(), Role::client("a").unwrap());
        assert!(client.may_control() && !host.may_control());
        assert!(host.may_report_for("a") && !host.may_report_for("b") && !client.may_report_for("a"));
    }

    #[test]
    fn a_host_is_dialled_by_a_name_or_an_address() {
        for name in ["a", "node-a.example.org", "10.0.0.5", "::1", "fe80::1", "1"] {
            assert_eq!(check_address(name), Ok(()), "{name}");
        }
        for name in ["", "*.example.org", "a..b", ".a", "a.", "10.0.0", "10.0.0.256", "a b", "[::1]", "a:1", "a/b"] {
            assert!(check_address(name).is_err(), "{name:?}");
        }
    }
}
