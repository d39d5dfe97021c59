//! What `torchlift keys` changes: an authority is made, certificates are issued and taken back, authorities take turns.
//!
//! Owns the order in which files are written. The index is written first, with the name of the command in it, and again when all
//! else is there: nothing is ever out that the index does not know, and a command that was cut short is named and repeated.
//! When you change it: each of the steps has to stand being cut off behind it, and being done again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::authority::Signer;
use super::check;
use super::disk;
use super::error::KeysError;
use super::index::{Duty, Holds, Index, Issued, MAX_BYTES, Stamp};
use super::place;
use super::role::{Role, RoleKind, check_address};
use crate::lock::Lock;

/// How long another command is waited for: it takes milliseconds, with a thousand hosts seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a certificate is good for when nobody says it. Days.
pub const DAYS: u32 = 365;
/// How long an authority is good for when nobody says it. Days.
pub const AUTHORITY_DAYS: u32 = 3_650;

/// What is to be issued.
#[derive(Clone, Debug)]
pub struct Request {
    /// To whom.
    pub role: Role,
    /// By what a host is dialled beside its own name: DNS names and addresses. None keeps those of the certificate before.
    pub names: Vec<String>,
    /// How long it is good for.
    pub days: u32,
    /// Also when there is one that is still good.
    pub is_forced: bool,
}

/// What came of [`issue`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was issued.
    pub issued: Issued,
    /// The folder to carry.
    pub folder: PathBuf,
    /// Whether an earlier one is still good.
    pub has_replaced: bool,
}

/// What came of [`rotate`].
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The authority that goes.
    pub retiring: String,
    /// The one that signs now.
    pub signing: String,
    /// Who got a new certificate.
    pub issued: Vec<Role>,
    /// Whose had expired, so that it got none.
    pub expired: Vec<Role>,
}

/// Makes an authority in a folder that has no keys, and the folder itself.
///
/// # Errors
/// When there are keys already, or something cannot be written.
pub fn init(folder: &Path, days: u32, now: Duration) -> Result<Index, KeysError> {
    if disk::read_index(folder)?.is_some() {
        return Err(KeysError::Present { folder: folder.to_owned() });
    }
    disk::make_folder(folder)?;
    if let Some(finding) = check::of_folder(folder) {
        return Err(KeysError::Findings { folder: folder.to_owned(), findings: vec![finding] });
    }
    let _lock = Lock::take(&folder.join(place::LOCK), PATIENCE)?;
    if disk::read_index(folder)?.is_some() {
        return Err(KeysError::Present { folder: folder.to_owned() });
    }
    let signer = Signer::make(days, Stamp::of(now))?;
    let index = Index::new(Holds::Authority, vec![signer.entry.clone()]);
    let keyring = Keyring { folder: folder.to_owned(), index, signers: vec![signer], _lock };
    for part in [place::AUTHORITY, RoleKind::Host.word(), RoleKind::Client.word()] {
        disk::make_folder(&folder.join(part))?;
    }
    keyring.write_signers()?;
    keyring.publish(now, |_| true)?;
    // Of one that was cut off.
    keyring.remove_others()?;
    // Last: before it, there are no keys.
    keyring.write_index(None)?;
    Ok(keyring.index)
}

/// Issues a certificate; its folder is complete, and can be carried.
///
/// # Errors
/// When there is one that is good and nothing is forced, when a name is none, or something cannot be written.
pub fn issue(folder: &Path, request: &Request, now: Duration) -> Result<Outcome, KeysError> {
    let role = &request.role;
    request.names.iter().try_for_each(|name| check_address(name))?;
    let command = format!("issue {} --force", role.kind().arguments(role.name()));
    let mut keyring = Keyring::open(folder, &command)?;
    let before = keyring.index.current(role).cloned();
    let is_good = before.as_ref().filter(|before| before.not_after > Stamp::of(now));
    if let Some(before) = is_good.filter(|_| !request.is_forced) {
        return Err(KeysError::Issued { role: role.clone(), until: before.not_after.day() });
    }
    let mut names = request.names.clone();
    if names.is_empty() {
        names = before.as_ref().map(|before| before.names.clone()).unwrap_or_default();
    }
    names.retain(|name| name != role.name());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let text = keyring.issue(role, &names, request.days, now)?;
    keyring.commit(&command, now, &[(role.clone(), text)])?;
    let issued = keyring
        .index
        .current(role)
        .cloned()
        .ok_or_else(|| KeysError::Unknown { role: role.clone(), known: Vec::new() })?;
    Ok(Outcome { issued, folder: place::issued(folder, role), has_replaced: is_good.is_some() })
}

