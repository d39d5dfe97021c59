//! What NVIDIA's own library (NVML) says; opened at run time, so that a host without it is no failure.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use torchlift_schema::gpu::{Capability, ToolkitVersion};
use torchlift_schema::host::{Gpu, Mig, MigDevice, Vendor};

use super::{Question, pci_address};
use crate::preflight::loader;

/// The name by which programs load it.
pub(super) const NAME: &str = "libnvidia-ml.so.1";
/// Where systems keep it that are not in the loader's search: the Windows subsystem, NixOS.
const ELSEWHERE: [&str; 2] = ["/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<ToolkitVersion>,
    pub(super) cards: Vec<Gpu>,
    /// Cards that cannot be asked, each with why.
    pub(super) lost: Vec<String>,
}

/// Why it said nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum NvmlError {
    #[error("`{NAME}` is in no folder of the loader")]
    NotThere,
    #[error("the kernel's part of NVIDIA's driver is not loaded")]
    NotLoaded,
    #[error("NVIDIA's library and the kernel's part of its driver are of different versions")]
    Mismatch,
    #[error("this user may not use NVIDIA's driver")]
    NoPermission,
    #[error("NVIDIA's library gave no answer within {} s", .patience.as_secs())]
    Slow { patience: Duration },
    #[error("NVIDIA's library failed")]
    Failed {
        #[source]
        source: Code,
    },
}

impl From<Code> for NvmlError {
    fn from(source: Code) -> Self {
        match source {
            Code::DriverNotLoaded => Self::NotLoaded,
            Code::LibRmVersionMismatch => Self::Mismatch,
            Code::NoPermission | Code::OperatingSystem => Self::NoPermission,
            source => Self::Failed { source },
        }
    }
}

/// The library's file, as the loader would find it.
pub(super) fn file(question: &Question<'_>) -> Option<PathBuf> {
    let found = loader::locate(NAME, question.arch, question.library_path, question.cwd, question.libraries);
    let elsewhere = || ELSEWHERE.iter().map(|folder| Path::new(folder).join(NAME)).find(|file| file.is_file());
    found.ok().map(|found| found.path).or_else(elsewhere)
}

/// Asks the library in `file`.
///
/// A driver that hangs keeps who asks it, and cannot be interrupted: another thread asks, and is left behind.
pub(super) fn read(file: &Path, patience: Duration) -> Result<Answer, NvmlError> {
    let (sender, receiver) = mpsc::channel();
    let file = file.to_owned();
    std::thread::spawn(move || {
        // Whoever waited may have gone.
        let _ = sender.send(ask(&file));
    });
    receiver.recv_timeout(patience).unwrap_or(Err(NvmlError::Slow { patience }))
}

fn ask(file: &Path) -> Result<Answer, NvmlError> {
    let nvml = Nvml::builder().lib_path(file.as_os_str()).init()?;
    let mut answer = Answer {
        driver: nvml.sys_driver_version().ok().filter(|version| !version.is_empty()),
        cuda: nvml.sys_cuda_driver_version().ok().and_then(|version| {
            let major = u16::try_from(cuda_driver_version_major(version)).ok().filter(|major| *major > 0)?;
            Some(ToolkitVersion::new(major, u16::try_from(cuda_driver_version_minor(version)).ok()?))
        }),
        ..Answer::default()
    };
    for index in 0..nvml.device_count()? {
        match nvml.device_by_index(index) {
            Ok(device) => answer.cards.push(card(index, &device, file)),
            Err(error) => answer.lost.push(format!("card {index} of NVIDIA's library cannot be asked: {error}")),
        }
    }
    Ok(answer)
}

fn card(index: u32, device: &Device<'_>, file: &Path) -> Gpu {
    let mut card = Gpu::new(Vendor::Nvidia, index);
    card.name = device.name().ok().filter(|name| !name.is_empty());
    card.uuid = device.uuid().ok().filter(|uuid| !uuid.is_empty());
    card.pci = device.pci_info().ok().and_then(|info| pci_address(&info.bus_id));
    card.memory = memory(device);
    card.capability = device
        .cuda_compute_capability()
        .ok()
        .and_then(|capability| Capability::try_from(format!("{}.{}", capability.major, capability.minor)).ok());
    card.mig = device.mig_mode().ok().map(|mode| {
        let is_divided = mode.current == 1;
        Mig::new(is_divided, if is_divided { parts(device) } else { Vec::new() })
    });
    card.from.push(file.display().to_string());
    card
}

fn memory(device: &Device<'_>) -> Option<u64> {
    // A Tegra has none of its own, and older libraries do not know this call.
    device.memory_info().ok().map(|memory| memory.total).filter(|total| *total > 0)
}

/// The parts of a divided card: it says how many there may be, not which there are.
fn parts(device: &Device<'_>) -> Vec<MigDevice> {
    let places = 0..device.mig_device_count().unwrap_or_default();
    let there = places.filter_map(|place| device.mig_device_by_index(place).ok());
    there
        .filter_map(|part| {
            let name = part.name().ok().filter(|name| !name.is_empty());
            // `NVIDIA A100-SXM4-40GB MIG 1g.5gb`: the profile is its last word.
            let profile =
                name.as_deref().and_then(|name| name.rsplit_once("MIG ")).map(|(_, profile)| profile.to_owned());
            Some(MigDevice::new(part.uuid().ok()?, profile.or(name), memory(&part)))
        })
        .collect()
}
