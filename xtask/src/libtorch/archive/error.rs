//! Why an archive is refused, and what to do about it.

use std::io;

use camino::Utf8PathBuf;

use crate::libtorch::event::human_size;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is damaged, or no zip archive: what a broken download looks like.
    #[error("`{archive}` is no whole zip archive")]
    Damaged {
        /// The archive.
        archive: Utf8PathBuf,
        /// Why.
        #[source]
        source: zip::result::ZipError,
    },
    /// A tar archive is damaged, or ends too early.
    #[error("`{archive}` is no whole tar archive")]
    BrokenTar {
        /// The archive.
        archive: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is of no form that can be unpacked.
    #[error("`{archive}` is no archive that can be unpacked: no zip, no wheel, no tar, none packed with gzip or zstd")]
    Unknown {
        /// The file.
        archive: Utf8PathBuf,
    },
    /// The path is no regular file.
    #[error("`{archive}` is a {what}, and no archive")]
    NotAFile {
        /// The path.
        archive: Utf8PathBuf,
        /// `pipe`, `device`.
        what: &'static str,
    },
    /// Its bytes are not those that were asked for.
    #[error("`{archive}` has sha256 {found}, and {expected} was asked for")]
    Unexpected {
        /// The archive.
        archive: Utf8PathBuf,
        /// Lower-case hex.
        expected: String,
        /// Lower-case hex.
        found: String,
    },
    /// An entry would be written outside the folder.
    #[error("`{archive}` holds `{entry}`, which would leave the folder it is unpacked into")]
    Escapes {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name as it stands there.
        entry: String,
    },
    /// An entry would be written, or a link would lead, through a link of the same archive.
    #[error("`{archive}` holds `{entry}`, which leads through the link `{link}`")]
    ThroughLink {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// The link.
        link: String,
    },
    /// An entry is neither a file nor a folder nor a link.
    #[error("`{archive}` holds `{entry}`, which is {what}")]
    Special {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// `a device`, `a pipe`.
        what: &'static str,
    },
    /// It holds more entries than a libtorch has.
    #[error("`{archive}` holds more than {limit} entries")]
    TooMany {
        /// The archive.
        archive: Utf8PathBuf,
        /// How many are believed.
        limit: usize,
    },
    /// More would come out of it than a libtorch has.
    #[error("`{archive}` would unpack to more than {}", human_size(*limit))]
    TooLarge {
        /// The archive.
        archive: Utf8PathBuf,
        /// Bytes that are believed.
        limit: u64,
    },
    /// More came out of an entry than the archive's own list says.
    #[error("`{entry}` of `{archive}` holds more than the {stated} bytes that the archive states")]
    Grows {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// Bytes.
        stated: u64,
    },
    /// The disk has no room for what comes out of it.
    #[error("no room in `{folder}`: {} are needed, and it has {} free", human_size(*needed), human_size(*available))]
    Space {
        /// The folder on that disk.
        folder: Utf8PathBuf,
        /// Bytes.
        needed: u64,
        /// Bytes.
        available: u64,
    },
    /// An entry is there twice, so that two readers could see two contents.
    #[error("`{archive}` holds `{entry}` twice")]
    Twice {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// An entry that is needed is not there.
    #[error("`{archive}` holds no `{entry}`")]
    Absent {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// The archive's own list of digests does not name an entry.
    #[error("`{entry}` of `{archive}` has no digest in the archive's `RECORD`")]
    Unrecorded {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
    },
    /// The bytes are not those that the list of digests names.
    #[error("`{entry}` of `{archive}` has sha256 {found}, and the archive's `RECORD` says {expected}")]
    Digest {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// What `RECORD` says, lower-case hex.
        expected: String,
        /// What was read, lower-case hex.
        found: String,
    },
    /// An entry could not be decompressed, or fails its check sum.
    #[error("`{entry}` of `{archive}` cannot be unpacked")]
    Entry {
        /// The archive.
        archive: Utf8PathBuf,
        /// The entry's name.
        entry: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be read or written on this machine's side.
    #[error("`{file}` could not be read or written")]
    File {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ArchiveError {
    /// Whether the disk is full, or a quota is.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_full_disk(source))
    }

    /// Whether a new copy of the archive may help.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::BrokenTar { .. }
                | Self::Digest { .. }
                | Self::Entry { .. }
                | Self::Absent { .. }
                | Self::Unexpected { .. }
        )
    }

    /// Whether the archive was made to do harm, or by a tool that nobody should use.
    pub fn is_hostile(&self) -> bool {
        matches!(
            self,
            Self::Escapes { .. }
                | Self::ThroughLink { .. }
                | Self::Special { .. }
                | Self::Twice { .. }
                | Self::TooMany { .. }
                | Self::TooLarge { .. }
                | Self::Grows { .. }
        )
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Space { .. } => Some("make room there, or name another place with `TORCHLIFT_HOME`".to_owned()),
            Self::Unexpected { archive, .. } => {
                Some(format!("get `{archive}` again, or find out which of the two digests is right"))
            }
            error if error.is_hostile() => {
                Some("it was not made by the usual tools: find out where it came from, and delete it".to_owned())
            }
            error if error.is_full_disk() => Some("make room there".to_owned()),
            error if error.is_damage() => Some("get the archive again".to_owned()),
            _ => None,
        }
    }
}

/// Whether an error means that the disk is full, or a quota is.
pub(in crate::libtorch) fn is_full_disk(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
