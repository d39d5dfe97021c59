//! The resolved cluster: the values that the rest of the program works from.
//!
//! Types only; what makes them is in the sibling modules. Every job, kind and host carries the [`Places`] of its keys,
//! so that a later step (a variant that is not there, a libtorch for another CPU) can name the line as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Place, VariantId};

use super::HostPath;

/// The parsed and checked cluster.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Cluster {
    /// The file it came from, absolute.
    pub file: Utf8PathBuf,
    /// The jobs in file order; the first is the default.
    pub jobs: Vec<Job>,
    /// The kinds in file order; one unnamed kind of defaults when the file has none.
    pub kinds: Vec<Kind>,
    /// The hosts in file order, ranges expanded.
    pub hosts: Vec<Host>,
    /// `[toolchain."triple"]` by triple.
    pub toolchains: BTreeMap<String, Toolchain>,
    /// `[slurm]`.
    pub slurm: Slurm,
    /// `[[accept]]`: findings taken as warnings, each with its reason.
    pub accept: Vec<Accept>,
}

/// `[job.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Cargo package; none means the workspace's only one that has the bin or example.
    pub package: Option<String>,
    /// What of it to build.
    pub artifact: ArtifactName,
    /// Cargo profile.
    pub profile: String,
    /// Working folder below each host's path; empty is the path itself.
    pub cwd: String,
    /// Variables for every rank.
    pub env: BTreeMap<String, String>,
    /// Names passed on from the launcher's environment; masked wherever shown.
    pub env_pass: Vec<String>,
    /// Glob patterns that travel with `files = "push"`.
    pub push: Vec<String>,
    /// Paths that must be there before the start; [`HostPath::on`] gives each as a host sees it.
    pub require: Vec<HostPath>,
    /// Where its keys stand.
    #[serde(skip)]
    pub places: Places,
}

/// The cargo target of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactName {
    /// `bin = "NAME"`; none means the package's only bin.
    Bin(Option<String>),
    /// `example = "NAME"`.
    Example(String),
}

/// `[kind.NAME]`: what hosts have in common for a build.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Kind {
    /// Its name; empty for the unnamed kind of a file without kinds.
    pub name: String,
    /// Target triple; none is this machine's.
    pub target: Option<String>,
    /// Which libtorch.
    pub libtorch: LibtorchChoice,
    /// Cargo features.
    pub features: Vec<String>,
    /// Whether default features are on.
    pub default_features: bool,
    /// Further rustflags.
    pub rustflags: Vec<String>,
    /// Variables for the build.
    pub build_env: BTreeMap<String, String>,
    /// GPU capabilities such as `6.1`; empty: from the hosts' facts.
    pub gpus: Vec<String>,
    /// Build in a container.
    pub container: Option<Container>,
    /// Build on this host of the cluster.
    pub build_on: Option<String>,
    /// Where its keys stand.
    #[serde(skip)]
    pub places: Places,
}

/// `libtorch = …` of a kind.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LibtorchChoice {
    /// Not given: the program is built without one.
    None,
    /// `"auto"`.
    Auto,
    /// `"<family>/<name>"`.
    Variant(VariantId),
    /// An absolute path.
    Path(Utf8PathBuf),
}

/// `container = { … }`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Container {
    /// `podman` or `docker`, or a path to one of them.
    pub engine: String,
    /// The engine's own options, before its `run`: `--runtime=runc`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engine_args: Vec<String>,
    /// The image.
    pub image: String,
    /// Further arguments of `run`.
    pub args: Vec<String>,
}

/// One `[[host]]` after expansion.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Host {
    /// Its name: a DNS label (or `*` for Slurm).
    pub name: String,
    /// Index into [`Cluster::kinds`].
    pub kind: usize,
    /// Its view of the project: absolute, or for the host to expand when it begins with `~` (never with reach `local`).
    pub path: Utf8PathBuf,
    /// How it is reached.
    pub reach: Reach,
    /// How files get there.
    pub files: Files,
    /// How many ranks.
    pub slots: Slots,
    /// Which cards, by index or UUID; empty is all.
    pub devices: Vec<Device>,
    /// Variables for its ranks, over the job's.
    pub env: BTreeMap<String, String>,
    /// Words put before the program.
    pub runner: Vec<String>,
    /// Folders before the libtorch in its library path: its kind's, absolute.
    pub library_path_before: Vec<String>,
    /// Folders after it.
    pub library_path_after: Vec<String>,
    /// Line of its `[[host]]` in the cluster file, from 1.
    pub line: u32,
    /// Where its keys stand; hosts of one range share them.
    #[serde(skip)]
    pub places: Places,
}

