//! What ranks write: to files byte for byte, to the console line by line.
//!
//! Owns the bytes of ranks and their labels. Must not decide anything about a run: a full disk or a closed pipe
//! ends no rank.

pub(crate) mod console;
pub(crate) mod files;
pub(crate) mod follow;
pub(crate) mod framing;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use console::Console;
pub(crate) use files::LogFiles;
pub(crate) use follow::Follow;
pub(crate) use terminal::Terminal;
