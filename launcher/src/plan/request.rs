//! What a run is asked to be: the one value that `torchlift run` and `cargo xtask launch` both make.
//!
//! Everything of the caller's process that counts (its environment, its folder) is in it, so that a plan made of it
//! is the same wherever it is made. Must not read any of it for itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use torchlift_schema::{Accelerator, Envelope, PerHostEnvelope};

/// A run as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The run's id, a folder name; see [`crate::plan::run_id()`].
    pub run_id: String,
    /// The folder that gets the run's folder, absolute.
    pub runs_dir: PathBuf,
    /// The hosts in rank order.
    pub hosts: Vec<HostRequest>,
    /// Arguments for every rank, to the byte.
    pub args: Vec<OsString>,
    /// Variables for every rank.
    pub job_env: BTreeMap<String, String>,
    /// Names to pass on from [`Self::base_env`]; their values are masked wherever shown.
    pub env_pass: Vec<String>,
    /// The caller's environment. Under cargo it is already without what cargo put in.
    pub base_env: BTreeMap<OsString, OsString>,
    /// Paths that must be there before the start; relative ones are below each host's path.
    pub require: Vec<String>,
    /// Time between the first signal and SIGKILL.
    pub grace: Duration,
    /// The port for rank 0; none means that its host picks one.
    pub master_port: Option<u16>,
    /// Whether each rank sees one card only, and itself as local rank 0.
    pub one_gpu_per_rank: bool,
    /// How often the whole run may start again after a failure.
    pub max_restarts: u32,
}

/// One host of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRequest {
    /// Its name in the cluster file.
    pub name: String,
    /// Its view of the project, absolute.
    pub path: PathBuf,
    /// What it runs.
    pub program: Program,
    /// How many ranks, at least 1.
    pub slots: u32,
    /// Variables for its ranks, over the job's.
    pub env: BTreeMap<String, String>,
    /// Words put before the program. A first word without `/` is looked up in `PATH`, a relative one lies below the path.
    pub runner: Vec<String>,
    /// The cards that its ranks may use; empty is all.
    pub devices: Vec<Device>,
}

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A sealed envelope: sizes and digests are checked before the start.
    Envelope(Box<Envelope>),
    /// The published three fields: there is nothing to check digests against.
    PerHost(PerHostEnvelope),
    /// A program without an envelope.
    Plain {
        /// The program, absolute.
        program: PathBuf,
        /// The folder to run in, absolute.
        cwd: PathBuf,
    },
}

impl Program {
    /// The published three fields, where there are any.
    pub fn per_host(&self) -> Option<PerHostEnvelope> {
        match self {
            Self::Envelope(envelope) => Some(envelope.per_host()),
            Self::PerHost(envelope) => Some(envelope.clone()),
            Self::Plain { .. } => None,
        }
    }

    /// What it computes on, where that is known.
    pub fn accelerator(&self) -> Option<&Accelerator> {
        match self {
            Self::Envelope(envelope) => envelope.libtorch.as_ref().map(|libtorch| &libtorch.accelerator),
            Self::PerHost(_) | Self::Plain { .. } => None,
        }
    }
}

/// One card.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// By index in PCI order.
    Index(u32),
    /// By UUID, such as `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`; CUDA takes a unique beginning of it too.
    Uuid(String),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}
