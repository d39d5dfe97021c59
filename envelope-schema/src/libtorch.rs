//! What the envelope says about the libtorch that a binary runs with.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule;

/// A variant's name: `<family>/<name>`, such as `precompiled/cu128` or `builds/sm61-sm120`.
///
/// Both parts are of `[A-Za-z0-9._+-]`, not empty, and do not begin with a dot or a dash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = rule::VARIANT_ID))]
pub struct VariantId(String);

/// A text that is no variant id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no variant id, which is `<family>/<name>` such as `precompiled/cu128`")]
pub struct VariantIdError {
    /// The text, escaped and cut short.
    pub text: String,
}

impl VariantId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as one folder name: `precompiled-cu128`.
    pub fn slug(&self) -> String {
        self.0.replace('/', "-")
    }
}

impl FromStr for VariantId {
    type Err = VariantIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
        };
        match text.split_once('/') {
            Some((family, name)) if is_part(family) && is_part(name) => Ok(Self(text.to_owned())),
            _ => Err(VariantIdError { text: crate::tree::shown(text) }),
        }
    }
}

impl TryFrom<String> for VariantId {
    type Error = VariantIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<VariantId> for String {
    fn from(id: VariantId) -> Self {
        id.0
    }
}

impl fmt::Display for VariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a libtorch computes on, with the version of its toolkit; that is empty where it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Accelerator {
    /// No GPU library is there.
    Cpu,
    /// CUDA, with the toolkit's version such as `12.8`.
    Cuda(#[schemars(regex(pattern = rule::TOOLKIT_VERSION))] String),
    /// ROCm, with its version such as `6.3`.
    Rocm(#[schemars(regex(pattern = rule::TOOLKIT_VERSION))] String),
}

/// One library of the closure that was found when the binary was verified.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LibraryFile {
    /// The file's name below one of the folders of `ld_library_path`, such as `libtorch_cpu.so`.
    #[schemars(regex(pattern = rule::FILE_NAME))]
    pub file: String,
    /// Size in bytes, at most 2^53 - 1.
    #[schemars(range(min = 1, max = rule::MAX_SIZE))]
    pub size: u64,
    /// SHA-256 in lower-case hex.
    #[schemars(regex(pattern = rule::SHA256))]
    pub sha256: String,
}

/// The libtorch that a binary was built against and verified with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LibtorchRecord {
    /// Its variant id; none for a tree given by an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<VariantId>,
    /// The torch version as its own files state it, such as `2.9.0+cu128`.
    #[schemars(regex(pattern = rule::TEXT))]
    pub version: String,
    /// What it computes on.
    pub accelerator: Accelerator,
    /// GPU architectures that it has code for; empty for a CPU variant or where it was not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub archs: Vec<String>,
    /// Every library of the verified closure that lies in the variant, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<LibraryFile>,
}

impl LibtorchRecord {
    /// A record without archs and libraries.
    pub fn new(variant: Option<VariantId>, version: impl Into<String>, accelerator: Accelerator) -> Self {
        Self { variant, version: version.into(), accelerator, archs: Vec::new(), libraries: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_id_is_a_family_and_a_name() {
        for text in ["precompiled/cu128", "builds/sm61-sm120", "a/b", "_/+", "x.y/1.2+cu_3"] {
            let id: VariantId = text.parse().unwrap();
            assert_eq!((id.as_str(), id.to_string()), (text, text.to_owned()));
            assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<VariantId>(&format!("\"{text}\"")).unwrap(), id);
        }
    }

    #[test]
    fn a_text_that_leaves_the_store_or_reads_as_an_option_is_no_variant_id() {
        let wrong = [
            "", "/", "a", "a/", "/b", "a/b/c", "../a", "a/..", "./a", "a/.b", ".a/b", "-a/b", "a/-b", "a b/c", "a/é",
            "a/b\n", "a\\b/c", "a/b\0", "~/b", "$HOME/b",
        ];
        for text in wrong {
            assert!(text.parse::<VariantId>().is_err(), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<VariantId>(&json).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_slug_is_one_folder_name() {
        assert_eq!("builds/sm61-sm120".parse::<VariantId>().unwrap().slug(), "builds-sm61-sm120");
    }

    #[test]
    fn an_accelerator_without_a_version_is_a_plain_word() {
        assert_eq!(serde_json::to_string(&Accelerator::Cpu).unwrap(), r#""cpu""#);
        assert_eq!(serde_json::to_string(&Accelerator::Cuda("12.8".into())).unwrap(), r#"{"cuda":"12.8"}"#);
    }
}
