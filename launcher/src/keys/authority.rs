//! An authority: a private key, the certificate that makes others trust it, and what it signs.
//!
//! Owns what stands in a certificate: whose it is (a SAN URI), by what it is dialled (DNS names and addresses), what it is good
//! for (a host's serves and reports, a client's controls and cannot serve), and from when until when.
//! Works on texts and times; opens no file.

use std::net::IpAddr;
use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData as _,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;

use super::error::KeysError;
use super::index::{AuthorityEntry, DAY, Duty, Issued, Stamp};
use super::role::{Role, RoleKind};

/// What is signed is valid from this long ago on, since no two machines' clocks are the same. Seconds.
const LEEWAY: u64 = 3_600;
/// Bytes of a serial number: random, so that nobody foresees one.
const SERIAL: usize = 16;
/// What ends a certificate's text.
const END: &str = "-----END CERTIFICATE-----\n";
/// What ends a private key's text.
const END_KEY: &str = "-----END PRIVATE KEY-----\n";

/// An authority with its private key.
pub(super) struct Signer {
    pub(super) entry: AuthorityEntry,
    issuer: Issuer<'static, KeyPair>,
    /// In PEM: its own, then, while a rotation is under way, the one that the authority before it has signed.
    certificates: Vec<String>,
}

impl Signer {
    /// Makes a new authority that is good for so many days.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub(super) fn make(days: u32, now: Stamp) -> Result<Self, KeysError> {
        let serial = serial()?;
        let entry = AuthorityEntry {
            id: serial[..SERIAL].to_owned(),
            duty: Duty::Signs,
            serial,
            not_before: Stamp(now.0.saturating_sub(LEEWAY)),
            not_after: after(now, days),
        };
        let key = KeyPair::generate().map_err(unsigned("no key could be made"))?;
        let params = params_of(&entry)?;
        let certificate = params.self_signed(&key).map_err(unsigned("the authority could not be made"))?;
        Ok(Self { entry, issuer: Issuer::new(params, key), certificates: vec![certificate.pem()] })
    }

    /// Reads one from the text of its file.
    ///
    /// # Errors
    /// When it is damaged, or its key is another one's.
    pub(super) fn read(path: &Path, text: &str, entry: &AuthorityEntry) -> Result<Self, KeysError> {
        let wrong = |what: &str| KeysError::Content { path: path.to_owned(), what: what.to_owned(), source: None };
        let (key, certificates) = text.split_once(END_KEY).ok_or_else(|| wrong("has no private key"))?;
        let key = KeyPair::from_pem(&format!("{key}{END_KEY}")).map_err(|source| KeysError::Content {
            path: path.to_owned(),
            what: "has a damaged private key".to_owned(),
            source: Some(source.into()),
        })?;
        let certificates: Vec<String> = certificates.split_inclusive(END).map(str::to_owned).collect();
        let own = certificates.first().ok_or_else(|| wrong("has no certificate"))?;
        let own = CertificateDer::from_pem_slice(own.as_bytes()).map_err(|_| wrong("has a damaged certificate"))?;
        let own = webpki::EndEntityCert::try_from(&own).map_err(|_| wrong("has a damaged certificate"))?;
        if own.subject_public_key_info().as_ref() != key.subject_public_key_info() {
            return Err(wrong("has a private key that is not its certificate's"));
        }
        Ok(Self { entry: entry.clone(), issuer: Issuer::new(params_of(entry)?, key), certificates })
    }

    /// The text of its file: private key and certificates.
    pub(super) fn to_text(&self) -> String {
        self.issuer.key().serialize_pem() + &self.certificates.concat()
    }

    /// What others trust: its own certificate.
    pub(super) fn trust(&self) -> &str {
        self.certificates.first().map_or("", String::as_str)
    }

    /// Has the authority before it sign for it, so that who trusts only that one follows what this one issues.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(super) fn be_vouched_for(&mut self, before: &Self) -> Result<(), KeysError> {
        let mut params = params_of(&self.entry)?;
        params.serial_number = Some(number(&serial()?));
        params.not_after = time_of(self.entry.not_after.min(before.entry.not_after))?;
        // Who is trusted through another one issues no authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let crossed = params
            .signed_by(self.issuer.key(), &before.issuer)
            .map_err(unsigned("the new authority could not be signed"))?;
        self.certificates.truncate(1);
        self.certificates.push(crossed.pem());
        Ok(())
    }

    /// Issues a certificate with a key of its own; gives its entry, and the text of its file.
    ///
    /// It does not outlive the authority.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub(super) fn issue(
        &self,
        role: &Role,
        names: &[String],
        days: u32,
        now: Stamp,
    ) -> Result<(Issued, String), KeysError> {
        let serial = serial()?;
        let entry = Issued {
            role: role.kind(),
            name: role.name().to_owned(),
            serial,
            authority: self.entry.id.clone(),
            not_before: Stamp(now.0.saturating_sub(LEEWAY)),
            not_after: after(now, days).min(self.entry.not_after),
            names: names.to_vec(),
            revoked: None,
            is_replaced: false,
        };
        let mut params = CertificateParams::default();
        params.serial_number = Some(number(&entry.serial));
        params.not_before = time_of(entry.not_before)?;
        params.not_after = time_of(entry.not_after)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{} {}", role.kind().word(), role.name()));
        params.subject_alt_names = alternative_names(role, names)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match role.kind() {
            RoleKind::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            // A host dials too, to report.
            RoleKind::Host => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(unsigned("no key could be made"))?;
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(unsigned("the certificate could not be signed"))?;
        let vouched = self.certificates.get(1).map_or("", String::as_str);
        Ok((entry, key.serialize_pem() + &certificate.pem() + vouched))
    }

    /// Signs the list of what it has taken back: serial numbers, and when.
    ///
    /// It has no end of its own: it is carried by hand, and a host that gets no new one keeps to the last.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(super) fn list(&self, revoked: &[&Issued], now: Stamp) -> Result<String, KeysError> {
        let of = |entry: &&Issued| {
            Ok(RevokedCertParams {
                serial_number: number(&entry.serial),
                revocation_time: time_of(entry.revoked.unwrap_or(now))?,
                reason_code: None,
                invalidity_date: None,
            })
        };
        let list = CertificateRevocationListParams {
            this_update: time_of(now)?,
            next_update: time_of(self.entry.not_after.max(Stamp(now.0 + DAY)))?,
            crl_number: SerialNumber::from(now.0),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(of).collect::<Result<_, KeysError>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = list.signed_by(&self.issuer).and_then(|list| list.pem());
        signed.map_err(unsigned("the list of revoked certificates could not be signed"))
    }
}

