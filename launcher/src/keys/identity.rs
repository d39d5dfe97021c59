//! What one side of a connection presents and trusts: its certificate with the private key, the authorities, and what they
//! have taken back.
//!
//! Owns the choice of a certificate in a folder of keys, and that nothing is used which others can read or change.
//! Connections are made of it by [`super::tls`].

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use webpki::{BorrowedCertRevocationList, anchor_from_trusted_cert};

use super::check;
use super::disk;
use super::error::KeysError;
use super::index::{Holds, Index, Issued, MAX_BYTES};
use super::place;
use super::role::{Role, RoleKind};
use super::tls::role_of;

/// Which certificate of a folder is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    kind: RoleKind,
    name: Option<String>,
}

impl Wanted {
    /// One that controls: this one, or the only one.
    pub fn client(name: Option<&str>) -> Self {
        Self { kind: RoleKind::Client, name: name.map(str::to_owned) }
    }

    /// One that serves: this host's, or the only one.
    pub fn host(name: Option<&str>) -> Self {
        Self { kind: RoleKind::Host, name: name.map(str::to_owned) }
    }

    fn allows(&self, entry: &Issued) -> bool {
        entry.role == self.kind && self.name.as_ref().is_none_or(|name| *name == entry.name)
    }
}

/// For people: ``the certificate of client `me` ``, `a certificate of a host`.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "the certificate of {} `{name}`", self.kind.word()),
            None => write!(f, "a certificate of a {}", self.kind.word()),
        }
    }
}

/// A file as it was when it was read.
type Mark = (PathBuf, u64, i64, i64);

/// What one side of a connection presents and trusts.
pub struct Identity {
    pub(super) role: Role,
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) roots: Arc<RootCertStore>,
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    marks: Vec<Mark>,
}

/// Without the private key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the wanted certificate from a folder of keys: of an authority, or one that was carried.
    ///
    /// # Errors
    /// When the folder has no such certificate or several, when one of its files is open to others, has expired, is missing or
    /// damaged, or when an authority that is trusted has no list of what it took back.
    pub fn open(folder: &Path, wanted: &Wanted, now: Duration) -> Result<Self, KeysError> {
        let absent = || KeysError::Absent { folder: folder.to_owned() };
        let index = disk::read_index(folder)?.ok_or_else(absent)?;
        let role = choose(folder, &index, wanted)?;
        let (own, index) = match index.holds {
            Holds::Certificate => (folder.to_owned(), index),
            Holds::Authority => {
                let own = place::issued(folder, &role);
                let index = disk::read_index(&own)?.ok_or_else(|| KeysError::Absent { folder: own.clone() })?;
                (own, index)
            }
        };
        let mut findings = check::of_files(&own, &index);
        findings.extend(check::of_dates(&own, &index, now));
        findings.retain(torchlift_schema::Finding::is_error);
        if !findings.is_empty() {
            return Err(KeysError::Findings { folder: own, findings });
        }
        Self::read(&own, role)
    }

    fn read(own: &Path, role: Role) -> Result<Self, KeysError> {
        let paths = [place::IDENTITY, place::TRUST, place::REVOKED].map(|name| own.join(name));
        // Before they are read: a change meanwhile is seen as one.
        let marks = paths.iter().map(|path| mark(path)).collect::<Result<_, _>>()?;
        let [identity, trust, revoked] = &paths;
        let text = disk::read(identity, MAX_BYTES)?;
        let key =
            PrivateKeyDer::from_pem_slice(&text).map_err(|source| damaged(identity, "has no private key", source))?;
        let chain: Vec<CertificateDer<'static>> = every(identity, &text)?;
        let first = chain.first().ok_or_else(|| content(identity, "has no certificate"))?;
        let found = role_of(first).map_err(|source| damaged(identity, "has a certificate without a role", source))?;
        if found != role {
            return Err(content(identity, &format!("is of {found}, and `{}` names {role}", place::INDEX)));
        }
        let authorities: Vec<CertificateDer<'static>> = every(trust, &disk::read(trust, MAX_BYTES)?)?;
        let lists: Vec<CertificateRevocationListDer<'static>> = every(revoked, &disk::read(revoked, MAX_BYTES)?)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            let anchor = anchor_from_trusted_cert(authority)
                .map_err(|source| damaged(trust, "has a damaged certificate", source))?;
            // Else whoever takes the list away gives back what was taken back.
            let mut issuers = Vec::new();
            for list in &lists {
                let list = BorrowedCertRevocationList::from_der(list.as_ref())
                    .and_then(|list| list.to_owned())
                    .map_err(|source| damaged(revoked, "has a damaged list", source))?;
                issuers.push(webpki::CertRevocationList::from(list).issuer().to_vec());
            }
            if !issuers.iter().any(|issuer| issuer.as_slice() == anchor.subject.as_ref()) {
                return Err(content(revoked, &format!("has no list of an authority that `{}` has", place::TRUST)));
            }
            roots.roots.push(anchor.to_owned());
        }
        if roots.is_empty() {
            return Err(content(trust, "has no certificate"));
        }
        Ok(Self { role, chain, key, roots: Arc::new(roots), lists, marks })
    }

    /// Whose it is.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Whether its files are others than those that were read: then it is opened anew, for the connections to come.
    pub fn has_changed(&self) -> bool {
        self.marks.iter().any(|before| mark(&before.0).ok().as_ref() != Some(before))
    }
}

