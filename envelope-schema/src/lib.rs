//! What crosses a process or a machine in Torchlift: types only, no I/O.
//!
//! Owns the per-host envelope, its reader and canonical writer, its JSON Schemas, findings, exit codes and the names
//! of versions. Must not open a file, print, or read the environment.

mod digest;
pub mod envelope;
pub mod error;
pub mod exit_code;
pub mod finding;
pub mod libtorch;
mod limit;
pub mod read;
mod rule;
pub mod schema;
mod shape;
mod tree;
pub mod validity;
pub mod version;
pub mod write;

pub use envelope::{Artifact, Envelope, PerHostEnvelope};
pub use error::EnvelopeError;
pub use finding::{Finding, Place, Severity};
pub use libtorch::{Accelerator, LibraryFile, LibtorchRecord, VariantId};
