//! The envelope: the JSON that tells a launcher what to run on one host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::libtorch::LibtorchRecord;

/// The published per-host envelope, kept to the byte: three fields, `cwd_subpath` left out when empty
/// and read as empty when missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PerHostEnvelope {
    /// Path of the binary relative to the host's `path`, below it.
    pub bin: String,
    /// The value for `LD_LIBRARY_PATH`: absolute folders joined by `:`; empty sets nothing.
    pub ld_library_path: String,
    /// Folder below the host's `path` to run in; empty is `path` itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd_subpath: String,
}

/// The superset that Torchlift writes, one file a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Envelope {
    /// Refuses: a reader takes no newer one. See [`crate::version`].
    pub version: u32,
    /// Informs: grows with every added field.
    #[serde(default)]
    pub revision: u32,
    /// The host that it is for.
    pub host: String,
    /// The kind that the host is of; left out when the cluster file names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// As in [`PerHostEnvelope`].
    pub bin: String,
    /// As in [`PerHostEnvelope`].
    pub ld_library_path: String,
    /// As in [`PerHostEnvelope`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd_subpath: String,
    /// The binary.
    pub artifact: Artifact,
    /// The libtorch that it loads; none for a program without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<LibtorchRecord>,
    /// Findings that were accepted when it was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// SHA-256 in lower-case hex over the canonical text without this field; see [`crate::write`].
    pub self_sha256: String,
}

/// The binary that an envelope names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Artifact {
    /// Target triple.
    pub target: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
    /// GNU build id in lower-case hex, when the binary has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The key of the build, in lower-case hex.
    pub build_key: String,
    /// What it was built from: git revision and dirty digest, or a digest of the sources.
    pub source_id: String,
    /// Highest `GLIBC_x.y` that it needs, as `x.y`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// Highest `GLIBCXX_x.y.z` that it needs, as `x.y.z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libstdcxx: Option<String>,
    /// x86-64 level (`x86-64-v1` to `-v4`) or `armv8-a` that its flags ask for, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_level: Option<String>,
    /// DT_NEEDED in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
}

impl Artifact {
    /// An artifact with what every one has; the rest is `None` and empty.
    pub fn new(
        target: impl Into<String>,
        size: u64,
        sha256: impl Into<String>,
        build_key: impl Into<String>,
        source_id: impl Into<String>,
    ) -> Self {
        Self {
            target: target.into(),
            size,
            sha256: sha256.into(),
            build_id: None,
            build_key: build_key.into(),
            source_id: source_id.into(),
            glibc: None,
            libstdcxx: None,
            cpu_level: None,
            needed: Vec::new(),
        }
    }
}

impl Envelope {
    /// An envelope of this version and revision for `host`, not yet sealed: [`crate::write`] fills `self_sha256`.
    pub fn new(host: impl Into<String>, run: PerHostEnvelope, artifact: Artifact) -> Self {
        Self {
            version: crate::version::VERSION,
            revision: crate::version::REVISION,
            host: host.into(),
            kind: None,
            bin: run.bin,
            ld_library_path: run.ld_library_path,
            cwd_subpath: run.cwd_subpath,
            artifact,
            libtorch: None,
            findings: Vec::new(),
            self_sha256: String::new(),
        }
    }

    /// The published three fields of it.
    pub fn per_host(&self) -> PerHostEnvelope {
        PerHostEnvelope {
            bin: self.bin.clone(),
            ld_library_path: self.ld_library_path.clone(),
            cwd_subpath: self.cwd_subpath.clone(),
        }
    }
}
