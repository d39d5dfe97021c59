//! What ranks write: to files byte for byte, to the console line by line.
//!
//! Owns the bytes of ranks and their labels. Must not decide anything about a run: a full disk or a closed pipe
//! ends no rank.

pub mod console;
pub mod files;
pub mod framing;
pub mod terminal;
#[cfg(test)]
mod tests;

pub use console::{Console, Label};
pub use files::LogFiles;
pub use terminal::Terminal;
