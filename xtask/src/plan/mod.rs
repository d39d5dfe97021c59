//! What would be built, for whom, and where it would go: a value, made before anything is done.
//!
//! Pure: from the cluster, the facts and the caller's environment to one cargo run per distinct key and one place per
//! host. `--dry-run`, the snapshot tests and [`crate::execute`] all work from it. Must not touch a file or a process.

mod accept;
mod build;
mod check;
mod container;
mod cpu;
mod fit;
mod key;
pub mod rustflags;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::num::NonZeroUsize;

use camino::Utf8PathBuf;
use torchlift_schema::{Accelerator, Artifact, Envelope, Finding, LibtorchRecord, PerHostEnvelope, VariantId};

pub use accept::accept;
pub use build::{Planned, plan};
pub use check::ACCEPTABLE;
pub use cpu::CpuCode;
pub use key::{BuildKey, Difference, KeyParts};

use crate::cargo::ConfigFacts;
use crate::cluster::{Cluster, Host, Job, Toolchain};
use crate::container::{BuildContainer, ContainerFacts};
use crate::facts::KnownHosts;
use crate::libtorch::Variant;
use crate::libtorch::auto::{Chosen, Machine, Refused};
use crate::toolchain::{Env, RustcFacts};
use crate::workspace::{Program, WorkspaceFacts};

/// Where binaries and envelopes are published, below the workspace.
pub const PUBLISHED: &str = "target/cluster";

/// Everything that a plan is made of.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The job to build.
    pub job: &'a Job,
    /// The chosen hosts, in file order.
    pub hosts: &'a [&'a Host],
    /// The workspace.
    pub workspace: &'a WorkspaceFacts,
    /// The rustc that cargo will call.
    pub rustc: &'a RustcFacts,
    /// What cargo's configuration files say.
    pub config: &'a ConfigFacts,
    /// The libtorch of each kind that has one and is used, by its index; a finding where there is none to be had.
    pub variants: &'a BTreeMap<usize, Result<Variant, Finding>>,
    /// Why the libtorch of a kind with `libtorch = "auto"` was chosen, by the kind's index.
    pub choices: &'a BTreeMap<usize, Chosen>,
    /// What the hosts have, by the index of their kind.
    pub machines: &'a BTreeMap<usize, Vec<Machine>>,
    /// What the code of a kind asks of a CPU, by the index of the kind; only where its flags say something.
    pub cpu_codes: &'a BTreeMap<usize, CpuCode>,
    /// The container of each kind that has one and is used, by its index; a finding where it cannot be used.
    pub containers: &'a BTreeMap<usize, Result<ContainerFacts, Finding>>,
    /// The tools for each target that is not simply this machine's.
    pub tools: &'a BTreeMap<String, TargetTools>,
    /// What is known of the cluster's hosts.
    pub known_hosts: &'a KnownHosts,
    /// Names of local hosts whose `path` is not the workspace.
    pub foreign_paths: &'a BTreeSet<String>,
    /// The environment without what the outer cargo put there.
    pub env: &'a Env,
    /// The torch version that the program's `torch-sys` pins, where that is known.
    pub torch_pin: Option<&'a str>,
    /// What the user types before a verb, for remedies.
    pub invocation: &'a str,
    /// The cargo to call.
    pub cargo: &'a OsString,
    /// The folder that gets a target folder per key, absolute.
    pub builds_dir: Utf8PathBuf,
    /// `--locked`.
    pub locked: bool,
    /// `--offline`.
    pub offline: bool,
    /// Whether kinds with equal keys share a build; not with `--no-share`.
    pub is_shared: bool,
    /// `--jobs`.
    pub jobs: Option<NonZeroUsize>,
}

/// The tools for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetTools {
    /// As given, and completed by what is there; none where nobody gave one and no linker was found.
    pub toolchain: Option<Toolchain>,
    /// What its own rustc says; none where it has none of its own, or that one says nothing.
    pub rustc: Option<RustcFacts>,
    /// Whether the target's standard library is there, where rustc says.
    pub has_std: Option<bool>,
    /// Whether the sysroot that is given is no folder.
    pub lacks_sysroot: bool,
}

impl Inputs<'_> {
    /// The toolchain of a target.
    fn toolchain(&self, target: &str) -> Option<&Toolchain> {
        self.tools.get(target)?.toolchain.as_ref()
    }
}

/// All builds and where their results go.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildPlan {
    /// The job's name.
    pub job: String,
    /// The workspace's root: cargo runs in it.
    pub workspace: Utf8PathBuf,
    /// The program.
    pub program: Program,
    /// Cargo profile.
    pub profile: String,
    /// One cargo run each, in the order of the first host that needs it.
    pub builds: Vec<Build>,
    /// The hosts in file order.
    pub hosts: Vec<HostBuild>,
    /// What `libtorch = "auto"` means, by the name of the kind, in file order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<KindChoice>,
}

