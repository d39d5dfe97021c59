//! Torchlift's own checkout: where its fixtures and schemas lie.
//!
//! Only the verbs that serve Torchlift itself (`demo`, `test`, `bench`, `schema`) ask for it.

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;

use crate::error::CommandError;

/// The root of the checkout that this program was built from.
///
/// An installed `cargo torchlift` may have outlived it; then the error says that `verb` belongs to a checkout.
pub fn root(invocation: &str, verb: &str) -> Result<Utf8PathBuf, CommandError> {
    let package = Utf8Path::new(env!("CARGO_MANIFEST_DIR"));
    match package.parent() {
        Some(root) if root.join("fixtures").is_dir() && root.join("envelope-schema").is_dir() => Ok(root.to_owned()),
        _ => Err(CommandError::new(
            exit_code::USAGE,
            format!("`{invocation} {verb}` works in Torchlift's own checkout, and that is gone from `{package}`"),
        )
        .hint("clone Torchlift and run `cargo xtask` there")),
    }
}
