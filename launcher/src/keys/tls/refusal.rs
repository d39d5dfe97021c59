//! Why a connection was refused, for people: what was wrong, with whose certificate, and what to do next.
//!
//! Owns these words. One side finds out and says an alert; the other hears the alert, in TLS 1.3 with its first read, when it
//! believes the handshake to be over. Both get a sentence.

use std::error::Error as _;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use super::RoleError;
use crate::keys::index::Stamp;
use crate::keys::role::Role;

/// Why nothing came of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection with {peer}: {what}")]
pub struct Refusal {
    /// Who is at the other end, as it was given.
    pub peer: String,
    /// What was wrong: a lower-case fragment.
    pub what: String,
    /// What to do next.
    pub next: String,
}

/// Says why rustls ended a connection between the holder of `own` and `peer`, in words for the latter: ``host `node-a` ``,
/// `10.0.0.5:41022`.
pub fn explain(error: &Error, own: &Role, peer: &str) -> Refusal {
    let (what, next) = match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::InvalidCertRevocationList(error) => (
            format!("the list of revoked certificates cannot be used: {error:?}"),
            "carry `revoked.pem` here again from where the authority is".to_owned(),
        ),
        Error::NoCertificatesPresented => (
            "it showed no certificate".to_owned(),
            "give it one: `torchlift keys issue --client NAME`, and carry it there".to_owned(),
        ),
        Error::AlertReceived(alert) => of_alert(*alert, own),
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => ("it speaks no TLS 1.3".to_owned(), "use a newer program there: nothing older is spoken here".to_owned()),
        Error::InvalidMessage(_) => (
            "what it says is no TLS".to_owned(),
            "see that the port is the one of `torchlift serve`, and that it listens by `tls:`".to_owned(),
        ),
        other => (format!("{other}"), "see what the other side says of it".to_owned()),
    };
    Refusal { peer: peer.to_owned(), what, next }
}

/// The same for an error of reading or writing, which has rustls' inside; none when it has not.
pub fn explain_io(error: &io::Error, own: &Role, peer: &str) -> Option<Refusal> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(inner) = cause {
        // Its own source is behind what it has inside.
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            return explain_io(inner, own, peer);
        }
        if let Some(tls) = inner.downcast_ref::<Error>() {
            return Some(explain(tls, own, peer));
        }
        cause = inner.source();
    }
    None
}

/// What was found in the other side's certificate.
fn of_certificate(error: &CertificateError) -> (String, String) {
    let again = "issue another, `torchlift keys issue … --force`, and carry it there";
    match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            (format!("its certificate expired on {}", Stamp(not_after.as_secs())), again.to_owned())
        }
        CertificateError::NotValidYetContext { time, not_before } => (
            format!(
                "its certificate is valid from {} on, and this machine's clock says {}",
                Stamp(not_before.as_secs()),
                Stamp(time.as_secs())
            ),
            "set the clocks of both machines (`timedatectl set-ntp true`)".to_owned(),
        ),
        CertificateError::Revoked => (
            "its certificate was revoked".to_owned(),
            "if it shall be let in again, issue a new one, `torchlift keys issue …`, and carry it there".to_owned(),
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "its certificate is of an authority that is not trusted here".to_owned(),
            "have both sides' certificates issued by one authority; after a rotation, carry the new folder here too"
                .to_owned(),
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let shown = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            (
                format!("`{}` was dialled, and its certificate is for {shown}", expected.to_str()),
                "see that the name leads to the right machine; if it does, `torchlift keys issue HOST --name NAME --force` adds it".to_owned(),
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            "its certificate is not for this: a client's controls and cannot serve".to_owned(),
            "give that machine a host's: `torchlift keys issue HOST`".to_owned(),
        ),
        CertificateError::Other(other) => match other.0.downcast_ref::<RoleError>() {
            Some(role) => of_role(role),
            None => (format!("its certificate was refused: {other}"), again.to_owned()),
        },
        other => (format!("its certificate was refused: {other}"), again.to_owned()),
    }
}

fn of_role(error: &RoleError) -> (String, String) {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let next = match error {
        RoleError::NotAdmitted { wanted: "client", .. } => {
            "control with a client's certificate: `torchlift keys issue --client NAME`".to_owned()
        }
        RoleError::NotAdmitted { .. } => {
            "give that machine a host's certificate: `torchlift keys issue HOST`".to_owned()
        }
        RoleError::AnotherHost { role, .. } => format!(
            "see that the name or address leads to the right machine, and that it was not given the folder of `{}`",
            role.name()
        ),
        _ => "have it issued by `torchlift keys issue`".to_owned(),
    };
    (format!("{error}{cause}"), next)
}

/// What the other side found in ours.
fn of_alert(alert: AlertDescription, own: &Role) -> (String, String) {
    let arguments = own.kind().arguments(own.name());
    let again = format!("issue another, `torchlift keys issue {arguments} --force`, and carry it here");
    let (what, next) = match alert {
        AlertDescription::CertificateExpired => (
            "our certificate has expired, or is not valid yet, by its clock".to_owned(),
            format!("compare the clocks of both machines; if they agree, {again}"),
        ),
        AlertDescription::CertificateRevoked => (
            "our certificate was revoked".to_owned(),
            format!("if that was not meant, `torchlift keys issue {arguments}` issues a new one; carry it here"),
        ),
        AlertDescription::UnknownCA => (
            "our certificate is of an authority that it does not trust".to_owned(),
            "have both sides' certificates issued by one authority; after a rotation, carry the new folder there too"
                .to_owned(),
        ),
        AlertDescription::CertificateRequired => (
            "it wants a certificate, and none was shown".to_owned(),
            format!("`torchlift keys issue {arguments}`, and carry it here"),
        ),
        AlertDescription::CertificateUnknown => (
            "our role may not do this".to_owned(),
            "a client's certificate controls, a host's serves and reports; the other side's log says what it wants"
                .to_owned(),
        ),
        AlertDescription::UnsupportedCertificate => (
            "our certificate is not for this: a client's controls and cannot serve".to_owned(),
            "serve with a host's certificate: `torchlift keys issue HOST`".to_owned(),
        ),
        AlertDescription::BadCertificate => (
            "our certificate is not for the name that it dialled".to_owned(),
            format!(
                "dial a name that `torchlift keys show` has for it, or add one: `torchlift keys issue {arguments} --name NAME --force`"
            ),
        ),
        AlertDescription::ProtocolVersion => {
            ("it speaks no TLS 1.3".to_owned(), "use a newer program there: nothing older is spoken here".to_owned())
        }
        AlertDescription::NoApplicationProtocol => (
            "it speaks neither HTTP/2 nor HTTP/1.1".to_owned(),
            "see that it is a torchlift that listens there".to_owned(),
        ),
        other => (format!("it said `{other:?}`"), "its log says why".to_owned()),
    };
    (format!("it refused: {what}"), next)
}
