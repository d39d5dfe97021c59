//! `torchlift run` as a person runs it: the built binary, real processes, real files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../support/full_pipe.rs"]
mod full_pipe;

#[path = "../../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, unreachable_pub, reason = "the file is shared by tests of several packages")]
mod skip;

mod arguments;
mod documentation;
mod dry_run;
mod elsewhere;
mod envelope;
mod exit_code;
mod hostile;
mod live;
mod network;
mod output;
#[path = "../support/patience.rs"]
mod patience;
mod preflight;
mod refused;
mod stage;