/// All that is in an authority's certificate but its key.
fn params_of(entry: &AuthorityEntry) -> Result<CertificateParams, KeysError> {
    let mut params = CertificateParams::default();
    params.serial_number = Some(number(&entry.serial));
    params.not_before = time_of(entry.not_before)?;
    params.not_after = time_of(entry.not_after)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Torchlift authority {}", entry.id));
    // One more authority below it: the one that takes its place.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn alternative_names(role: &Role, names: &[String]) -> Result<Vec<SanType>, KeysError> {
    let text = |text: String| Ia5String::try_from(text).map_err(unsigned("a name cannot stand in a certificate"));
    let mut all = vec![SanType::URI(text(role.uri())?)];
    if role.kind() == RoleKind::Host {
        all.push(SanType::DnsName(text(role.name().to_owned())?));
    }
    for name in names {
        all.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(text(name.clone())?),
        });
    }
    Ok(all)
}

/// A new serial number in hex: positive, and of one length.
fn serial() -> Result<String, KeysError> {
    let mut bytes = [0; SERIAL];
    let provider = rustls::crypto::ring::default_provider();
    provider.secure_random.fill(&mut bytes).map_err(|_| KeysError::Signing {
        what: "this system gives no random numbers",
        source: "nothing came of `getrandom`".into(),
    })?;
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn number(hex: &str) -> SerialNumber {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    SerialNumber::from((0..hex.len()).step_by(2).filter_map(digits).collect::<Vec<u8>>())
}

fn after(now: Stamp, days: u32) -> Stamp {
    Stamp(now.0 + u64::from(days) * DAY)
}

fn time_of(stamp: Stamp) -> Result<OffsetDateTime, KeysError> {
    let seconds = i64::try_from(stamp.0).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|source| KeysError::Signing { what: "a time cannot stand in a certificate", source: source.into() })
}

fn unsigned(what: &'static str) -> impl Fn(rcgen::Error) -> KeysError {
    move |source| KeysError::Signing { what, source: source.into() }
}
