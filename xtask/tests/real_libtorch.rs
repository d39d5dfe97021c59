//! The main job on a real libtorch. `cargo xtask test` runs this last: the first run may fetch up to 1 GB into the
//! user's store and compile tch; later runs find both.

#[path = "real/demo.rs"]
mod demo;
#[path = "real/fetch.rs"]
mod fetch;
#[path = "real/inspect.rs"]
mod inspect;
#[path = "../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, clippy::unwrap_used, unreachable_pub, reason = "it is for tests, which it cannot know")]
mod skip;
#[path = "real/sources.rs"]
mod sources;
#[path = "real/store.rs"]
mod store;
