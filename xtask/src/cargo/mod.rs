//! Cargo: its configuration files, one run of it, and what it says while it runs.
//!
//! [`run`] calls cargo for one build and turns its messages into [`CargoEvent`]s. Must not print, and must not decide
//! what is built.

mod config;
mod locks;
mod message;
mod run;
mod signals;

pub use config::ConfigFacts;
pub(crate) use config::{cargo_home, config_files};
pub(crate) use locks::describe as describe_process;
pub use message::{CargoEvent, CrateTime, Watcher};
pub use run::{CargoError, CargoRun, Jobs, run};
pub use signals::Signals;