/// The libtorch that was chosen for a kind.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KindChoice {
    /// The kind; empty for a file without kinds.
    pub kind: String,
    /// The variant's id, or its folder.
    pub variant: String,
    /// Why this one, as a fragment.
    pub reason: String,
    /// Those of the same version and CPU that do not fit, with what they lack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
}

/// One cargo run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Build {
    /// What names its target folder.
    pub key: BuildKey,
    /// Names of the kinds that share it, in file order; empty for a file without kinds.
    pub kinds: Vec<String>,
    /// Names of the hosts that share it, in file order.
    pub hosts: Vec<String>,
    /// Target triple.
    pub target: String,
    /// Cargo features asked for, sorted.
    pub features: Vec<String>,
    /// Whether default features are on.
    pub default_features: bool,
    /// The libtorch that it is built against.
    pub libtorch: Option<BuildLibtorch>,
    /// The target folder, absolute.
    pub dir: Utf8PathBuf,
    /// The container that cargo runs in; `cargo`, `args` and `env` are then for its inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<BuildContainer>,
    /// The cargo to call.
    #[serde(serialize_with = "lossy")]
    pub cargo: OsString,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set over the inherited environment.
    pub env: BTreeMap<String, String>,
    /// Variables taken out of it.
    pub env_unset: Vec<String>,
    /// The level that its code asks of a CPU, where flags choose one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_level: Option<String>,
    /// The glibc that its program may need at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// What its key is made of.
    #[serde(skip)]
    pub parts: KeyParts,
    /// The earlier build that it is the nearest to, and why it is none with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<Apart>,
}

/// Why two builds are not one.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Apart {
    /// The other build.
    pub from: BuildKey,
    /// In what their keys differ.
    pub by: Vec<Difference>,
}

/// The libtorch of a build.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildLibtorch {
    /// The stable link that cargo sees, below the target folder.
    pub link: Utf8PathBuf,
    /// The folder that it leads to.
    pub root: Utf8PathBuf,
    /// Torch version.
    pub version: String,
    /// What it computes on.
    pub accelerator: Accelerator,
}

/// What one host gets.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostBuild {
    /// Its name.
    pub name: String,
    /// Its kind; none in a file without kinds.
    pub kind: Option<String>,
    /// The key of its build.
    pub build: BuildKey,
    /// The binary's path below the host's path.
    pub bin: String,
    /// Value for `LD_LIBRARY_PATH`; empty sets nothing.
    pub ld_library_path: String,
    /// Working folder below the host's path.
    pub cwd_subpath: String,
    /// Its libtorch.
    pub libtorch: Option<HostLibtorch>,
    /// What is known of it; none where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<HostKnown>,
}

/// What the plan takes a host for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostKnown {
    /// Its chosen cards, their driver and its C library, for people.
    pub has: String,
    /// The file that says so; none for this machine, which was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Utf8PathBuf>,
    /// Whole days since it was read there; none where it was asked, and where the clocks do not agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_days: Option<u64>,
}

/// The libtorch of a host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostLibtorch {
    /// Its id; none for a tree outside the stores.
    pub variant: Option<VariantId>,
    /// Its folder on the host.
    pub root: Utf8PathBuf,
    /// Torch version.
    pub version: String,
    /// What it computes on.
    pub accelerator: Accelerator,
    /// GPU code that its kernels have, such as `sm_86`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<String>,
}

impl BuildPlan {
    /// The build of a host.
    pub fn build_of(&self, host: &HostBuild) -> Option<&Build> {
        self.builds.iter().find(|build| build.key == host.build)
    }
}

impl HostBuild {
    /// How it is run: the part of its envelope that is known before a build.
    pub fn per_host(&self) -> PerHostEnvelope {
        PerHostEnvelope {
            bin: self.bin.clone(),
            ld_library_path: self.ld_library_path.clone(),
            cwd_subpath: self.cwd_subpath.clone(),
        }
    }

    /// Its envelope with this artifact, not sealed; libraries and findings are the caller's to add.
    pub fn envelope(&self, artifact: Artifact) -> Envelope {
        let mut envelope = Envelope::new(&self.name, self.per_host(), artifact);
        envelope.kind = self.kind.clone();
        envelope.libtorch = self.libtorch.as_ref().map(|libtorch| {
            let mut record =
                LibtorchRecord::new(libtorch.variant.clone(), &libtorch.version, libtorch.accelerator.clone());
            record.archs = libtorch.archs.clone();
            record
        });
        envelope
    }
}

impl Build {
    /// Whether Zig links it.
    pub fn is_zig(&self) -> bool {
        std::path::Path::new(&self.cargo).file_name().is_some_and(|name| name == "cargo-zigbuild")
    }

    /// Which kind it concerns, in words: `kind `a``, `kinds `a`, `b`` or `all hosts`.
    pub fn concerns(&self) -> String {
        let list = self.kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
        match self.kinds.len() {
            0 => "every host".to_owned(),
            1 => format!("kind {list}"),
            _ => format!("kinds {list}"),
        }
    }
}

fn lossy<S: serde::Serializer>(text: &OsString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text.to_string_lossy())
}
