//! Facts of a host: what was read on it, never guessed, each section with where it was read.
//!
//! Owns the types that `torchlift probe` writes and every check of fit reads; [`crate::facts`] is the file around them.
//! What could not be read is left out, and why is in [`HostFacts::problems`]: a missing fact is never a zero.
//! Has nothing that names a person or a machine for ever (no machine id, no serial number, no address), since the file is
//! checked in. Must not read anything itself.

mod card;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::rule;

pub use card::{AmdDriver, CudaCompat, Gpu, Mig, MigDevice, NvidiaDriver, Vendor};

/// The most bytes that a fact can hold: 2^53 - 1, the last number that every JSON reader holds exactly.
pub const MOST_BYTES: u64 = rule::MAX_SIZE;

/// Everything that was read on one host, at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HostFacts {
    /// When: UTC, such as `2026-11-30T14:23:05Z`. Holds for all of it.
    #[schemars(regex(pattern = rule::STAMP))]
    pub read_at: String,
    /// The version of the `torchlift` that read it.
    #[schemars(regex(pattern = rule::TEXT))]
    pub torchlift: String,
    /// Its name and its operating system.
    pub system: SystemFacts,
    /// What its CPU can do.
    pub cpu: CpuFacts,
    /// How many CPUs a process of this user gets.
    pub cores: CoreFacts,
    /// How much memory a process of this user gets.
    pub memory: MemoryFacts,
    /// Its C library; none where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libc: Option<LibcFacts>,
    /// The system's own libraries with the symbol versions that they offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<SystemLibrary>,
    /// Where its loader searches.
    pub loader: LoaderFacts,
    /// Room on its disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskFacts>,
    /// Limits of a process of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitFacts>,
    /// The NVIDIA driver; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvidia: Option<NvidiaDriver>,
    /// The AMD driver; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amd: Option<AmdDriver>,
    /// Its cards: NVIDIA's in PCI order, then AMD's in the driver's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    /// What is broken, and what could not be read and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Finding>,
}

