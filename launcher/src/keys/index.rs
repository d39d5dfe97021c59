//! `keys.json`: what there is in a folder of keys, for programs, and for those who read no certificates.
//!
//! Owns the format. `version` refuses, `revision` informs, keys that a reader does not know are passed over, and no name in it
//! leads out of the folder. It says what was issued, and never grants anything: what counts in a connection is in certificates.
//! When you change it: raise `REVISION`, give a new key a default, and leave it out when it is empty.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::role::{NameError, Role, RoleKind, check_address};
use crate::plan;

/// A reader refuses a higher one.
pub const VERSION: u32 = 1;
/// Raised with each addition.
#[cfg(any(test, feature = "net"))]
const REVISION: u32 = 0;
/// The largest index that is read, in bytes: some ten thousand certificates.
pub const MAX_BYTES: u64 = 8 << 20;
/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// A time to the second, as seconds since 1970; written as `2026-11-30T14:23:05Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stamp(pub u64);

impl Stamp {
    /// A reading of the wall clock.
    pub fn of(wall: Duration) -> Self {
        Self(wall.as_secs())
    }

    /// The day alone, such as `2026-11-30`.
    pub fn day(self) -> String {
        let mut text = self.to_string();
        text.truncate(10);
        text
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&plan::stamp(Duration::from_secs(self.0)).replace(".000Z", "Z"))
    }
}

impl From<Stamp> for String {
    fn from(stamp: Stamp) -> Self {
        stamp.to_string()
    }
}

impl TryFrom<String> for Stamp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        plan::seconds_of(&text).map(Self).ok_or_else(|| format!("`{text}` is no time such as `2026-11-30T14:23:05Z`"))
    }
}

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// Issues certificates.
    Authority,
    /// Is one host's or one client's.
    Certificate,
}

/// What an authority does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    /// Signs what is issued.
    Signs,
    /// Is trusted until `rotate --finish`, and signs only what it takes back.
    Retires,
}

/// One authority that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityEntry {
    /// What tells it from others: the first half of its serial number.
    pub id: String,
    /// What it does now.
    pub duty: Duty,
    /// Serial number in hex.
    pub serial: String,
    /// Valid from here.
    pub not_before: Stamp,
    /// Valid until here.
    pub not_after: Stamp,
}

/// One certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Whether it is a host's or a client's.
    pub role: RoleKind,
    /// Its name.
    pub name: String,
    /// Serial number in hex.
    pub serial: String,
    /// The id of the authority that signed it.
    pub authority: String,
    /// Valid from here.
    pub not_before: Stamp,
    /// Valid until here.
    pub not_after: Stamp,
    /// By what a host can be dialled: DNS names and addresses; its own name is not repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// When it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Stamp>,
    /// Whether a later one was issued for the same role. It is good until it ends or is taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replaced: bool,
}

impl Issued {
    /// Whose it is.
    ///
    /// # Errors
    /// When the name is none; an index that was read has no such entry.
    pub fn role(&self) -> Result<Role, NameError> {
        Role::new(self.role, &self.name)
    }

    /// Whether it is this role's.
    pub fn is_of(&self, role: &Role) -> bool {
        self.role == role.kind() && self.name == role.name()
    }

    /// Whether it is the one that its role works with: neither taken back nor replaced.
    pub fn is_current(&self) -> bool {
        self.revoked.is_none() && !self.is_replaced
    }
}

/// What there is in a folder of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    version: u32,
    #[serde(default)]
    revision: u32,
    /// What the folder is for.
    pub holds: Holds,
    /// Who is trusted; the one that signs is the last.
    pub authorities: Vec<AuthorityEntry>,
    /// What was issued, in that order.
    pub issued: Vec<Issued>,
    /// The command that changed the folder and did not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
}

/// Why a text is no index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// No JSON, or not of this form.
    #[error("it is not in the form of an index of keys")]
    Form(#[from] serde_json::Error),
    /// Of a later torchlift.
    #[error("it has version {version}, and this torchlift reads up to {VERSION}")]
    Newer {
        /// The version that it states.
        version: u32,
    },
    /// With a name that no role can have.
    #[error("an entry cannot be used")]
    Name(#[from] NameError),
    /// An authority's id or a serial number is none.
    #[error("`{text}` is no number in lower-case hex")]
    Number {
        /// The text.
        text: String,
    },
    /// Nobody signs, or two do, or one stands twice.
    #[error("it has not one authority that signs, each with an id of its own")]
    Authorities,
}

impl IndexError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Newer { .. } => "install that torchlift here too",
            _ => "restore the folder from a copy, or begin anew: move it away, then `torchlift keys init`",
        }
    }
}

/// All that is read of an index of another version.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

