//! What ends a command; the launcher's own type, so that both tools fail alike.

pub use torchlift::error::{Cause, CommandError};
