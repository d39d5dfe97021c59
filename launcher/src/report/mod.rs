//! The only room that prints.
//!
//! Everything of ours for people goes to stderr; stdout has data that was asked for, and ranks' own stdout.
//! Must not decide anything: it tells what happened.

pub mod console;
pub mod dry_run;
pub mod failure;
pub mod json;
pub mod record;
pub mod shown;
#[cfg(test)]
mod tests;
pub mod verdict;
pub mod words;
