//! Compute capabilities of NVIDIA's cards, and the architectures that CUDA compiles for.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GpuError, written_as_text};
use crate::rule;

/// What a card is, such as 8.6: the *compute capability* of NVIDIA's documents. Written `8.6`.
///
/// Read from `8.6`, `86`, `sm_86`, `sm86`, `compute_86`; of three digits the last one is the minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::CAPABILITY))]
pub struct Capability {
    /// The generation, 1 to 99.
    pub major: u8,
    /// The member of the generation, 0 to 9.
    pub minor: u8,
}

/// How widely code for an architecture runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Specificity {
    /// `sm_90`: on this and on the later ones that the rules name.
    #[default]
    Plain,
    /// `sm_90a`: on exactly this architecture.
    Arch,
    /// `sm_100f`: on this family.
    Family,
}

/// What CUDA compiles for, such as `sm_90a`. Written with `sm_`; whether the code is SASS or PTX is [`super::GpuCode`]'s.
///
/// Read from `9.0a`, `90a`, `sm_90a`, `sm90a`, `compute_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::CUDA_ARCH))]
pub struct CudaArch {
    /// The capability that it is for.
    pub capability: Capability,
    /// How widely its code runs.
    pub specificity: Specificity,
}

impl Capability {
    /// From major and minor version; none for what has no text: a major of 0 or above 99, a minor above 9.
    pub fn new(major: u8, minor: u8) -> Option<Self> {
        ((1..=99).contains(&major) && minor <= 9).then_some(Self { major, minor })
    }

    /// From the number that compilers and fatbins use: 86 is 8.6, 120 is 12.0. None for what is no capability.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::new(u8::try_from(number / 10).ok()?, u8::try_from(number % 10).ok()?)
    }

    /// The number that compilers and fatbins use: 86 for 8.6.
    pub fn number(self) -> u32 {
        u32::from(self.major) * 10 + u32::from(self.minor)
    }
}

impl CudaArch {
    /// The architecture that is for every later card of a generation too.
    pub const fn plain(capability: Capability) -> Self {
        Self { capability, specificity: Specificity::Plain }
    }

    /// From the number that compilers and fatbins use; none for what is no capability.
    pub fn from_number(number: u32, specificity: Specificity) -> Option<Self> {
        Some(Self { capability: Capability::from_number(number)?, specificity })
    }

    /// `9.0a`, as `TORCH_CUDA_ARCH_LIST` takes it.
    pub fn dotted(self) -> String {
        format!("{}{}", self.capability, self.specificity)
    }
}

/// How a text names an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `8.6` or `86`.
    Bare,
    /// `sm_86`.
    Sass,
    /// `compute_86`.
    Ptx,
}

/// An architecture in any of its spellings; the error says what is wrong with it as an architecture.
pub(super) fn read(text: &str) -> Result<(CudaArch, Spelling), GpuError> {
    let (spelling, rest) = match (text.strip_prefix("compute_"), text.strip_prefix("sm")) {
        (Some(rest), _) => (Spelling::Ptx, rest),
        (_, Some(rest)) => (Spelling::Sass, rest.strip_prefix('_').unwrap_or(rest)),
        _ => (Spelling::Bare, text),
    };
    let (version, specificity) = match (rest.strip_suffix('a'), rest.strip_suffix('f')) {
        (Some(version), _) => (version, Specificity::Arch),
        (_, Some(version)) => (version, Specificity::Family),
        _ => (rest, Specificity::Plain),
    };
    let wrong = || GpuError::CudaArch { text: crate::tree::shown(text) };
    let digits = |part: &str, most| {
        let is_number = (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && (part.len() == 1 || !part.starts_with('0'))).then(|| part.parse::<u32>().ok()).flatten()
    };
    let number = match version.split_once('.') {
        Some((major, minor)) if spelling == Spelling::Bare => {
            digits(major, 2).zip(digits(minor, 1)).map(|(major, minor)| major * 10 + minor)
        }
        Some(_) => None,
        None => digits(version, 3),
    };
    let is_bare_number = spelling == Spelling::Bare && !version.contains('.');
    match number.and_then(Capability::from_number) {
        // Nobody has a card of capability 1.2 any more, and `12` is what one writes for 12.0.
        Some(Capability { major: 1, .. }) if is_bare_number => {
            Err(GpuError::Ambiguous { text: crate::tree::shown(version) })
        }
        Some(capability) => Ok((CudaArch { capability, specificity }, spelling)),
        None => Err(wrong()),
    }
}

