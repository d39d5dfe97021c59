//! Building in a container: the engine, what its image has, what of this machine is seen inside, and how cargo is run there.
//!
//! Every folder is mounted at the path that it has here, so that cargo's messages, dep-info files and links hold on both
//! sides. Owns what reaches the inside: folders, variables, the user. Never pulls an image, and decides nothing about a build:
//! [`crate::plan`] does, from [`ContainerFacts`].

mod call;
mod engine;
mod image;
mod mounts;
mod variables;

use camino::Utf8PathBuf;

pub use call::{Ending, call};
pub use engine::Engine;
pub use image::Question;
pub use mounts::{Mount, Sources};
pub use variables::{passed, search_path};

use crate::toolchain::RustcFacts;

/// What is known of the container of a kind: read inside of it, and never taken from this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// The engine.
    pub engine: Engine,
    /// The image as the cluster file names it.
    pub image: String,
    /// The image's id, which changes with its content; without an algorithm in front.
    pub id: String,
    /// Options of `run`: those for the user, then those of the cluster file.
    pub options: Vec<String>,
    /// The `PATH` inside, a mounted toolchain in front.
    pub search_path: String,
    /// `CARGO_HOME`, here and inside.
    pub cargo_home: Utf8PathBuf,
    /// The cargo inside.
    pub cargo: String,
    /// What the rustc inside says.
    pub rustc: RustcFacts,
    /// Whether that rustc has the standard library of the kind's target.
    pub has_std: bool,
    /// This machine's toolchain, where the image has none of its own.
    pub toolchain: Option<Utf8PathBuf>,
    /// The version of the C library inside, such as `2.31`; none where nothing says.
    pub glibc: Option<String>,
    /// The compilers that were not found inside, by the names that were looked for.
    pub missing: Vec<String>,
    /// What of this machine is seen inside, but for the build's own folder.
    pub mounts: Vec<Mount>,
    /// Whether every source that the lock file names is on this machine, so that cargo needs no network.
    pub has_sources: bool,
}

/// Where one build runs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildContainer {
    /// The engine.
    pub engine: Engine,
    /// The image as the cluster file names it.
    pub image: String,
    /// The image's id.
    pub id: String,
    /// Options of `run`.
    pub options: Vec<String>,
    /// This machine's toolchain, where the image has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<Utf8PathBuf>,
    /// The version of the C library inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// What of this machine is seen inside, at the same paths.
    pub mounts: Vec<Mount>,
    /// Whether this machine's cargo has to get the sources first.
    #[serde(skip)]
    pub needs_sources: bool,
}

impl ContainerFacts {
    /// The place of a build whose folder is `dir`.
    pub fn place(&self, dir: &camino::Utf8Path) -> BuildContainer {
        let mut mounts = self.mounts.clone();
        mounts::add(&mut mounts, Mount::writable(dir));
        BuildContainer {
            engine: self.engine.clone(),
            image: self.image.clone(),
            id: self.id.clone(),
            options: self.options.clone(),
            toolchain: self.toolchain.clone(),
            glibc: self.glibc.clone(),
            mounts,
            needs_sources: !self.has_sources,
        }
    }
}
