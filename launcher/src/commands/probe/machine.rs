//! Asks this machine what it is, in a given environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift_schema::HostFacts;
use torchlift_schema::host::DiskPurpose;

use crate::clock;
use crate::commands::lookup;
use crate::env_vars;
use crate::preflight::gpu::{self, CardUser, Nvml, Sources};
use crate::preflight::host::{self, Question, Roots};
use crate::preflight::loader::{HostLibraries, LibraryPath};

/// How long NVIDIA's library, and its command, may take: with many cards and no persistence daemon some seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where only who uses the cards is asked, before a start that does not depend on it.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// This program, which asks NVIDIA's library in a process of its own; a name that holds when the file has been replaced.
const MYSELF: &str = "/proc/self/exe";
/// Where processes share memory.
const SHARED: &str = "/dev/shm";

/// Reads this machine: for a process with this environment in `cwd`, with the room in the folder of the `project`.
pub fn of_this_machine(env: &BTreeMap<OsString, OsString>, cwd: &Path, project: &Path) -> HostFacts {
    let variable = |name: &str| env.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty());
    let nvidia_smi = lookup::find(OsStr::new("nvidia-smi"), variable(env_vars::PATH), cwd);
    let temporary = variable(env_vars::TMPDIR).map_or_else(|| PathBuf::from("/tmp"), |folder| cwd.join(folder));
    host::read(&Question {
        roots: &Roots::default(),
        arch: std::env::consts::ARCH,
        libraries: &HostLibraries::of_this_host(),
        library_path: &variable(env_vars::LD_LIBRARY_PATH).map(LibraryPath::parse).unwrap_or_default(),
        cwd,
        folders: &[
            (project.to_owned(), DiskPurpose::Project),
            (temporary, DiskPurpose::Temporary),
            (PathBuf::from(SHARED), DiskPurpose::Shared),
        ],
        cards: &Sources { nvml: Nvml::Search, asker: Path::new(MYSELF), nvidia_smi, patience: PATIENCE },
        now: clock::wall(),
    })
}

/// Who uses this machine's cards, as a process with this environment in `cwd` would be told.
pub(crate) fn card_users(env: &BTreeMap<OsString, OsString>, cwd: &Path) -> Vec<CardUser> {
    let library_path = env.get(OsStr::new(env_vars::LD_LIBRARY_PATH)).filter(|value| !value.is_empty());
    gpu::users(&gpu::Question {
        roots: &Roots::default(),
        arch: std::env::consts::ARCH,
        libraries: &HostLibraries::of_this_host(),
        library_path: &library_path.map(|path| LibraryPath::parse(path)).unwrap_or_default(),
        cwd,
        sources: &Sources { nvml: Nvml::Search, asker: Path::new(MYSELF), nvidia_smi: None, patience: SHORT_PATIENCE },
        memory: None,
    })
}
