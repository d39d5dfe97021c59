//! Why a fetch failed, and what to do about it.

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;

use crate::error::CommandError;
use crate::libtorch::InspectError;
use crate::libtorch::archive::{ArchiveError, is_full_disk};
use crate::libtorch::event::human_size;
use crate::libtorch::stage::StageError;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Every way was tried.
    #[error("libtorch {} for Linux on {} could not be fetched", .0.version, .0.cpu_arch)]
    NoWay(Box<NoWay>),
    /// One way failed; becomes part of [`Self::NoWay`].
    #[error("{0}")]
    Way(String),
    /// A disk has too little room, found before anything was written.
    #[error("no room in `{folder}`: {} are needed, and it has {} free", human_size(*needed), human_size(*available))]
    Space {
        /// The folder on that disk.
        folder: Utf8PathBuf,
        /// Bytes.
        needed: u64,
        /// Bytes.
        available: u64,
    },
    /// A disk became full meanwhile; nothing of the variant is left.
    #[error("the disk of `{folder}` became full")]
    Full {
        /// The folder on that disk.
        folder: Utf8PathBuf,
        /// Why.
        #[source]
        source: ArchiveError,
    },
    /// An archive is refused.
    #[error("an archive of libtorch is refused")]
    Archive(#[from] ArchiveError),
    /// A library is needed that no archive has.
    #[error("`{library}` is needed, and no wheel that torch's metadata names has it")]
    MissingLibrary {
        /// The library's file name.
        library: String,
    },
    /// What came is not what was asked for.
    #[error("what was fetched is {found}, and {wanted} was asked for")]
    Other {
        /// What it is.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// The store does not take it, or cannot be used.
    #[error("the store does not take it")]
    Stage(#[from] StageError),
    /// What was unpacked, or lies in the store, cannot be read as a libtorch.
    #[error("a variant in the store cannot be used")]
    Inspect(#[from] InspectError),
    /// A folder of Torchlift's own cannot be used.
    #[error("`{folder}` cannot be used")]
    Store {
        /// The folder.
        folder: Utf8PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Every way was tried: what was wanted, and where a person may put it.
#[derive(Debug)]
pub struct NoWay {
    /// The version.
    pub version: String,
    /// As in a target triple.
    pub cpu_arch: String,
    /// What each way said.
    pub tried: Vec<String>,
    /// Where a variant may be put by hand.
    pub store: Utf8PathBuf,
    /// Where an archive may be put by hand.
    pub downloads: Utf8PathBuf,
}

/// What each way said, as one cause.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
struct Tried(Vec<String>);

impl NoWay {
    fn hint(&self) -> String {
        let Self { version, cpu_arch, store, downloads, .. } = self;
        format!(
            "provide libtorch {version} in one of these ways:\n  \
             - give an unpacked one with `--libtorch DIR` or the variable `LIBTORCH`\n  \
             - unpack one at `{store}/precompiled/<name>`, so that `lib` and `include` lie in it\n  \
             - install it for a `python3` on `PATH`: `python3 -m pip install torch=={version}`\n  \
             - put a wheel `torch-{version}-…-manylinux_…_{cpu_arch}.whl`, and the `nvidia_cuda_runtime` and \
             `nvidia_cuda_cupti` wheels that it names, into `{downloads}`, and fetch again\n  \
             - make `python3 -m pip` able to reach a package index (`pip config`, `https_proxy`), and fetch again"
        )
    }
}

impl FetchError {
    /// The same, with a full disk told as such.
    pub(super) fn on_disk(self, folder: &Utf8Path) -> Self {
        match self {
            Self::Archive(source) if source.is_full_disk() => Self::Full { folder: folder.to_owned(), source },
            other => other,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoWay(no_way) => Some(no_way.hint()),
            Self::Space { .. } | Self::Full { .. } => Some(
                "make room there, or name another place with `TORCHLIFT_HOME` (variants) or `TORCHLIFT_CACHE` (downloads)"
                    .to_owned(),
            ),
            Self::Archive(error) if error.is_damage() => {
                Some("the damaged download was thrown away: fetch again".to_owned())
            }
            Self::Archive(error) => error.hint(),
            Self::Inspect(InspectError::NotLibtorch { root, .. } | InspectError::NoVersion { root }) => {
                Some(format!("delete `{root}`, and fetch again"))
            }
            Self::Inspect(InspectError::Library { file, .. }) => {
                Some(format!("delete the variant that `{file}` lies in, and fetch again"))
            }
            Self::Stage(error) => error.hint(),
            Self::MissingLibrary { .. } => Some("give a libtorch with `--libtorch DIR`".to_owned()),
            _ => None,
        }
    }
}

impl From<FetchError> for CommandError {
    fn from(error: FetchError) -> Self {
        let hint = error.hint();
        let message = error.to_string();
        let result = Self::new(exit_code::BUILD, message);
        let result = match error {
            FetchError::NoWay(no_way) => result.because(Tried(no_way.tried)),
            FetchError::Full { source, .. } | FetchError::Archive(source) => result.because(source),
            FetchError::Inspect(source) => result.because(source),
            FetchError::Stage(source) => result.because(source),
            FetchError::Store { source, .. } => {
                let is_full = is_full_disk(&source);
                let result = result.because(source);
                return if is_full { result.hint("make room there") } else { result };
            }
            _ => result,
        };
        match hint {
            Some(hint) => result.hint(hint),
            None => result,
        }
    }
}
