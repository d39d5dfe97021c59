//! `build` and `launch` as a person runs them: real cargo, a real linker, a stand-in libtorch.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../launcher/tests/support/stand_in.rs"]
#[expect(dead_code, reason = "tests of another package use the rest")]
mod stand_in;

mod cargo;
mod launch;
mod plan;
mod publish;
mod support;
