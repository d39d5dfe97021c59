//! From facts to findings: is this binary right for its variant, and would it start here and now?
//!
//! Purpose: [`artifact::inspect`] serves a build (what the envelope says of the binary and its libraries),
//! [`start::check`] serves every start (is all of it still so). Both give all findings at once.
//! Owns the words of the findings. Must not start, print or mend anything.

mod artifact;
mod library;
mod start;

pub use artifact::{ArtifactQuestion, InspectError, Inspection, VariantFolder, inspect as inspect_artifact};
pub use start::{StartQuestion, check as check_before_start};