/// Takes back all certificates that were issued for a role, and gives how many; none when they were all taken back before.
///
/// # Errors
/// When none was ever issued, or something cannot be written.
pub fn revoke(folder: &Path, role: &Role, now: Duration) -> Result<usize, KeysError> {
    let command = format!("revoke {}", role.kind().arguments(role.name()));
    let mut keyring = Keyring::open(folder, &command)?;
    let mut count = 0;
    let mut is_known = false;
    for entry in keyring.index.issued.iter_mut().filter(|entry| entry.is_of(role)) {
        is_known = true;
        if entry.revoked.is_none() {
            entry.revoked = Some(Stamp::of(now));
            count += 1;
        }
    }
    if !is_known {
        let same = |entry: &&Issued| entry.role == role.kind() && entry.is_current();
        let known = keyring.index.issued.iter().filter(same).map(|entry| format!("`{}`", entry.name)).collect();
        return Err(KeysError::Unknown { role: role.clone(), known });
    }
    keyring.commit(&command, now, &[])?;
    // Its key is good for nothing now.
    let own = place::issued(folder, role);
    match fs_err::remove_dir_all(&own) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(KeysError::Unwritable { path: own, source: error })
        }
        _ => Ok(count),
    }
}

/// Makes a new authority, has the old one sign for it, and issues all certificates anew.
///
/// Both are trusted from now on. Who has not been carried anything new trusts the old one alone, follows its signature to what
/// the new one issues, and is itself still trusted: it does not matter who gets the new folders first.
///
/// # Errors
/// When a rotation is under way, the old authority has expired, or something cannot be written.
pub fn rotate(folder: &Path, days: u32, now: Duration) -> Result<Rotation, KeysError> {
    let command = "rotate";
    let mut keyring = Keyring::open(folder, command)?;
    match keyring.index.retiring() {
        None => keyring.succeed(days, now)?,
        // The certificates that it had come to are issued once more.
        Some(_) if keyring.index.unfinished.as_deref() == Some(command) => {}
        Some(retiring) => return Err(KeysError::Rotating { retiring: retiring.id.clone() }),
    }
    let retiring = keyring.index.retiring().map(|entry| entry.id.clone()).unwrap_or_default();
    let signing = keyring.index.signing().map(|entry| entry.id.clone()).unwrap_or_default();
    let current: Vec<Issued> = keyring.index.issued.iter().filter(|entry| entry.is_current()).cloned().collect();
    let mut rotation = Rotation { retiring, signing, issued: Vec::new(), expired: Vec::new() };
    let mut texts = Vec::new();
    for entry in current {
        let role = entry.role()?;
        if entry.not_after <= Stamp::of(now) {
            rotation.expired.push(role);
            continue;
        }
        let lifetime = (entry.not_after.0 - entry.not_before.0) / super::index::DAY;
        let text = keyring.issue(&role, &entry.names, u32::try_from(lifetime).unwrap_or(DAYS), now)?;
        texts.push((role.clone(), text));
        rotation.issued.push(role);
    }
    keyring.commit(command, now, &texts)?;
    Ok(rotation)
}

/// Ends a rotation: the old authority is trusted no more, and its key is removed. Gives its id, or none when that was done.
///
/// # Errors
/// When none is under way, or something cannot be written.
pub fn finish(folder: &Path, now: Duration) -> Result<Option<String>, KeysError> {
    let command = "rotate --finish";
    let mut keyring = Keyring::open(folder, command)?;
    let retiring = keyring.index.retiring().map(|entry| entry.id.clone());
    if retiring.is_none() && keyring.index.unfinished.as_deref() != Some(command) {
        return Err(KeysError::NotRotating);
    }
    keyring.index.authorities.retain(|entry| entry.duty == Duty::Signs);
    keyring.signers.retain(|signer| signer.entry.duty == Duty::Signs);
    let signing = keyring.index.signing().map(|entry| entry.id.clone()).unwrap_or_default();
    // What it had issued is good for nothing now, and need not be taken back.
    keyring.index.issued.retain(|entry| entry.authority == signing);
    keyring.commit(command, now, &[])?;
    Ok(retiring)
}

/// A folder with an authority that nobody else changes meanwhile.
struct Keyring {
    folder: PathBuf,
    index: Index,
    signers: Vec<Signer>,
    _lock: Lock,
}

impl Keyring {
    /// Opens it for a command: one that was cut short before goes first.
    fn open(folder: &Path, command: &str) -> Result<Self, KeysError> {
        // Where there is nothing, no lock is made.
        let absent = || KeysError::Absent { folder: folder.to_owned() };
        disk::read_index(folder)?.ok_or_else(absent)?;
        let lock = Lock::take(&folder.join(place::LOCK), PATIENCE)?;
        let index = disk::read_index(folder)?.ok_or_else(absent)?;
        if index.holds == Holds::Certificate {
            let holder = index.issued.first().ok_or_else(absent)?.role()?;
            return Err(KeysError::NoAuthority { folder: folder.to_owned(), holder });
        }
        // What is missing is written anew, or missed where it is read.
        let mut findings = check::of_files(folder, &index);
        findings.retain(|finding| finding.code != "keys-missing");
        let before = index.unfinished.as_deref().filter(|before| *before != command);
        // What is to be taken back does not wait.
        if let Some(before) = before.filter(|_| !command.starts_with("revoke ")) {
            findings.push(check::unfinished(folder, before));
        }
        if !findings.is_empty() {
            return Err(KeysError::Findings { folder: folder.to_owned(), findings });
        }
        let mut signers = Vec::new();
        for entry in &index.authorities {
            let path = place::authority(folder, &entry.id);
            let text = String::from_utf8_lossy(&disk::read(&path, MAX_BYTES)?).into_owned();
            signers.push(Signer::read(&path, &text, entry)?);
        }
        Ok(Self { folder: folder.to_owned(), index, signers, _lock: lock })
    }

