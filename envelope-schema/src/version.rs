//! The envelope's version and revision.

/// The version that this crate writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// The revision that this crate writes.
pub const REVISION: u32 = 0;
