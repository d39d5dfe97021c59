//! `doctor` as a person runs it: real tools and a stand-in libtorch, broken and hanging stand-ins where they must fail.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../launcher/tests/support/stand_in.rs"]
#[expect(dead_code, reason = "tests of another package use the rest")]
mod stand_in;

#[path = "../build/support.rs"]
#[expect(dead_code, reason = "the tests of builds use the rest")]
mod support;

mod built;
mod cluster;
mod documentation;
mod environment;
mod examination;
mod keys;
mod leftover;
mod project;
mod store;
mod tools;