impl FromStr for Capability {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match read(text) {
            Ok((CudaArch { capability, specificity: Specificity::Plain }, _)) => Ok(capability),
            Err(ambiguous @ GpuError::Ambiguous { .. }) => Err(ambiguous),
            _ => Err(GpuError::Capability { text: crate::tree::shown(text) }),
        }
    }
}

impl FromStr for CudaArch {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text).map(|(arch, _)| arch)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Specificity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "",
            Self::Arch => "a",
            Self::Family => "f",
        })
    }
}

impl fmt::Display for CudaArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability.number(), self.specificity)
    }
}

written_as_text!(Capability);
written_as_text!(CudaArch);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_read_in_every_usual_spelling() {
        let table = [
            ("6.1", "sm_61"),
            ("61", "sm_61"),
            ("sm_61", "sm_61"),
            ("sm61", "sm_61"),
            ("compute_90", "sm_90"),
            ("9.0a", "sm_90a"),
            ("90a", "sm_90a"),
            ("sm_90a", "sm_90a"),
            ("12.0f", "sm_120f"),
            ("100", "sm_100"),
            ("sm_103", "sm_103"),
            ("sm_120a", "sm_120a"),
            ("compute_120f", "sm_120f"),
            ("12.0", "sm_120"),
            ("1.2", "sm_12"),
        ];
        for (text, canonical) in table {
            let arch: CudaArch = text.parse().unwrap();
            assert_eq!(arch.to_string(), canonical, "{text}");
            assert_eq!(canonical.parse(), Ok(arch), "{text}");
        }
    }

    #[test]
    fn a_capability_is_written_with_a_dot_and_a_number_keeps_its_last_digit_as_minor() {
        for (number, text) in [(61, "6.1"), (90, "9.0"), (103, "10.3"), (120, "12.0"), (999, "99.9")] {
            let capability = Capability::from_number(number).unwrap();
            assert_eq!((capability.to_string().as_str(), capability.number()), (text, number));
            assert_eq!(text.parse(), Ok(capability));
        }
        for number in [0, 9, 1000, u32::MAX] {
            assert_eq!(Capability::from_number(number), None, "{number}");
        }
    }

    #[test]
    fn what_is_no_architecture_is_an_error_that_says_how_to_write_it() {
        let bad = [
            "",
            "6",
            "6.",
            ".1",
            "6.10",
            "six",
            "sm_",
            "sm_1",
            "06.1",
            "061",
            "8.6+PTX",
            "123.0",
            "sm_ä1",
            "1200",
            "sm_9.0",
            "compute_",
            "9.0b",
            "9.0aa",
            "9.0af",
            "a",
            "f",
            "+86",
            "8.-6",
            "8,6",
            " 86",
            "86 ",
            "SM_86",
            "0.0",
            "00",
            "sm__86",
            "gfx90a",
            "4294967296",
        ];
        for text in bad {
            let error = text.parse::<CudaArch>().unwrap_err().to_string();
            assert!(error.contains("written `8.6`, `sm_86`"), "{text}: {error}");
            assert!(text.parse::<Capability>().unwrap_err().to_string().contains("written `8.6`, `86`"), "{text}");
        }
    }

    #[test]
    fn two_digits_that_may_be_meant_in_two_ways_are_asked_back() {
        let error = "12".parse::<Capability>().unwrap_err();
        assert_eq!(error.to_string(), "`12` may stand for 1.2 or for 12.0: write the dot");
        assert!(matches!("10a".parse::<CudaArch>(), Err(GpuError::Ambiguous { .. })));
    }

    #[test]
    fn a_capability_has_no_suffix() {
        assert!("9.0a".parse::<Capability>().is_err());
        assert_eq!("sm_90a".parse::<CudaArch>().unwrap().dotted(), "9.0a");
    }

    #[test]
    fn architectures_are_ordered_by_capability_and_not_as_texts() {
        let read = |text: &str| text.parse::<CudaArch>().unwrap();
        assert!(read("sm_61") < read("sm_100") && read("sm_90") < read("sm_90a") && read("sm_90a") < read("sm_100"));
    }

    #[test]
    fn json_holds_the_canonical_text_alone() {
        let arch: CudaArch = serde_json::from_str("\"sm_90a\"").unwrap();
        assert_eq!(serde_json::to_string(&arch).unwrap(), "\"sm_90a\"");
        assert_eq!(serde_json::to_string(&arch.capability).unwrap(), "\"9.0\"");
        for other in ["\"9.0a\"", "\"90a\"", "\"compute_90a\"", "90"] {
            assert!(serde_json::from_str::<CudaArch>(other).is_err(), "{other}");
        }
    }
}
