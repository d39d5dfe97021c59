//! What says which libtorch is meant: shared by the verbs that look for one.

use camino::Utf8PathBuf;

use super::Scene;
use crate::libtorch::find::has_cuda;
use crate::libtorch::{Extent, Wanted, wanted};
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
    /// The version, and how it is known.
    pub(super) fn version(&self, scene: &Scene<'_>) -> Wanted {
        if let Some(version) = &self.torch {
            return Wanted { version: version.clone(), origin: "given with `--torch`".to_owned() };
        }
        scene
            .manifest(self.manifest_path.as_deref())
            .and_then(|manifest| wanted::of_workspace(&cargo_program(scene.context), &manifest, &scene.env))
            .unwrap_or_else(wanted::newest_known)
    }

    /// How much of it.
    pub(super) fn extent(&self) -> Extent {
        // What this machine has says nothing about a machine with another CPU.
        let is_here = self.arch == std::env::consts::ARCH;
        if self.gpu || (!self.cpu && is_here && has_cuda()) { Extent::Whole } else { Extent::Cpu }
    }
}

fn parse_version(text: &str) -> Result<String, String> {
    let is_version = text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    is_version.then(|| text.to_owned()).ok_or_else(|| "a torch version is three numbers, such as `2.9.0`".to_owned())
}
