//! The rule for roles, behind all that a certificate has to be anyway.
//!
//! Chain, dates, purpose, revocation and names are rustls' own verifiers'; here a certificate that passed them is asked for its
//! role. What that says goes through rustls as an error of ours, and comes out again in [`super::refusal`].

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};

use super::{Admit, RoleError, role_of};
use crate::keys::role::RoleKind;

fn refused(error: RoleError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// Takes hosts alone for servers.
#[derive(Debug)]
pub(super) struct HostVerifier {
    pub(super) inner: Arc<WebPkiServerVerifier>,
    /// The only host that does.
    pub(super) wanted: Option<String>,
}

impl HostVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), RoleError> {
        let role = role_of(certificate)?;
        if role.kind() != RoleKind::Host {
            return Err(RoleError::NotAdmitted { role, wanted: RoleKind::Host.word() });
        }
        match &self.wanted {
            Some(wanted) if wanted != role.name() => Err(RoleError::AnotherHost { role, wanted: wanted.clone() }),
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        self.check(end_entity).map_err(refused)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Lets in who has a certificate with a role that is admitted.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) admit: Admit,
}

impl ClientCertVerifier for PeerVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        true
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let role = role_of(end_entity).map_err(refused)?;
        if !self.admit.admits(&role) {
            let wanted = match self.admit {
                Admit::Clients => RoleKind::Client,
                Admit::Hosts => RoleKind::Host,
            };
            return Err(refused(RoleError::NotAdmitted { role, wanted: wanted.word() }));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
