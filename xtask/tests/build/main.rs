//! `build` and `launch` as a person runs them: real cargo, a real linker, a stand-in libtorch.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../launcher/tests/support/stand_in.rs"]
#[expect(dead_code, reason = "tests of another package use the rest")]
mod stand_in;

#[path = "../../../launcher/tests/support/full_pipe.rs"]
mod full_pipe;

#[path = "../../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, unreachable_pub, reason = "the file is shared by tests of several packages")]
mod skip;

#[path = "../../../launcher/tests/support/fatbin.rs"]
#[expect(dead_code, reason = "tests of another package use the rest")]
mod made;

#[path = "../../../fixtures/support/cross.rs"]
#[expect(unreachable_pub, reason = "the file is shared by tests of several packages")]
mod machine;

mod beside;
mod cargo;
mod clean;
mod cross;
mod disk;
mod events;
mod facts;
mod gpu;
mod interrupt;
mod launch;
mod places;
mod plan;
mod publish;
mod sccache;
mod share;
mod support;
mod terminal;
mod verify;
