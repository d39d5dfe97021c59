//! TLS between a client and hosts: both sides show a certificate of an authority that the other trusts, and its role counts.
//!
//! Owns what is offered (TLS 1.3 alone, HTTP/2 and HTTP/1.1), who is admitted, and that no connection is taken up again without
//! its certificates being looked at. `verifier` is the rule for roles, [`refusal`] says to people why nothing came of it.
//! Opens no socket: [`super::Identity`] has been read, and whoever connects takes the configurations.
//! When you change it: `docs/keys.md` says what each role may do; every way of being refused has a test.

pub mod refusal;
#[cfg(test)]
mod tests;
mod verifier;

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig};

use super::Identity;
use super::role::{NameError, Role, RoleKind, SCHEME, check_address};
use crate::clock;
use crate::error::Cause;
use verifier::{HostVerifier, PeerVerifier};

pub use refusal::Refusal;

/// What is spoken inside, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Those who control: what an allocator listens for.
    Clients,
    /// Those who report: what a launcher listens for, to which allocators report.
    Hosts,
}

impl Admit {
    /// Whether a role is let in.
    pub(crate) fn admits(self, role: &Role) -> bool {
        match self {
            Self::Clients => role.may_control(),
            Self::Hosts => role.kind() == RoleKind::Host,
        }
    }
}

/// Why a certificate's role does not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// There is none.
    #[error("its certificate has no role")]
    None,
    /// More than one.
    #[error("its certificate has {count} roles")]
    Several {
        /// How many.
        count: usize,
    },
    /// One that is none.
    #[error("its certificate has a role that is none")]
    Form(#[from] NameError),
    /// No certificate.
    #[error("it showed no certificate")]
    NoCertificate,
    /// It cannot be read.
    #[error("its certificate is damaged")]
    Damaged,
    /// A host where clients are let in, or the other way round.
    #[error("it is {role}, and only a {wanted} may do this")]
    NotAdmitted {
        /// Whose certificate it is.
        role: Role,
        /// Who may.
        wanted: &'static str,
    },
    /// Another host than the one that was dialled.
    #[error("it is {role}, and host `{wanted}` was dialled")]
    AnotherHost {
        /// Whose certificate it is.
        role: Role,
        /// The host that was meant.
        wanted: String,
    },
}

/// Why no configuration came of an identity.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A client's certificate cannot serve.
    #[error("{role} cannot serve")]
    CannotServe {
        /// Whose certificate it is.
        role: Role,
    },
    /// Key, certificate and lists do not make a configuration.
    #[error("the keys of {role} cannot be used for TLS")]
    Unusable {
        /// Whose certificate it is.
        role: Role,
        /// Why.
        #[source]
        source: Cause,
    },
}

impl TlsError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::CannotServe { .. } => {
                "have a host's certificate issued for this machine: `torchlift keys issue HOST`"
            }
            Self::Unusable { .. } => {
                "have the certificate issued again, `torchlift keys issue … --force`, and carry it here"
            }
        }
    }
}

/// The role in a certificate. It says nothing of whether the certificate is to be trusted.
///
/// # Errors
/// When there is none, more than one, or one with a name that it cannot have.
pub fn role_of(certificate: &CertificateDer<'_>) -> Result<Role, RoleError> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|_| RoleError::Damaged)?;
    let roles: Vec<&str> = certificate.valid_uri_names().filter(|uri| uri.starts_with(SCHEME)).collect();
    match roles.as_slice() {
        [] => Err(RoleError::None),
        [one] => Ok(one.parse()?),
        several => Err(RoleError::Several { count: several.len() }),
    }
}

/// The role of the other side of a connection that stands; its certificates are those of rustls' `peer_certificates`.
///
/// # Errors
/// As [`role_of`], and when there is no certificate.
pub fn peer_role(certificates: Option<&[CertificateDer<'_>]>) -> Result<Role, RoleError> {
    role_of(certificates.and_then(<[_]>::first).ok_or(RoleError::NoCertificate)?)
}

/// What a client names when it dials: a host's name, or the address that it is dialled by.
///
/// # Errors
/// When it is neither a DNS name nor an address.
pub fn server_name(name: &str) -> Result<ServerName<'static>, NameError> {
    check_address(name)?;
    let wrong = || NameError::Address { name: name.to_owned() };
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => ServerName::IpAddress(address.into()),
        Err(_) => ServerName::DnsName(DnsName::try_from(name.to_owned()).map_err(|_| wrong())?),
    })
}

impl Identity {
    /// What a server goes by: it shows this certificate, and lets in who is admitted.
    ///
    /// # Errors
    /// When this is a client's certificate, or key and certificate do not belong together.
    pub fn server_config(&self, admit: Admit) -> Result<Arc<ServerConfig>, TlsError> {
        if self.role.kind() == RoleKind::Client {
            return Err(TlsError::CannotServe { role: self.role.clone() });
        }
        self.server_config_at(admit, Arc::new(WallClock))
    }

    /// What a client goes by: it shows this certificate, and takes hosts alone for servers; where a host is wanted, that one.
    ///
    /// The name that is dialled ([`server_name`]) has to be in the host's certificate too. Whoever knows the host dials its
    /// name, whatever address that leads to; whoever knows an address alone wants no host and dials the address.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn client_config(&self, wanted: Option<&str>) -> Result<Arc<ClientConfig>, TlsError> {
        self.client_config_at(wanted, Arc::new(WallClock))
    }

    fn server_config_at(&self, admit: Admit, time: Arc<dyn TimeProvider>) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&provider))
            .with_crls(self.lists.iter().cloned())
            // Each authority that is trusted has its list; the next one, that it signed for, may not have come here yet.
            .allow_unknown_revocation_status()
            .build()
            .map_err(|source| self.unusable(source))?;
        let mut config = ServerConfig::builder_with_details(provider, time)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| self.unusable(source))?
            .with_client_cert_verifier(Arc::new(PeerVerifier { inner, admit }))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|source| self.unusable(source))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // A session that is taken up again would let in who was revoked meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn client_config_at(
        &self,
        wanted: Option<&str>,
        time: Arc<dyn TimeProvider>,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&provider))
            .with_crls(self.lists.iter().cloned())
            .allow_unknown_revocation_status()
            .build()
            .map_err(|source| self.unusable(source))?;
        let verifier = HostVerifier { inner, wanted: wanted.map(str::to_owned) };
        let mut config = ClientConfig::builder_with_details(provider, time)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|source| self.unusable(source))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|source| self.unusable(source))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn unusable(&self, source: impl Into<Cause>) -> TlsError {
        TlsError::Unusable { role: self.role.clone(), source: source.into() }
    }
}

/// The time by which certificates are valid or not.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::wall()))
    }
}