    fn signer(&self, now: Duration) -> Result<&Signer, KeysError> {
        let signer = self.signers.iter().find(|signer| signer.entry.duty == Duty::Signs);
        let signer = signer.ok_or_else(|| KeysError::Absent { folder: self.folder.clone() })?;
        if signer.entry.not_after <= Stamp::of(now) {
            let (id, day) = (signer.entry.id.clone(), signer.entry.not_after.day());
            return Err(KeysError::AuthorityExpired { id, day });
        }
        Ok(signer)
    }

    /// Signs a certificate and puts it into the index; gives the text of its file.
    fn issue(&mut self, role: &Role, names: &[String], days: u32, now: Duration) -> Result<String, KeysError> {
        let (entry, text) = self.signer(now)?.issue(role, names, days, Stamp::of(now))?;
        for before in self.index.issued.iter_mut().filter(|before| before.is_of(role) && before.is_current()) {
            before.is_replaced = true;
        }
        self.index.issued.push(entry);
        Ok(text)
    }

    /// Makes the authority that signs from now on.
    fn succeed(&mut self, days: u32, now: Duration) -> Result<(), KeysError> {
        let mut new = Signer::make(days, Stamp::of(now))?;
        new.be_vouched_for(self.signer(now)?)?;
        for signer in &mut self.signers {
            signer.entry.duty = Duty::Retires;
        }
        self.signers.push(new);
        self.index.authorities = self.signers.iter().map(|signer| signer.entry.clone()).collect();
        // Before the index names it.
        self.write_signers()
    }

    /// Writes everything down: index, files, index.
    fn commit(&mut self, command: &str, now: Duration, texts: &[(Role, String)]) -> Result<(), KeysError> {
        let before = self.index.unfinished.take();
        // With a thousand hosts a certificate more must not cost a thousand writes: whoever has the list has it still. What was
        // cut off may have been a list.
        let is_addition = command.starts_with("issue ") && before.is_none();
        let others = before.filter(|before| before != command);
        self.write_index(others.as_deref().or(Some(command)))?;
        for (role, text) in texts {
            let own = place::issued(&self.folder, role);
            disk::make_folder(&own)?;
            disk::write(&own, place::IDENTITY, text)?;
        }
        self.publish(now, |role| !is_addition || texts.iter().any(|(issued, _)| issued == role))?;
        self.remove_others()?;
        self.write_index(others.as_deref())?;
        self.index.unfinished = others;
        Ok(())
    }

    fn write_index(&self, unfinished: Option<&str>) -> Result<(), KeysError> {
        let mut index = self.index.clone();
        index.unfinished = unfinished.map(str::to_owned);
        disk::write(&self.folder, place::INDEX, &index.to_text())
    }

    fn write_signers(&self) -> Result<(), KeysError> {
        let folder = self.folder.join(place::AUTHORITY);
        self.signers
            .iter()
            .try_for_each(|signer| disk::write(&folder, &format!("{}.pem", signer.entry.id), &signer.to_text()))
    }

    /// Writes who is trusted and what was taken back, here and into the folders of these roles, which can be carried.
    fn publish(&self, now: Duration, is_meant: impl Fn(&Role) -> bool) -> Result<(), KeysError> {
        let now = Stamp::of(now);
        let trust: String = self.signers.iter().map(Signer::trust).collect();
        let mut lists = String::new();
        for signer in &self.signers {
            let is_revoked = |entry: &&Issued| entry.authority == signer.entry.id && entry.revoked.is_some();
            lists.push_str(&signer.list(&self.index.issued.iter().filter(is_revoked).collect::<Vec<_>>(), now)?);
        }
        disk::write(&self.folder, place::REVOKED, &lists)?;
        disk::write(&self.folder, place::TRUST, &trust)?;
        for entry in self.index.issued.iter().filter(|entry| entry.is_current()) {
            let role = entry.role()?;
            let own = place::issued(&self.folder, &role);
            if is_meant(&role) && own.is_dir() {
                let mut index = Index::new(Holds::Certificate, self.index.authorities.clone());
                index.issued.push(entry.clone());
                disk::write(&own, place::REVOKED, &lists)?;
                disk::write(&own, place::TRUST, &trust)?;
                disk::write(&own, place::INDEX, &index.to_text())?;
            }
        }
        Ok(())
    }

    /// Removes the private keys of authorities that nobody trusts any more.
    fn remove_others(&self) -> Result<(), KeysError> {
        let folder = self.folder.join(place::AUTHORITY);
        let unreadable = |source| KeysError::Unreadable { path: folder.clone(), source };
        for entry in fs_err::read_dir(&folder).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            let is_trusted = self.index.authorities.iter().any(|authority| name == format!("{}.pem", authority.id));
            if name.ends_with(".pem") && !is_trusted {
                disk::remove(&folder, &name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
