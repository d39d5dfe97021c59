//! The envelope's version and revision.
//!
//! `version` refuses: a reader takes no envelope of a newer one, and says what to install. `revision` informs: a reader takes
//! any, and passes over the keys that it does not know.
//!
//! When you change this, or a type that is in an envelope:
//!
//! 1. A new field has a default and is left out when empty. It raises [`REVISION`], not [`VERSION`].
//! 2. A field that a launcher must not pass over (another meaning, a field taken away, a new variant of an enum) raises
//!    [`VERSION`]; [`REVISION`] then begins at 0 again.
//! 3. The reader is released before the writer: an envelope travels to hosts that have yesterday's `torchlift`.
//! 4. Add fixtures of the new revision below `fixtures/envelopes/valid`. The old ones stay for ever, as they are.
//! 5. `cargo xtask schema` writes the schemas anew; look at the difference.
//! 6. Bring `envelope-schema/README.md` and the changelog below up to date, and say it in `CHANGELOG.md` for users.
//! 7. [`crate::PerHostEnvelope`] is published by another project and does not change.
//! 8. Whole numbers only, in every revision: the canonical text has no other.
//!
//! # Changelog
//!
//! - 1.0: the published three fields (`bin`, `ld_library_path`, `cwd_subpath`) with `version`, `revision`, `host`, `kind`,
//!   `artifact`, `libtorch`, `findings` and `self_sha256`.

/// The version that this crate writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// The revision that this crate writes.
pub const REVISION: u32 = 0;