/// The one role in a folder that is wanted.
fn choose(folder: &Path, index: &Index, wanted: &Wanted) -> Result<Role, KeysError> {
    let current = || index.issued.iter().filter(|entry| entry.is_current());
    let suiting: Vec<&Issued> = current().filter(|entry| wanted.allows(entry)).collect();
    if let [one] = suiting.as_slice() {
        return Ok(one.role()?);
    }
    let shown = |entries: Vec<&Issued>| {
        let shown: Vec<String> =
            entries.iter().map(|entry| format!("{} `{}`", entry.role.word(), entry.name)).collect();
        if shown.is_empty() { "no certificate".to_owned() } else { format!("those of {}", shown.join(", ")) }
    };
    let issue = match (wanted.kind, &wanted.name) {
        (kind, Some(name)) => format!("`torchlift keys issue {}`", kind.arguments(name)),
        (RoleKind::Client, None) => "`torchlift keys issue --client NAME`".to_owned(),
        (RoleKind::Host, None) => "`torchlift keys issue HOST`".to_owned(),
    };
    let next = match (suiting.is_empty(), index.holds) {
        (false, _) => "say which one by its name".to_owned(),
        (true, Holds::Authority) => format!("{issue} issues one"),
        (true, Holds::Certificate) => {
            format!("{issue} where the authority is, and carry it here; a client's controls, a host's serves")
        }
    };
    let found = if suiting.is_empty() { shown(current().collect()) } else { shown(suiting) };
    Err(KeysError::Choice { folder: folder.to_owned(), wanted: wanted.to_string(), found, next })
}

fn mark(path: &Path) -> Result<Mark, KeysError> {
    let metadata = fs_err::metadata(path).map_err(|source| KeysError::Unreadable { path: path.to_owned(), source })?;
    Ok((path.to_owned(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

/// All of one kind in a PEM file.
fn every<T: PemObject>(path: &Path, text: &[u8]) -> Result<Vec<T>, KeysError> {
    T::pem_slice_iter(text).collect::<Result<_, _>>().map_err(|source| damaged(path, "is damaged", source))
}

fn content(path: &Path, what: &str) -> KeysError {
    KeysError::Content { path: path.to_owned(), what: what.to_owned(), source: None }
}

fn damaged(path: &Path, what: &str, source: impl std::error::Error + Send + Sync + 'static) -> KeysError {
    KeysError::Content { path: path.to_owned(), what: what.to_owned(), source: Some(Box::new(source)) }
}
