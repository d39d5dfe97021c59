//! `torchlift run` as a person runs it: the built binary, real processes, real files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod arguments;
mod documentation;
mod dry_run;
mod envelope;
mod exit_code;
mod output;
mod preflight;
mod stage;
