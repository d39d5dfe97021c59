//! The only room that prints.
//!
//! Everything of ours for people goes to stderr; stdout has data that was asked for, and ranks' own stdout.
//! Must not decide anything: it tells what happened.

pub(crate) mod console;
pub(crate) mod dry_run;
pub mod failure;
pub mod host;
pub(crate) mod json;
#[cfg(feature = "net")]
pub(crate) mod keys;
pub(crate) mod record;
pub(crate) mod shown;
pub mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;
pub(crate) mod words;

pub use crate::output::terminal::visible;
