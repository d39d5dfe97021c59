//! Holding a variant against the list of its files that was written when it was put into the store.
//!
//! Every byte is read: digests that were remembered would only say what was true then. Must not change anything.

use std::io;

use camino::Utf8PathBuf;
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use torchlift_schema::{Finding, Place, VariantId};

use super::Stored;
use super::event::Listener;
use super::hold::{Hold, HoldError};
use super::listing::{self, Difference, Listing, Tree};
use super::record;

/// What became of one variant.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// The variant.
    pub id: VariantId,
    /// Its folder.
    pub root: Utf8PathBuf,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It is what was put in.
    Same {
        /// Files that were read.
        files: usize,
        /// Bytes that were read.
        bytes: u64,
    },
    /// It is not.
    Differs {
        /// Each file that is not as it was.
        differences: Vec<Difference>,
    },
    /// There is no list of its files: a person put it there, or an older release.
    Unrecorded,
    /// The list itself is not the one that was written.
    BadList {
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a variant cannot be held against its list.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It is being removed.
    #[error("a variant cannot be read")]
    Hold(#[from] HoldError),
    /// A folder of it cannot be listed.
    #[error("the files of `{root}` cannot be listed")]
    Io {
        /// The variant's folder.
        root: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Reads every file of a variant.
///
/// # Errors
/// When it is being removed, or its folders cannot be listed.
pub fn verify(stored: &Stored, listen: Listener<'_>) -> Result<Verified, VerifyError> {
    let _hold = Hold::shared(&stored.root)?;
    let outcome = outcome(stored, listen).map_err(|source| VerifyError::Io { root: stored.root.clone(), source })?;
    Ok(Verified { id: stored.id.clone(), root: stored.root.clone(), outcome })
}

/// Looks whether every file of the list is there, and the list itself the one that was written; reads no file. That it is
/// the same says nothing of what is in them.
pub fn glance(stored: &Stored) -> Verified {
    let outcome = match listing(stored) {
        Ok(listing) => {
            let names = listing.files.keys().chain(listing.links.keys());
            let is_gone = |name: &&String| fs_err::symlink_metadata(stored.root.join(name)).is_err();
            let gone = names.filter(is_gone).map(|name| Difference::Missing { path: name.clone() });
            let differences: Vec<Difference> = gone.collect();
            match differences.is_empty() {
                true => Outcome::Same { files: listing.files.len(), bytes: 0 },
                false => Outcome::Differs { differences },
            }
        }
        Err(outcome) => outcome,
    };
    Verified { id: stored.id.clone(), root: stored.root.clone(), outcome }
}

fn outcome(stored: &Stored, listen: Listener<'_>) -> io::Result<Outcome> {
    let listing = match listing(stored) {
        Ok(listing) => listing,
        Err(outcome) => return Ok(outcome),
    };
    let tree = Tree::read(&stored.root, listen)?;
    let differences = listing.differences(&tree);
    if differences.is_empty() {
        return Ok(Outcome::Same { files: tree.files.len(), bytes: tree.size() });
    }
    Ok(Outcome::Differs { differences })
}

/// The list of a variant's files, with its links; or why there is none to hold it against.
fn listing(stored: &Stored) -> Result<Listing, Outcome> {
    let root = &stored.root;
    let bad = |reason: String| Err(Outcome::BadList { reason });
    let record = record::read(root);
    let bytes = match Listing::bytes(root) {
        Ok(bytes) => bytes,
        Err(error) => return bad(error.to_string()),
    };
    let (mut listing, record) = match (bytes, record) {
        (Some(bytes), Some(record)) => {
            let found = hex(&Sha256::digest(&bytes));
            match &record.listing_sha256 {
                Some(expected) if *expected == found => {}
                Some(expected) => {
                    return bad(format!("`{}` has sha256 {found}, and the record says {expected}", listing::FILE));
                }
                None => return Err(Outcome::Unrecorded),
            }
            match Listing::parse(&String::from_utf8_lossy(&bytes)) {
                Some(listing) => (listing, record),
                None => return bad(format!("`{}` is no list of digests", listing::FILE)),
            }
        }
        (None, Some(record)) if record.listing_sha256.is_some() => {
            return bad(format!("`{}` is gone", listing::FILE));
        }
        (Some(_), None) => return bad(format!("`{}` is gone, or cannot be read", record::FILE)),
        (None, _) => return Err(Outcome::Unrecorded),
    };
    listing.links = record.links;
    Ok(listing)
}

impl Verified {
    /// Whether it is known to be what was put in.
    pub fn is_same(&self) -> bool {
        matches!(self.outcome, Outcome::Same { .. })
    }

    /// What is wrong with it, as findings. `was_named`: a person asked about this very variant, so that one that nothing
    /// is known of is an error.
    pub fn findings(&self, was_named: bool) -> Vec<Finding> {
        let place = || Place::file(self.root.as_str());
        let again = format!("get it again: remove `{}`, then fetch or add it", self.id);
        match &self.outcome {
            Outcome::Same { .. } => Vec::new(),
            Outcome::Unrecorded => {
                let message = "there is no list of its files, so that nobody knows what they were";
                let remedy = format!("`libtorch add {}` makes a variant that has one", self.root);
                vec![match was_named {
                    true => Finding::error("libtorch-unrecorded", place(), message).remedy(remedy),
                    false => Finding::warning("libtorch-unrecorded", place(), message).remedy(remedy),
                }]
            }
            Outcome::BadList { reason } => {
                vec![Finding::error("libtorch-list-changed", place(), reason.clone()).remedy(again)]
            }
            Outcome::Differs { differences } => {
                differences.iter().map(|difference| self.finding(difference, again.clone())).collect()
            }
        }
    }

    fn finding(&self, difference: &Difference, again: String) -> Finding {
        let place = |path: &str| Place::file(self.root.join(path).as_str());
        match difference {
            Difference::Changed { path, expected, found } => {
                let message = format!("it was {expected}, and is {found}");
                Finding::error("libtorch-file-changed", place(path), message).remedy(again)
            }
            Difference::Missing { path } => {
                Finding::error("libtorch-file-missing", place(path), "it is gone").remedy(again)
            }
            Difference::Added { path } => {
                let message = "it was not there when the variant was put in";
                Finding::error("libtorch-file-added", place(path), message)
                    .remedy("take it away, or look who put it there")
            }
            Difference::Unreadable { path, reason } => {
                Finding::error("libtorch-file-unreadable", place(path), reason.clone()).remedy(again)
            }
        }
    }
}
