//! From facts to findings: is this binary right for its variant, and would it start here and now?
//!
//! Purpose: [`artifact::inspect`] serves a build (what the envelope says of the binary and its libraries),
//! [`start::check`] serves every start (is all of it still so), [`floor`] holds what is needed against what a host offers by
//! its facts. All give all findings at once.
//! Owns the words of the findings. Must not start, print or mend anything.

mod abi;
mod artifact;
pub mod floor;
mod library;
mod start;

pub use artifact::{ArtifactQuestion, InspectError, Inspection, VariantFolder, inspect as inspect_artifact};
pub use start::{StartQuestion, changed, check as check_before_start, not_startable};