/// `reach = …`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// This machine.
    Local,
    /// `{ ssh = "user@host" }`.
    Ssh(String),
    /// `{ agent = "tls:host:port" }`.
    Agent(String),
    /// `"slurm"`.
    Slurm,
}

/// `files = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// The host sees the same tree.
    Shared,
    /// Sent by content.
    Push,
}

/// `slots = …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Slots {
    /// Not given: its GPUs, else 1.
    Default,
    /// `"gpus"`: one a chosen card.
    Gpus,
    /// A number, at least 1.
    Count(u32),
}

/// One of `devices`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// By index in PCI order.
    Index(u32),
    /// By UUID.
    Uuid(String),
}

/// `[toolchain."triple"]`: everything optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Toolchain {
    /// The cargo to run.
    pub cargo: Option<String>,
    /// The rustc it uses.
    pub rustc: Option<String>,
    /// The linker.
    pub linker: Option<String>,
    /// The C compiler.
    pub cc: Option<String>,
    /// The C++ compiler.
    pub cxx: Option<String>,
    /// The archiver.
    pub ar: Option<String>,
    /// The folder with the system that it builds for, absolute.
    pub sysroot: Option<String>,
    /// The glibc that programs may need at most.
    pub glibc: Option<String>,
    /// Words put before a program of this target to run it here.
    pub runner: Vec<String>,
}

impl Toolchain {
    /// Whether its cargo is cargo-zigbuild, which links with Zig.
    pub fn is_zig(&self) -> bool {
        self.cargo.as_ref().is_some_and(|cargo| cargo.rsplit('/').next() == Some("cargo-zigbuild"))
    }
}

/// `[slurm]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Slurm {
    /// Further arguments of `sbatch`.
    pub sbatch: Vec<String>,
    /// Further arguments of `srun`.
    pub srun: Vec<String>,
}

/// `[[accept]]`: a finding that is taken as a warning.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Accept {
    /// The finding's code.
    pub code: String,
    /// Only on this host.
    pub host: Option<String>,
    /// Why: required.
    pub reason: String,
}

/// Where the keys of one table stand in the cluster file or its overlay.
///
/// Keys are relative to the table: `libtorch`, `library_path.before[0]`; the empty key is the table itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(pub(super) Arc<BTreeMap<String, Place>>);

impl Places {
    /// The place of a key; of the nearest table around it when the file does not have the key.
    pub fn at(&self, key: &str) -> Place {
        let mut part = key;
        loop {
            if let Some(place) = self.0.get(part) {
                return place.clone();
            }
            match part.rfind(['.', '[']) {
                Some(end) => part = &part[..end],
                None if part.is_empty() => return Place::default(),
                None => part = "",
            }
        }
    }
}

impl Cluster {
    /// The folder of the cluster file: what relative paths of local hosts start from.
    pub fn folder(&self) -> &Utf8Path {
        self.file.parent().unwrap_or_else(|| Utf8Path::new("/"))
    }

    /// A place in the cluster file; of a key that the file does not have, the file itself.
    pub fn or_file(&self, place: Place) -> Place {
        if place.file.is_some() { place } else { Place::file(self.file.as_str()) }
    }

    /// The kind of a host.
    pub fn kind_of(&self, host: &Host) -> &Kind {
        &self.kinds[host.kind]
    }

    /// The toolchain that is given for the target of a host's kind.
    pub fn toolchain_of(&self, host: &Host) -> Option<&Toolchain> {
        self.toolchains.get(self.kinds.get(host.kind)?.target.as_ref()?)
    }

    /// Words before the program: the host's own, else those of the toolchain, where this machine runs what was built for
    /// another.
    pub fn runner_of<'a>(&'a self, host: &'a Host) -> &'a [String] {
        match self.toolchain_of(host).filter(|_| host.reach == Reach::Local) {
            Some(toolchain) if host.runner.is_empty() => &toolchain.runner,
            _ => &host.runner,
        }
    }
}
