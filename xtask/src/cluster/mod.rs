//! The cluster file: what people write, checked whole before anything is done.
//!
//! [`load`] gives a [`Cluster`] whose values are resolved: overlay applied, ranges expanded into hosts, defaults
//! filled in, `~`, `${VAR}` and `{name}` expanded. What is wrong comes out as findings, all of them in one run, each
//! with its file, line, column and key. Owns no decision about builds or ranks; `docs/cluster-file.md` is its reference.
//!
//! From text to values: `syntax` (TOML, with recovery) → `node` (a tree with places) →
//! `overlay` → one module for each table (`job`, `kind`, `host`, `toolchain`, `accept`) → [`model`].
//!
//! When you change the format: the key goes into `keys` and `docs/cluster-file.md` (a test compares them), its check
//! into the table's module, and a fixture of each outcome into `fixtures/clusters`.

mod accept;
pub mod code;
mod expand;
mod fields;
mod findings;
mod gpu;
mod host;
mod host_path;
mod job;
pub mod keys;
mod kind;
mod load;
pub mod model;
mod name;
mod node;
mod overlay;
mod position;
pub mod range;
mod reach;
mod select;
mod syntax;
mod toolchain;
mod variables;

pub use accept::fault as accept_fault;
pub use host_path::HostPath;
pub use load::{FILE_NAME, Loaded, Lookup, Reading, SCHEMA, Source, load, lookup, overlay_path, parse, read};
pub use model::{
    Accept, ArtifactName, Cluster, Container, Device, Files, Host, Job, Kind, LibtorchChoice, Places, Reach, Slots,
    Slurm, Toolchain,
};
