//! The main job on a real libtorch, and what is read from it with the vendors' tools as the judge; builds in containers of a
//! real engine.
//!
//! `cargo xtask test` runs this last: the first run may fetch up to 1 GB into the user's store and compile tch; later runs
//! find both.

#[path = "real/container.rs"]
mod container;
#[path = "real/demo.rs"]
mod demo;
#[path = "real/fatbin.rs"]
mod fatbin;
#[path = "real/fetch.rs"]
mod fetch;
#[path = "real/inspect.rs"]
mod inspect;
#[path = "../../fixtures/support/cross.rs"]
#[expect(unreachable_pub, reason = "the file is shared by tests of several packages")]
mod machine;
#[path = "../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, clippy::unwrap_used, unreachable_pub, reason = "it is for tests, which it cannot know")]
mod skip;
#[path = "real/sources.rs"]
mod sources;
#[path = "../../launcher/tests/support/stand_in.rs"]
mod stand_in;
#[path = "real/store.rs"]
mod store;
#[path = "build/support.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests of builds use the rest, and what surrounds a test may fail as the test itself may"
)]
mod support;
#[path = "real/trainer.rs"]
mod trainer;
#[path = "real/two_cpus.rs"]
mod two_cpus;
#[path = "real/vendor.rs"]
#[expect(clippy::unwrap_used, reason = "what surrounds a test may fail as the test itself may")]
mod vendor;
