//! What says which libtorch is meant: shared by the verbs that look for one.

use camino::Utf8PathBuf;

use torchlift_schema::exit_code;

use super::Scene;
use crate::error::CommandError;
use crate::libtorch::find::has_cuda;
use crate::libtorch::{Extent, Wanted, spec, wanted};
use crate::toolchain::cargo_program;

/// What says which libtorch is meant.
#[derive(Debug, clap::Args)]
pub(super) struct WantedArgs {
    /// Torch version [default: the one that the workspace's locked `torch-sys` pins]
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    torch: Option<String>,
    /// CPU architecture as in a target triple
    #[arg(long, visible_alias = "platform", value_name = "ARCH", value_parser = ["x86_64", "aarch64"], default_value = std::env::consts::ARCH)]
    pub(super) arch: String,
    /// For a CPU only, whatever this machine has
    #[arg(long, conflicts_with = "gpu")]
    cpu: bool,
    /// With all GPU libraries, whatever this machine has
    #[arg(long)]
    gpu: bool,
    /// The `Cargo.toml` of the program's workspace [default: found from the working directory upward]
    #[arg(long, value_name = "PATH")]
    pub(super) manifest_path: Option<Utf8PathBuf>,
}

impl WantedArgs {
    /// The version, and how it is known; `given` in another way than by `--torch`.
    pub(super) fn version(&self, given: Option<&str>, scene: &Scene<'_>) -> Result<Wanted, CommandError> {
        match (given, &self.torch) {
            (Some(given), Some(torch)) if given != torch => {
                let message = format!("`--torch {torch}`, and `{given}` was asked for");
                return Err(CommandError::new(exit_code::USAGE, message).hint("leave one of them out"));
            }
            (Some(version), _) => {
                return Ok(Wanted { version: version.to_owned(), origin: "as asked for".to_owned() });
            }
            (None, Some(version)) => {
                return Ok(Wanted { version: version.clone(), origin: "given with `--torch`".to_owned() });
            }
            (None, None) => {}
        }
        let pinned = scene
            .manifest(self.manifest_path.as_deref())
            .and_then(|manifest| wanted::of_workspace(&cargo_program(scene.context), &manifest, &scene.env));
        Ok(pinned.unwrap_or_else(wanted::newest_known))
    }

    /// How much of it.
    pub(super) fn extent(&self) -> Extent {
        // What this machine has says nothing about a machine with another CPU.
        let is_here = self.arch == std::env::consts::ARCH;
        if self.gpu || (!self.cpu && is_here && has_cuda()) { Extent::Whole } else { Extent::Cpu }
    }
}

pub(super) fn parse_version(text: &str) -> Result<String, String> {
    spec::is_version(text)
        .then(|| text.to_owned())
        .ok_or_else(|| "a torch version is three numbers, such as `2.9.0`".to_owned())
}
