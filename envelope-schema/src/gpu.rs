//! GPUs and the code that is made for them: capabilities, CUDA architectures, AMD targets, toolkit versions.
//!
//! Owns how these are written and read. Each type has one canonical text, which is its `Display` and its JSON; `FromStr`
//! reads the other ways too that people and tools write it. Must not say what runs where: that is the launcher's `fit`.

mod code;
mod cuda;
mod gfx;
mod toolkit;

pub use code::GpuCode;
pub use cuda::{Capability, CudaArch, Specificity};
pub use gfx::{GfxProcessor, GfxTarget, Switch};
pub use toolkit::ToolkitVersion;

/// A text that names no GPU, architecture or toolkit. Texts are escaped and cut short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No compute capability.
    #[error("`{text}` is no compute capability, which is written `8.6`, `86` or `sm_86`")]
    Capability {
        /// What was given.
        text: String,
    },
    /// No architecture that CUDA compiles for.
    #[error("`{text}` is no CUDA architecture, which is written `8.6`, `sm_86`, `compute_86` or `sm_90a`")]
    CudaArch {
        /// What was given.
        text: String,
    },
    /// Two digits that are read in one way and are mostly meant in another.
    #[error("`{text}` may stand for {} or for {text}.0: write the dot", split(.text))]
    Ambiguous {
        /// What was given: two digits.
        text: String,
    },
    /// No processor of AMD.
    #[error("`{text}` is no AMD target, which is written `gfx90a`, `gfx90a:sramecc+:xnack-` or `gfx11-generic`")]
    GfxTarget {
        /// What was given.
        text: String,
    },
    /// No version of a toolkit.
    #[error("`{text}` is no toolkit version, which is written `12.8`")]
    ToolkitVersion {
        /// What was given.
        text: String,
    },
    /// No code for a GPU.
    #[error(
        "`{text}` is no GPU code, which is written `8.6`, `sm_90a`, `compute_90` for PTX, `gfx90a`, or in a list `8.0+PTX`"
    )]
    GpuCode {
        /// What was given.
        text: String,
    },
    /// Right, and not the one way in which files of this project write it.
    #[error("`{text}` has to be written `{canonical}` here")]
    NotCanonical {
        /// What was given.
        text: String,
        /// How it is written.
        canonical: String,
    },
}

/// `12` as `1.2`.
fn split(text: &str) -> String {
    match text.split_at_checked(1) {
        Some((major, minor)) => format!("{major}.{minor}"),
        None => text.to_owned(),
    }
}

/// JSON of a type that has a canonical text: that text, and no other way to write it.
macro_rules! written_as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = crate::gpu::GpuError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                let value: Self = text.parse()?;
                let canonical = value.to_string();
                if canonical == text {
                    return Ok(value);
                }
                Err(crate::gpu::GpuError::NotCanonical { text: crate::tree::shown(&text), canonical })
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}
use written_as_text;
