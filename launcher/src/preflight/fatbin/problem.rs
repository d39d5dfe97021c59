//! What does not hold in a file's GPU code.

use serde::{Deserialize, Serialize};

/// One piece of GPU code that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("`{section}`, at byte {offset} of the file: {what}")]
pub struct FatbinProblem {
    /// The section that it lies in, such as `.nv_fatbin`; `LOAD` where the file has no section headers.
    pub section: String,
    /// Where, in bytes from the beginning of the file.
    pub offset: u64,
    /// What does not hold.
    pub what: FatbinDamage,
}

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FatbinDamage {
    /// Something other than zeros stands where a region would begin.
    #[error("neither a region nor padding begins here")]
    Unknown,
    /// The region has a format that is not known; it was passed over.
    #[error("a region of version {version} with a header of {header} bytes, which is not known here")]
    RegionFormat {
        /// Its version; 1 is known.
        version: u16,
        /// The length of its header; 16 is known.
        header: u16,
    },
    /// The region ends beyond its section, as in a file that was cut short.
    #[error("a region of {size} bytes in a section that has {room} left")]
    RegionCut {
        /// Bytes of the region, less its header.
        size: u64,
        /// Bytes that the section has behind that header.
        room: u64,
    },
    /// The entry ends beyond its region.
    #[error("an entry that ends beyond its region")]
    EntryCut,
    /// The entry has a format that is not known; it was passed over.
    #[error("an entry of version {version:#x} with a header of {header} bytes, which is not known here")]
    EntryFormat {
        /// Its version; 0x101 is known.
        version: u16,
        /// The length of its header; it has at least 64 bytes.
        header: u32,
    },
    /// The entry is for an architecture that does not exist.
    #[error("an entry for architecture {number}, which does not exist")]
    EntryArch {
        /// The number that stands there, such as 86.
        number: u32,
    },
    /// The table of an entry that holds several does not hold together.
    #[error("a list of joined entries that is not whole")]
    JoinedEntries,
    /// The bundle's list of targets does not hold together, or its code lies beyond its section.
    #[error("a bundle that is not whole")]
    BundleCut,
    /// The bundle is compressed in a way that is not known.
    #[error("a compressed bundle of version {version} by method {method}, which is not known here")]
    BundleFormat {
        /// Its version; 1 to 3 are known.
        version: u16,
        /// How it is compressed; 0 is zlib, 1 is zstd.
        method: u16,
    },
    /// The beginning of a compressed bundle could not be unpacked.
    #[error("a compressed bundle that cannot be unpacked")]
    BundlePacked,
    /// A section lies outside the file.
    #[error("a section that ends beyond the file")]
    SectionCut,
    /// A section shares bytes with one that was read already; it was passed over.
    #[error("a section that lies within another")]
    SectionOverlap,
    /// More sections, or more compressed bundles, than any real file has; the rest was not read.
    #[error("more of these than any real file has; the rest was not read")]
    TooMany,
    /// More different architectures or combinations of them than any real file has; the rest was not read.
    #[error("more combinations of architectures than any real file has; the rest was not read")]
    TooVaried,
}
