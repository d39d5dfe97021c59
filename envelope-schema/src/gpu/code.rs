//! One kind of code that a library carries for GPUs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cuda::{self, Spelling};
use super::{CudaArch, GfxTarget, GpuError, ToolkitVersion, written_as_text};
use crate::rule;

/// Code for a GPU, as a library carries it or as a compiler is asked for it.
///
/// Written `sm_90a` (SASS), `compute_90` or `compute_90@12.8` (PTX, with the toolkit that made it where that is known),
/// `gfx90a:xnack-` (AMD). Read from every spelling of [`CudaArch`] and [`GfxTarget`] too; a text without a prefix is SASS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::GPU_CODE))]
pub enum GpuCode {
    /// Machine code of NVIDIA's cards.
    Sass(CudaArch),
    /// Text that the driver compiles on the host, and the toolkit that wrote it.
    Ptx(CudaArch, Option<ToolkitVersion>),
    /// Machine code of AMD's cards.
    Gfx(GfxTarget),
}

impl GpuCode {
    /// A list as `TORCH_CUDA_ARCH_LIST`, `PYTORCH_ROCM_ARCH` and `.arch` files have it: parts between `;`, `,` or white
    /// space, where `8.0+PTX` is both SASS and PTX. An empty list is an empty set; the first wrong part is the error.
    pub fn list(text: &str) -> Result<BTreeSet<Self>, GpuError> {
        let is_between = |character: char| matches!(character, ';' | ',') || character.is_ascii_whitespace();
        let mut codes = BTreeSet::new();
        for part in text.split(is_between).filter(|part| !part.is_empty()) {
            match part.strip_suffix("+PTX") {
                Some(arch) => match cuda::read(arch) {
                    Ok((arch, Spelling::Bare | Spelling::Sass)) => {
                        codes.extend([Self::Sass(arch), Self::Ptx(arch, None)]);
                    }
                    Err(ambiguous @ GpuError::Ambiguous { .. }) => return Err(ambiguous),
                    _ => return Err(GpuError::GpuCode { text: crate::tree::shown(part) }),
                },
                None => {
                    codes.insert(part.parse()?);
                }
            }
        }
        Ok(codes)
    }
}

impl FromStr for GpuCode {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("gfx") {
            return text.parse().map(Self::Gfx);
        }
        let wrong = || GpuError::GpuCode { text: crate::tree::shown(text) };
        let (arch, toolkit) = match text.split_once('@') {
            Some((arch, toolkit)) => (arch, Some(toolkit.parse::<ToolkitVersion>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        match (cuda::read(arch), toolkit) {
            (Ok((arch, Spelling::Ptx)), toolkit) => Ok(Self::Ptx(arch, toolkit)),
            (Ok((arch, _)), None) => Ok(Self::Sass(arch)),
            (Err(ambiguous @ GpuError::Ambiguous { .. }), _) => Err(ambiguous),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for GpuCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sass(arch) => write!(f, "{arch}"),
            Self::Ptx(arch, toolkit) => {
                write!(f, "compute_{}{}", arch.capability.number(), arch.specificity)?;
                toolkit.map_or(Ok(()), |toolkit| write!(f, "@{toolkit}"))
            }
            Self::Gfx(target) => write!(f, "{target}"),
        }
    }
}

written_as_text!(GpuCode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_as_it_is_written() {
        for text in ["sm_61", "sm_90a", "sm_100f", "compute_90", "compute_90a@12.8", "gfx90a:sramecc+:xnack-"] {
            let code: GpuCode = text.parse().unwrap();
            assert_eq!(code.to_string(), text);
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<GpuCode>(&format!("\"{text}\"")).unwrap(), code);
        }
        let arch: CudaArch = "9.0".parse().unwrap();
        assert_eq!("9.0".parse(), Ok(GpuCode::Sass(arch)), "a bare capability is SASS");
        assert_eq!("compute_90".parse(), Ok(GpuCode::Ptx(arch, None)));
    }

    #[test]
    fn a_list_has_both_kinds_of_code_where_it_says_so() {
        let texts = |list: &str| GpuCode::list(list).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("6.1;8.0+PTX"), ["sm_61", "sm_80", "compute_80"]);
        assert_eq!(texts("12.0, 61 sm_90a\n"), ["sm_61", "sm_90a", "sm_120"]);
        assert_eq!(texts("gfx90a;gfx1100"), ["gfx90a", "gfx1100"]);
        assert!(texts("").is_empty());
    }

    #[test]
    fn what_is_no_code_is_an_error_that_says_how_to_write_it() {
        for text in ["six", "8.0+PTX", "8.0@12.8", "compute_80@", "compute_80@12", "@12.8", "compute_8.0", "ptx_80"] {
            let error = text.parse::<GpuCode>().unwrap_err().to_string();
            assert!(error.contains("in a list `8.0+PTX`"), "{text}: {error}");
        }
        for list in ["6.1;six", "8.0+ptx", "compute_80+PTX", "+PTX", "gfx90a+PTX"] {
            assert!(GpuCode::list(list).is_err(), "{list}");
        }
    }
}
