//! Why an envelope was refused.
//!
//! One variant for each thing a person can mend; texts from the file are shown escaped and cut short, since the file may be
//! anybody's. Must not say which file it was: the caller knows, and puts it in front.

use crate::finding::{Finding, Place, in_file};

/// Why an envelope was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// More bytes than [`crate::read::MAX_BYTES`]; nothing of it was parsed.
    #[error("{size} bytes, and an envelope has at most {limit}")]
    TooLarge {
        /// Bytes that were given.
        size: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// A byte order mark stands in front.
    #[error("begins with a byte order mark")]
    ByteOrderMark,
    /// Not UTF-8.
    #[error("no UTF-8 at byte {offset}")]
    NotUtf8 {
        /// Offset of the first wrong byte, from 0.
        offset: usize,
    },
    /// Nested deeper than [`crate::read::MAX_DEPTH`]; nothing of it was parsed.
    #[error("nested deeper than {limit} levels at byte {offset}")]
    TooDeep {
        /// Levels that are allowed.
        limit: usize,
        /// Offset of the bracket that goes too deep, from 0.
        offset: usize,
    },
    /// The text ends inside a value.
    #[error("ends too early, at line {line}, column {column}")]
    CutShort {
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in bytes; 0 where the line has none.
        column: usize,
    },
    /// No JSON.
    #[error("no JSON at line {line}, column {column}: {reason}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in bytes; 0 where the line has none.
        column: usize,
        /// What the parser met.
        reason: String,
    },
    /// Something follows the JSON value.
    #[error("something follows the JSON value, at line {line}, column {column}")]
    TrailingData {
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in bytes; 0 where the line has none.
        column: usize,
    },
    /// One object has one key twice, at any level.
    #[error("`{path}` is there twice")]
    DuplicateKey {
        /// Path of the key.
        path: String,
    },
    /// Of a newer version than this crate reads.
    #[error("of envelope version {version}, and this `torchlift` reads up to {supported}")]
    Newer {
        /// The version that the file states.
        version: u64,
        /// The newest that is read: [`crate::version::VERSION`].
        supported: u32,
    },
    /// A key that has to be there is not.
    #[error("`{path}` is missing")]
    MissingKey {
        /// Path of the key.
        path: String,
    },
    /// A value of another type than it has to be.
    #[error("{} is {found} where {wanted} belongs", place_of(.path))]
    WrongType {
        /// Path of the key; `.` is the whole file.
        path: String,
        /// What is there.
        found: String,
        /// What has to be there.
        wanted: String,
    },
    /// A value of the right type that cannot be read.
    #[error("{}: {reason}", place_of(.path))]
    WrongValue {
        /// Path of the key.
        path: String,
        /// Why.
        reason: String,
    },
    /// A number that is not whole: an envelope of any revision has only whole ones, so that every language writes them alike.
    #[error("`{path}` is a number with a fraction or an exponent, or beyond 64 bits")]
    NotWhole {
        /// Path of the key.
        path: String,
    },
    /// The digest of the rest is not what `self_sha256` states.
    #[error("`self_sha256` states `{stated}`, and the rest of the envelope has `{computed}`")]
    Digest {
        /// What the file states.
        stated: String,
        /// What was computed.
        computed: String,
    },
    /// Values that break a rule of the format: all of them. `Display` has the first and how many more there are.
    #[error("{}", first_of(.findings))]
    Values {
        /// One a broken rule, with the path of the key in its place.
        findings: Vec<Finding>,
    },
}

/// How a path is called in a message.
fn place_of(path: &str) -> String {
    if path == "." { "the top level".to_owned() } else { format!("`{path}`") }
}

pub(crate) fn first_of(findings: &[Finding]) -> String {
    let Some(first) = findings.first() else { return "breaks a rule of the format".to_owned() };
    let text = format!("{}: {}", first.place, first.message);
    match findings.len() - 1 {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

impl EnvelopeError {
    /// A stable kebab-case name of the variant, as in a finding.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "envelope-too-large",
            Self::ByteOrderMark => "envelope-byte-order-mark",
            Self::NotUtf8 { .. } => "envelope-not-utf8",
            Self::TooDeep { .. } => "envelope-too-deep",
            Self::CutShort { .. } => "envelope-cut-short",
            Self::Syntax { .. } => "envelope-syntax",
            Self::TrailingData { .. } => "envelope-trailing-data",
            Self::DuplicateKey { .. } => "envelope-duplicate-key",
            Self::Newer { .. } => "envelope-newer",
            Self::MissingKey { .. } => "envelope-missing-key",
            Self::WrongType { .. } => "envelope-wrong-type",
            Self::WrongValue { .. } => "envelope-wrong-value",
            Self::NotWhole { .. } => "envelope-not-whole",
            Self::Digest { .. } => "envelope-digest",
            Self::Values { .. } => "envelope-values",
        }
    }

    /// Path of the key that is wrong, where one is; [`EnvelopeError::Values`] has one in each finding.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::DuplicateKey { path }
            | Self::MissingKey { path }
            | Self::WrongType { path, .. }
            | Self::WrongValue { path, .. }
            | Self::NotWhole { path } => Some(path),
            Self::Digest { .. } => Some("self_sha256"),
            Self::Newer { .. } => Some("version"),
            _ => None,
        }
    }

    /// What to do next: a lower-case fragment.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::TooDeep { .. } => "this is no envelope; give the file that `build` wrote",
            Self::ByteOrderMark | Self::NotUtf8 { .. } => {
                "an editor or a transfer changed the file; copy it again as it was written, or build again"
            }
            Self::CutShort { .. } | Self::TrailingData { .. } => {
                "the file was not written or copied whole; copy it again, or build again"
            }
            Self::Newer { .. } => {
                "install a newer `torchlift` here (`cargo install torchlift --locked`), or build again with the release that is \
                 installed here"
            }
            Self::Digest { .. } => "the envelope was edited after it was written; build again instead of editing it",
            Self::MissingKey { path } if path == "version" => {
                "this is no envelope of Torchlift; a bare per-host envelope or a map of them goes to `--envelopes` as it is"
            }
            Self::Syntax { .. }
            | Self::DuplicateKey { .. }
            | Self::MissingKey { .. }
            | Self::WrongType { .. }
            | Self::WrongValue { .. }
            | Self::NotWhole { .. }
            | Self::Values { .. } => {
                "envelopes are written by `build`; build again, or mend the program that wrote this one"
            }
        }
    }

    /// The same as findings, each in `place` with its key: those of [`EnvelopeError::Values`], else a single one.
    pub fn into_findings(self, place: &Place) -> Vec<Finding> {
        let single = |error: &Self| {
            let mut place = place.clone();
            if let Some(path) = error.path() {
                place.key = Some(path.to_owned());
            }
            vec![Finding::error(error.code(), place, error.to_string()).remedy(error.hint())]
        };
        let hint = self.hint();
        match self {
            Self::Values { findings } => in_file(findings, place, hint),
            other => single(&other),
        }
    }
}
