//! Real processes: what `torchlift run` starts, how it ends, and that nothing of it is left.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod ends;
mod family;
mod orphans;
mod output;
#[path = "../support/patience.rs"]
mod patience;
mod run;
mod signals;