impl Index {
    /// One without a certificate.
    #[cfg(any(test, feature = "net"))]
    pub(crate) fn new(holds: Holds, authorities: Vec<AuthorityEntry>) -> Self {
        Self { version: VERSION, revision: REVISION, holds, authorities, issued: Vec::new(), unfinished: None }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is of another form or version, or has a name that could lead out of the folder.
    pub fn parse(text: &[u8]) -> Result<Self, IndexError> {
        let Header { version } = serde_json::from_slice(text)?;
        if version > VERSION {
            return Err(IndexError::Newer { version });
        }
        let index: Self = serde_json::from_slice(text)?;
        index.check()?;
        Ok(index)
    }

    fn check(&self) -> Result<(), IndexError> {
        for text in self
            .authorities
            .iter()
            .flat_map(|entry| [&entry.id, &entry.serial])
            .chain(self.issued.iter().map(|entry| &entry.serial))
        {
            let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_hex || text.is_empty() || text.len() > 40 || !text.len().is_multiple_of(2) {
                return Err(IndexError::Number { text: text.clone() });
            }
        }
        for entry in &self.issued {
            entry.role()?;
            entry.names.iter().try_for_each(|name| check_address(name))?;
        }
        let ids: BTreeSet<&str> = self.authorities.iter().map(|entry| entry.id.as_str()).collect();
        let signing = self.authorities.iter().filter(|entry| entry.duty == Duty::Signs).count();
        if ids.len() != self.authorities.len() || signing != 1 {
            return Err(IndexError::Authorities);
        }
        Ok(())
    }

    /// The text of the file.
    #[cfg(any(test, feature = "net"))]
    pub(crate) fn to_text(&self) -> String {
        crate::report::json::text(self)
    }

    /// The authority that signs; none only in an index that was not read.
    pub fn signing(&self) -> Option<&AuthorityEntry> {
        self.authorities.iter().find(|entry| entry.duty == Duty::Signs)
    }

    /// The authority that goes when a rotation is finished.
    pub fn retiring(&self) -> Option<&AuthorityEntry> {
        self.authorities.iter().find(|entry| entry.duty == Duty::Retires)
    }

    /// The certificate that a role works with.
    pub fn current(&self, role: &Role) -> Option<&Issued> {
        self.issued.iter().rev().find(|entry| entry.is_of(role) && entry.is_current())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Index {
        let entry = |id: &str, duty| AuthorityEntry {
            id: id.to_owned(),
            duty,
            serial: format!("{id}00"),
            not_before: Stamp(0),
            not_after: Stamp(951_782_400),
        };
        let mut index = Index::new(Holds::Authority, vec![entry("aa", Duty::Retires), entry("bb", Duty::Signs)]);
        index.issued.push(Issued {
            role: RoleKind::Host,
            name: "node-a".to_owned(),
            serial: "40ff".to_owned(),
            authority: "bb".to_owned(),
            not_before: Stamp(0),
            not_after: Stamp(1),
            names: vec!["10.0.0.5".to_owned()],
            revoked: None,
            is_replaced: false,
        });
        index
    }

    #[test]
    fn an_index_reads_back_and_unknown_keys_are_passed_over() {
        let index = sample();
        assert_eq!(Index::parse(index.to_text().as_bytes()).unwrap(), index);
        let more = index.to_text().replacen('{', "{\"later\": [1],", 1);
        assert_eq!(Index::parse(more.as_bytes()).unwrap(), index);
        assert!(index.to_text().contains("\"not_after\": \"2000-02-29T00:00:00Z\""));
    }

    #[test]
    fn a_newer_one_is_called_newer_whatever_else_is_in_it() {
        let error = Index::parse(b"{\"version\": 2, \"issued\": \"other\"}").unwrap_err();
        assert!(matches!(error, IndexError::Newer { version: 2 }), "{error}");
    }

    #[test]
    fn no_name_in_it_leads_out_of_the_folder() {
        let text = sample().to_text();
        for (from, to) in [("node-a", "../../x"), ("\"aa\"", "\"../x\""), ("\"40ff\"", "\"\""), ("10.0.0.5", "*")] {
            let error = Index::parse(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(matches!(error, IndexError::Name(_) | IndexError::Number { .. }), "{to}: {error}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_never_a_panic() {
        for text in ["", "{", "[]", "null", "{\"version\": -1}", "{\"version\": 1}", "\u{0}"] {
            assert!(matches!(Index::parse(text.as_bytes()), Err(IndexError::Form(_))), "{text}");
        }
        let two = sample().to_text().replace("retires", "signs");
        assert!(matches!(Index::parse(two.as_bytes()), Err(IndexError::Authorities)));
    }
}
