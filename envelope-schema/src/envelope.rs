//! The envelope: the JSON that tells a launcher what to run on one host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::libtorch::LibtorchRecord;
use crate::rule;

/// The name of an envelope's file in the folder of its host.
pub const FILE_NAME: &str = "envelope.json";

/// The published per-host envelope, kept to the byte: three fields, `cwd_subpath` left out when empty
/// and read as empty when missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PerHostEnvelope {
    /// Path of the binary relative to the host's `path`, below it.
    #[schemars(regex(pattern = rule::RELATIVE_PATH))]
    pub bin: String,
    /// The value for `LD_LIBRARY_PATH`: absolute folders joined by `:`; empty sets nothing.
    #[schemars(regex(pattern = rule::LIBRARY_PATH))]
    pub ld_library_path: String,
    /// Folder below the host's `path` to run in; empty is `path` itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = rule::RELATIVE_PATH_OR_EMPTY))]
    pub cwd_subpath: String,
}

/// The superset that Torchlift writes, one file a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Envelope {
    /// Refuses: a reader takes no newer one.
    #[schemars(range(min = crate::version::VERSION, max = crate::version::VERSION))]
    pub version: u32,
    /// Informs: grows with every added field.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub revision: u32,
    /// The host that it is for.
    #[schemars(regex(pattern = rule::HOST))]
    pub host: String,
    /// The kind that the host is of; left out when the cluster file names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub kind: Option<String>,
    /// Path of the binary relative to the host's `path`, below it.
    #[schemars(regex(pattern = rule::RELATIVE_PATH))]
    pub bin: String,
    /// The value for `LD_LIBRARY_PATH`: absolute folders joined by `:`; empty sets nothing.
    #[schemars(regex(pattern = rule::LIBRARY_PATH))]
    pub ld_library_path: String,
    /// Folder below the host's `path` to run in; empty is `path` itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = rule::RELATIVE_PATH_OR_EMPTY))]
    pub cwd_subpath: String,
    /// The binary.
    pub artifact: Artifact,
    /// The libtorch that it loads; none for a program without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<LibtorchRecord>,
    /// Findings that were accepted when it was made: warnings all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = only_warnings)]
    pub findings: Vec<Finding>,
    /// SHA-256 in lower-case hex over the canonical text without this field.
    #[schemars(regex(pattern = rule::SHA256))]
    pub self_sha256: String,
}

/// A schema can say it, so it does: an error that stands leaves no envelope.
fn only_warnings(schema: &mut schemars::Schema) {
    if let Some(items) = schema.get_mut("items").and_then(serde_json::Value::as_object_mut) {
        items.insert("properties".to_owned(), serde_json::json!({ "severity": { "const": "warning" } }));
    }
}

/// The binary that an envelope names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Artifact {
    /// Target triple.
    #[schemars(regex(pattern = rule::TARGET))]
    pub target: String,
    /// Size in bytes, at most 2^53 - 1.
    #[schemars(range(min = 1, max = rule::MAX_SIZE))]
    pub size: u64,
    /// SHA-256 in lower-case hex.
    #[schemars(regex(pattern = rule::SHA256))]
    pub sha256: String,
    /// GNU build id in lower-case hex, when the binary has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::HEX_BYTES))]
    pub build_id: Option<String>,
    /// The key of the build, in lower-case hex.
    #[schemars(regex(pattern = rule::HEX))]
    pub build_key: String,
    /// What it was built from: git revision and dirty digest, or a digest of the sources.
    #[schemars(regex(pattern = rule::TEXT))]
    pub source_id: String,
    /// Highest `GLIBC_x.y` that it needs, as `x.y`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::SYMBOL_VERSION))]
    pub glibc: Option<String>,
    /// Highest `GLIBCXX_x.y.z` that it needs, as `x.y.z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::SYMBOL_VERSION))]
    pub libstdcxx: Option<String>,
    /// x86-64 level (`x86-64-v1` to `-v4`) or `armv8-a` that its flags ask for, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::CPU_LEVEL))]
    pub cpu_level: Option<String>,
    /// DT_NEEDED in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
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
    /// An envelope of this version and revision for `host`, not yet sealed:
    /// [`crate::write::seal`] fills `self_sha256`.
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

    /// Whether it is of a newer revision than this crate knows: it may have keys that were passed over.
    pub fn has_newer_revision(&self) -> bool {
        self.revision > crate::version::REVISION
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
