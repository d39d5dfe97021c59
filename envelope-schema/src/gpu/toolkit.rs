//! The version of a GPU toolkit.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GpuError, written_as_text};
use crate::rule;

/// A version of CUDA or ROCm, such as 12.8. Written `12.8`; read from `12.8` and `12.8.93`, whose patch level says nothing
/// about what its code runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::TOOLKIT))]
pub struct ToolkitVersion {
    /// 12 of 12.8.
    pub major: u16,
    /// 8 of 12.8.
    pub minor: u16,
}

impl ToolkitVersion {
    /// A version of at most four digits each; beyond that it has no text.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
}

impl FromStr for ToolkitVersion {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: &str| {
            let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            (is_number && (part.len() == 1 || !part.starts_with('0'))).then(|| part.parse::<u16>().ok()).flatten()
        };
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        let version = match parts.as_slice() {
            [major, minor] => number(major).zip(number(minor)),
            [major, minor, patch] => number(patch).and(number(major).zip(number(minor))),
            _ => None,
        };
        match version {
            Some((major, minor)) => Ok(Self { major, minor }),
            None => Err(GpuError::ToolkitVersion { text: crate::tree::shown(text) }),
        }
    }
}

impl fmt::Display for ToolkitVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

written_as_text!(ToolkitVersion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_numbers() {
        let read = |text: &str| text.parse::<ToolkitVersion>().unwrap();
        assert!(read("9.2") < read("11.8") && read("12.8") < read("12.10") && read("12.9") < read("13.0"));
        assert_eq!(read("12.8.93"), read("12.8"));
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "12", "12.", ".8", "12.x", "v12.8", "12.8.", "12.8.1.2", "12.08", "012.8", "12345.0", "-1.0"] {
            assert!(text.parse::<ToolkitVersion>().unwrap_err().to_string().contains("written `12.8`"), "{text}");
        }
    }
}
