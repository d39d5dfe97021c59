//! The main job on a real libtorch.

#[path = "real/fetch.rs"]
mod fetch;
