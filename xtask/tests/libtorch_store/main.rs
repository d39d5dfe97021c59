//! The store of variants: what goes in, what comes out, and that nothing is ever half there.
//!
//! On small libraries that a compiler makes; the same on the real wheels is in `real/store.rs`.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may fail it")]

mod add;
mod disk;
mod fetch;
mod hostile;
mod point;
mod remove;
mod source;
mod tree;
mod verify;

#[path = "../../../launcher/tests/support/fatbin.rs"]
#[expect(dead_code, reason = "tests of another package use the rest")]
mod made;
#[path = "../../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, unreachable_pub, reason = "it is for tests, which it cannot know")]
mod skip;
#[path = "../libtorch_fetch/wheel.rs"]
mod wheel;
#[path = "../libtorch_fetch/world.rs"]
#[expect(dead_code, reason = "the tests of fetching use the rest")]
mod world;