impl HostFacts {
    /// Facts with what every host has; the rest is `None` and empty.
    pub fn new(
        read_at: impl Into<String>,
        torchlift: impl Into<String>,
        system: SystemFacts,
        cpu: CpuFacts,
        cores: CoreFacts,
    ) -> Self {
        Self {
            read_at: read_at.into(),
            torchlift: torchlift.into(),
            system,
            cpu,
            cores,
            memory: MemoryFacts::default(),
            libc: None,
            libraries: Vec::new(),
            loader: LoaderFacts::default(),
            disks: Vec::new(),
            limits: None,
            nvidia: None,
            amd: None,
            gpus: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// The library that the loader takes for this name, such as `libstdc++.so.6`.
    pub fn library(&self, name: &str) -> Option<&SystemLibrary> {
        self.libraries.iter().find(|library| library.name == name)
    }

    /// The cards of one vendor, in the order of their indices.
    pub fn cards(&self, vendor: Vendor) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(move |gpu| gpu.vendor == vendor)
    }
}

/// Name and operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SystemFacts {
    /// What the machine calls itself; the cluster file may call it otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub hostname: Option<String>,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub kernel: Option<String>,
    /// The distribution as it calls itself, such as `Debian GNU/Linux 12 (bookworm)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub distribution: Option<String>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

/// What a CPU can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CpuFacts {
    /// Architecture as in a target triple: `x86_64`, `aarch64`.
    #[schemars(regex(pattern = rule::TEXT))]
    pub arch: String,
    /// The highest level that it has whole: `x86-64-v1` to `-v4`, `armv8-a`, `armv8.2-a` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::CPU_LEVEL))]
    pub level: Option<String>,
    /// What it can do beyond the base of its architecture, by the kernel's names, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub features: Vec<String>,
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub model: Option<String>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

impl CpuFacts {
    /// A CPU of this architecture of which nothing else is known.
    pub fn new(arch: impl Into<String>) -> Self {
        Self { arch: arch.into(), ..Self::default() }
    }
}

/// How many CPUs there are, and how many a process gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CoreFacts {
    /// CPUs that the kernel has online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u32::MAX))]
    pub online: Option<u32>,
    /// Those that the process that read this may run on: its affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u32::MAX))]
    pub usable: Option<u32>,
    /// The lowest quota of its cgroups, in thousandths of a CPU; none where there is no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub quota_thousandths: Option<u64>,
    /// NUMA nodes, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaNode>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

impl CoreFacts {
    /// Whole CPUs that a process gets: its affinity, within its quota, which is rounded up; none when neither is known.
    pub fn effective(&self) -> Option<u32> {
        let quota = self.quota_thousandths.map(|quota| u32::try_from(quota.div_ceil(1000)).unwrap_or(u32::MAX).max(1));
        let there = self.usable.or(self.online);
        match (there, quota) {
            (Some(there), Some(quota)) => Some(there.min(quota)),
            (there, quota) => there.or(quota),
        }
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct NumaNode {
    /// Its number.
    #[schemars(range(max = u32::MAX))]
    pub node: u32,
    /// Its CPUs as the kernel lists them, such as `0-15,32-47`; empty for a node of memory alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = rule::NO_NUL))]
    pub cpus: String,
    /// Its memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub memory: Option<u64>,
}

impl NumaNode {
    /// A node.
    pub fn new(node: u32, cpus: impl Into<String>, memory: Option<u64>) -> Self {
        Self { node, cpus: cpus.into(), memory }
    }
}

/// Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MemoryFacts {
    /// All of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub total: Option<u64>,
    /// The lowest limit of the cgroups of the process that read this; none where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub limit: Option<u64>,
    /// Swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub swap: Option<u64>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

/// Which C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LibcFlavour {
    /// The GNU C library, for which every published libtorch is built.
    Glibc,
    /// musl, which loads none of them.
    Musl,
}

/// The C library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LibcFacts {
    /// Which one.
    pub flavour: LibcFlavour,
    /// Its version as its own file states it, such as `2.31`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::SYMBOL_VERSION))]
    pub version: Option<String>,
    /// The file that it was read in.
    #[schemars(regex(pattern = rule::TEXT))]
    pub from: String,
}

impl LibcFacts {
    /// A C library, read in this file.
    pub fn new(flavour: LibcFlavour, version: Option<String>, from: impl Into<String>) -> Self {
        Self { flavour, version, from: from.into() }
    }
}

/// A library of the system, as the loader finds it for a program without search paths of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SystemLibrary {
    /// The name that was searched for, such as `libstdc++.so.6`.
    #[schemars(regex(pattern = rule::FILE_NAME))]
    pub name: String,
    /// The symbol versions that it offers, such as `GLIBCXX_3.4.30`, in the order of its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub versions: Vec<String>,
    /// The file that it was read in, links followed.
    #[schemars(regex(pattern = rule::TEXT))]
    pub from: String,
}

impl SystemLibrary {
    /// A library, read in this file.
    pub fn new(name: impl Into<String>, versions: Vec<String>, from: impl Into<String>) -> Self {
        Self { name: name.into(), versions, from: from.into() }
    }

    /// The highest version with this prefix, such as `3.4.30` for `GLIBCXX_`.
    pub fn highest(&self, prefix: &str) -> Option<&str> {
        let numbers = |text: &str| text.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>();
        let versions = self.versions.iter().filter_map(|version| version.strip_prefix(prefix));
        let numbered = versions.filter_map(|version| Some((numbers(version)?, version)));
        numbered.max().map(|(_, version)| version)
    }
}

/// Where the loader searches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LoaderFacts {
    /// The loader itself, links followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub program: Option<String>,
    /// LD_LIBRARY_PATH of the environment that this was read in, by its elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::NO_NUL)))]
    pub library_path: Vec<String>,
    /// The folders that `ld.so.conf` and what it includes name, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub configured: Vec<String>,
    /// The folders that are searched last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub default_folders: Vec<String>,
    /// Folders below `glibc-hwcaps` that this CPU can use, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub hwcaps: Vec<String>,
    /// How many libraries `ld.so.cache` names; none where there is no cache that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u32::MAX))]
    pub cached: Option<u32>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

