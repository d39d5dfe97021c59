//! AMD's processors, and the targets that code is compiled for.
//!
//! Spelling and meaning are those of LLVM's "User Guide for AMDGPU Backend": *Processors*, *Target ID* and *Generic
//! Processor* (<https://llvm.org/docs/AMDGPUUsage.html>).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GpuError, written_as_text};
use crate::rule;

/// A processor of AMD: one, or the generic one that stands for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GfxProcessor {
    /// `gfx90a` is 9, 0, 10: the last two digits of the name are hexadecimal.
    Exact {
        /// The generation, 1 to 99.
        major: u8,
        /// 0 to 15.
        minor: u8,
        /// 0 to 15.
        stepping: u8,
    },
    /// `gfx11-generic`, `gfx9-4-generic`.
    Generic {
        /// The generation, 1 to 99.
        major: u8,
        /// 0 to 15, where the name has one.
        minor: Option<u8>,
    },
}

/// A feature of a target that a card has switched on or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// The name says nothing of it: code runs either way, of a card it is not known.
    #[default]
    Any,
    /// `-`.
    Off,
    /// `+`.
    On,
}

/// What AMD's code is compiled for, or what a card is: `gfx90a:sramecc+:xnack-`, with its features in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::GFX_TARGET))]
pub struct GfxTarget {
    /// The processor.
    pub processor: GfxProcessor,
    /// Error correction of its memory.
    pub sramecc: Switch,
    /// Replay of page faults.
    pub xnack: Switch,
}

impl GfxTarget {
    /// The target of a processor whose features are not stated.
    pub const fn any(processor: GfxProcessor) -> Self {
        Self { processor, sramecc: Switch::Any, xnack: Switch::Any }
    }
}

impl FromStr for GfxProcessor {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        processor(text).ok_or_else(|| GpuError::GfxTarget { text: crate::tree::shown(text) })
    }
}

fn processor(text: &str) -> Option<GfxProcessor> {
    let name = text.strip_prefix("gfx")?;
    if let Some(versions) = name.strip_suffix("-generic") {
        let (generation, minor) = match versions.split_once('-') {
            Some((generation, minor)) => (generation, Some(hex(minor)?)),
            None => (versions, None),
        };
        return Some(GfxProcessor::Generic { major: major(generation)?, minor });
    }
    let (generation, rest) = name.split_at_checked(name.len().checked_sub(2)?)?;
    let (minor, stepping) = rest.split_at_checked(1)?;
    Some(GfxProcessor::Exact { major: major(generation)?, minor: hex(minor)?, stepping: hex(stepping)? })
}

fn major(text: &str) -> Option<u8> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !text.starts_with('0')).then(|| text.parse().ok()).flatten()
}

fn hex(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [digit @ b'0'..=b'9'] => Some(digit - b'0'),
        [digit @ b'a'..=b'f'] => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl FromStr for GfxTarget {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || GpuError::GfxTarget { text: crate::tree::shown(text) };
        let mut parts = text.split(':');
        let mut target = Self::any(parts.next().and_then(processor).ok_or_else(wrong)?);
        for part in parts {
            let (feature, switch) = match (part.strip_suffix('+'), part.strip_suffix('-')) {
                (Some(feature), _) => (feature, Switch::On),
                (_, Some(feature)) => (feature, Switch::Off),
                _ => return Err(wrong()),
            };
            let place = match feature {
                "sramecc" => &mut target.sramecc,
                "xnack" => &mut target.xnack,
                _ => return Err(wrong()),
            };
            if *place != Switch::Any {
                return Err(wrong());
            }
            *place = switch;
        }
        Ok(target)
    }
}

impl fmt::Display for GfxProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { major, minor, stepping } => write!(f, "gfx{major}{minor:x}{stepping:x}"),
            Self::Generic { major, minor: None } => write!(f, "gfx{major}-generic"),
            Self::Generic { major, minor: Some(minor) } => write!(f, "gfx{major}-{minor:x}-generic"),
        }
    }
}

impl fmt::Display for GfxTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.processor)?;
        for (feature, switch) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            match switch {
                Switch::Any => {}
                Switch::Off => write!(f, ":{feature}-")?,
                Switch::On => write!(f, ":{feature}+")?,
            }
        }
        Ok(())
    }
}

written_as_text!(GfxTarget);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_processor_with_the_features_that_are_stated() {
        let table = [
            ("gfx906", GfxProcessor::Exact { major: 9, minor: 0, stepping: 6 }),
            ("gfx90a", GfxProcessor::Exact { major: 9, minor: 0, stepping: 10 }),
            ("gfx942", GfxProcessor::Exact { major: 9, minor: 4, stepping: 2 }),
            ("gfx1100", GfxProcessor::Exact { major: 11, minor: 0, stepping: 0 }),
            ("gfx11-generic", GfxProcessor::Generic { major: 11, minor: None }),
            ("gfx9-4-generic", GfxProcessor::Generic { major: 9, minor: Some(4) }),
        ];
        for (text, processor) in table {
            assert_eq!(text.parse(), Ok(GfxTarget::any(processor)), "{text}");
            assert_eq!(processor.to_string(), text);
        }
        let whole: GfxTarget = "gfx90a:sramecc+:xnack-".parse().unwrap();
        assert_eq!((whole.sramecc, whole.xnack), (Switch::On, Switch::Off));
        assert_eq!(whole.to_string(), "gfx90a:sramecc+:xnack-");
        assert_eq!("gfx90a:xnack-:sramecc+".parse(), Ok(whole), "the order says nothing");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        let bad = [
            "",
            "gfx",
            "gfx9",
            "gfx90",
            "gfxyz",
            "gfx90A",
            "gfx0900",
            "gfx12345",
            "gfx90a:",
            "gfx90a:xnack",
            "gfx90a:xnack+:xnack-",
            "gfx90a:tgsplit+",
            "gfx-generic",
            "gfx11-12-generic",
            "gfx9-4-generic-",
            "gfxä0",
            "gfx9ä",
            "90a",
            "sm_90a",
            "gfx90a xnack+",
        ];
        for text in bad {
            let error = text.parse::<GfxTarget>().unwrap_err().to_string();
            assert!(error.contains("written `gfx90a`"), "{text}: {error}");
        }
    }
}
