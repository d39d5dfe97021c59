//! The guard: the small process that is the parent of the ranks.

/// Becomes a guard when this process was started as one, and then never returns; else returns at once.
///
/// Both binaries call it first in `main`, before any thread or allocation of note.
pub fn enter() {}
