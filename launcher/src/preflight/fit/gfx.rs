//! What of AMD's code runs on which of its cards.
//!
//! Sources: LLVM's *User Guide for AMDGPU Backend*, "Target ID" (a feature that the code does not name runs either way) and
//! "Generic Processors" (<https://llvm.org/docs/AMDGPUUsage.html>); for `HSA_OVERRIDE_GFX_VERSION`, `topology.c` of ROCm's
//! `libhsakmt`, which reads `major.minor.stepping` in decimal and gives the programs an empty system when it cannot.

use std::fmt;
use std::str::FromStr;

use torchlift_schema::gpu::{GfxProcessor, GfxTarget, Switch};

use crate::env_vars::HSA_OVERRIDE_GFX_VERSION;

/// A generic processor: major version, and the minor of its name where it has one.
type Generic = (u8, Option<u8>);

/// Which processors a generic one stands for.
const GENERIC: &[(Generic, &[&str])] = &[
    ((9, None), &["gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"]),
    ((9, Some(4)), &["gfx940", "gfx941", "gfx942", "gfx950"]),
    ((10, Some(1)), &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ((10, Some(3)), &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    ((11, None), &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"]),
    ((12, None), &["gfx1200", "gfx1201"]),
];

/// Whether a card runs this code. A feature that either side does not state matches.
pub fn runs(code: GfxTarget, card: GfxTarget) -> bool {
    let is_processor = match code.processor {
        GfxProcessor::Generic { major, minor } => {
            let members =
                GENERIC.iter().find(|(name, _)| *name == (major, minor)).map_or(&[][..], |(_, members)| members);
            members.contains(&card.processor.to_string().as_str())
        }
        exact @ GfxProcessor::Exact { .. } => exact == card.processor,
    };
    is_processor && matches(code.sramecc, card.sramecc) && matches(code.xnack, card.xnack)
}

fn matches(code: Switch, card: Switch) -> bool {
    code == Switch::Any || card == Switch::Any || code == card
}

/// The value of `HSA_OVERRIDE_GFX_VERSION`: the processor that every card is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override(GfxProcessor);

/// A value of the variable that ROCm does not take, or that names no processor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}={text}` is no `major.minor.stepping` in decimal, such as `10.3.0` for gfx1030", HSA_OVERRIDE_GFX_VERSION)]
pub struct OverrideError {
    /// The value.
    pub text: String,
}

impl Override {
    /// What a card is with it. Features are the card's own.
    pub fn on(self, card: GfxTarget) -> GfxTarget {
        GfxTarget { processor: self.0, ..card }
    }
}

impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Option<Vec<u8>> = text
            .split('.')
            .map(|part| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok()).flatten())
            .collect();
        match parts.as_deref() {
            // The names of processors have one hexadecimal digit for each of the last two.
            Some(&[major @ 1..=63, minor @ 0..=15, stepping @ 0..=15]) => {
                Ok(Self(GfxProcessor::Exact { major, minor, stepping }))
            }
            _ => Err(OverrideError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