/// Room on the file system of one folder, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct DiskFacts {
    /// The folder.
    #[schemars(regex(pattern = rule::TEXT))]
    pub path: String,
    /// What is kept there.
    pub purpose: DiskPurpose,
    /// All of it.
    #[schemars(range(max = rule::MAX_SIZE))]
    pub total: u64,
    /// What this user may still fill, at the time of the reading.
    #[schemars(range(max = rule::MAX_SIZE))]
    pub free: u64,
    /// The file system, such as `ext4`, `nfs4`, `tmpfs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub filesystem: Option<String>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

impl DiskFacts {
    /// Room of a folder.
    pub fn new(path: impl Into<String>, purpose: DiskPurpose, total: u64, free: u64) -> Self {
        Self { path: path.into(), purpose, total, free, filesystem: None, from: Vec::new() }
    }
}

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskPurpose {
    /// The project: binaries, libtorch, runs.
    Project,
    /// Temporary files: TMPDIR or `/tmp`.
    Temporary,
    /// Memory that processes share: `/dev/shm`, where data loaders and NCCL put theirs.
    Shared,
}

/// A value that a limit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// None.
    Unlimited,
    /// At most this; beyond 2^53 - 1 a value counts as unlimited.
    At(#[schemars(range(max = rule::MAX_SIZE))] u64),
}

impl Bound {
    /// The bound of a value; what no reader of JSON would hold exactly is no bound.
    pub fn of(value: u64) -> Self {
        if value > rule::MAX_SIZE { Self::Unlimited } else { Self::At(value) }
    }
}

/// A limit: what holds, and what the process may raise it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// What holds.
    pub soft: Bound,
    /// What it may be raised to.
    pub hard: Bound,
}

/// Limits of a process of this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LimitFacts {
    /// Open files (RLIMIT_NOFILE).
    pub nofile: Limit,
    /// Processes and threads of the user (RLIMIT_NPROC).
    pub nproc: Limit,
    /// Bytes of locked memory (RLIMIT_MEMLOCK), which RDMA needs.
    pub memlock: Limit,
    /// Bytes of a core file (RLIMIT_CORE).
    pub core: Limit,
}

impl LimitFacts {
    /// The four limits.
    pub fn new(nofile: Limit, nproc: Limit, memlock: Limit, core: Limit) -> Self {
        Self { nofile, nproc, memlock, core }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_its_affinity_within_its_quota() {
        let cores = |online, usable, quota_thousandths| {
            CoreFacts { online, usable, quota_thousandths, ..CoreFacts::default() }.effective()
        };
        assert_eq!(cores(Some(64), Some(16), None), Some(16));
        assert_eq!(cores(Some(64), Some(16), Some(2_500)), Some(3));
        assert_eq!(cores(Some(64), None, Some(100)), Some(1));
        assert_eq!(cores(Some(4), Some(2), Some(8_000)), Some(2));
        assert_eq!(cores(None, None, Some(8_000)), Some(8));
        assert_eq!(cores(None, None, None), None);
    }

    #[test]
    fn the_highest_version_is_so_by_its_numbers() {
        let versions = ["GLIBCXX_3.4", "GLIBCXX_3.4.9", "GLIBCXX_3.4.30", "CXXABI_1.3.13", "GLIBCXX_LDBL_3.4"];
        let library = SystemLibrary::new("libstdc++.so.6", versions.map(str::to_owned).to_vec(), "/usr/lib/x");
        assert_eq!(library.highest("GLIBCXX_"), Some("3.4.30"));
        assert_eq!(library.highest("CXXABI_"), Some("1.3.13"));
        assert_eq!(library.highest("GLIBC_"), None);
    }

    #[test]
    fn a_bound_that_no_reader_holds_exactly_is_none() {
        assert_eq!(Bound::of(1024), Bound::At(1024));
        assert_eq!(Bound::of(u64::MAX), Bound::Unlimited);
        assert_eq!(serde_json::to_string(&Bound::of(1 << 53)).unwrap(), r#""unlimited""#);
        assert_eq!(serde_json::to_string(&Bound::At(0)).unwrap(), r#"{"at":0}"#);
    }
}
