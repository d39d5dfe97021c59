//! What NVIDIA's own library (NVML) says; opened at run time, so that a host without it is no failure.
//!
//! It is opened in a process of its own, which says in JSON what it heard: see [`ask`] and [`read`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use torchlift_schema::gpu::{Capability, ToolkitVersion};
use torchlift_schema::host::{Gpu, Mig, MigDevice, Vendor};

use super::program::{self, ProgramError, Said};
use super::{ASK_NVML, ASK_NVML_USERS, CardUser, Question, driver_version, pci_address};
use crate::preflight::loader;

/// The name by which programs load it.
pub(super) const NAME: &str = "libnvidia-ml.so.1";
/// Where systems keep it that are not in the loader's search: the Windows subsystem, NixOS.
const ELSEWHERE: [&str; 2] = ["/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[error("{0}")]
    Refused(Refusal),
    #[error("NVIDIA's library gave no answer within {} s", .patience.as_secs())]
    Slow { patience: Duration },
    #[error("NVIDIA's library ended the process that asked it ({status}) and said nothing")]
    Ended { status: ExitStatus },
    #[error("NVIDIA's library was not asked: this program cannot start itself for that")]
    NotAsked {
        #[source]
        source: ProgramError,
    },
}

/// What it said instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    NotLoaded,
    Mismatch,
    NoPermission,
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded => out.write_str("the kernel's part of NVIDIA's driver is not loaded"),
            Self::Mismatch => {
                out.write_str("NVIDIA's library and the kernel's part of its driver are of different versions")
            }
            Self::NoPermission => out.write_str("this user may not use NVIDIA's driver"),
            Self::Failed(words) => write!(out, "NVIDIA's library failed: {words}"),
        }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        match code {
            Code::DriverNotLoaded => Self::NotLoaded,
            Code::LibRmVersionMismatch => Self::Mismatch,
            Code::NoPermission | Code::OperatingSystem => Self::NoPermission,
            code => Self::Failed(code.to_string()),
        }
    }
}

/// The library's file, as the loader would find it.
pub(super) fn file(question: &Question<'_>) -> Option<PathBuf> {
    let found = loader::locate(NAME, question.arch, question.library_path, question.cwd, question.libraries);
    let elsewhere = || ELSEWHERE.iter().map(|folder| Path::new(folder).join(NAME)).find(|file| file.is_file());
    found.ok().map(|found| found.path).or_else(elsewhere)
}

/// Asks the library in `file`, through `asker`.
pub(super) fn read(asker: &Path, file: &Path, patience: Duration) -> Result<Answer, NvmlError> {
    said(asker, ASK_NVML, file, patience)
}

/// Asks it who uses which card.
pub(super) fn read_users(asker: &Path, file: &Path, patience: Duration) -> Result<Vec<CardUser>, NvmlError> {
    said(asker, ASK_NVML_USERS, file, patience)
}

fn said<T: DeserializeOwned>(asker: &Path, what: &str, file: &Path, patience: Duration) -> Result<T, NvmlError> {
    let mut command = Command::new(asker);
    command.arg(what).arg(file);
    let Said { status, output } = program::ask(command, patience).map_err(|source| match source {
        ProgramError::Slow { patience } => NvmlError::Slow { patience },
        source => NvmlError::NotAsked { source },
    })?;
    match serde_json::from_slice::<Result<T, Refusal>>(&output) {
        // One that crashes at its end has answered all the same.
        Ok(reply) => reply.map_err(NvmlError::Refused),
        Err(_) => Err(NvmlError::Ended { status }),
    }
}

/// The answer of the library in `file`, as JSON: what the process says that [`read`] starts.
pub(super) fn ask(file: &Path) -> String {
    let reply = answer(file);
    serde_json::to_string(&reply).unwrap_or_default()
}

/// The same for [`read_users`].
pub(super) fn ask_users(file: &Path) -> String {
    serde_json::to_string(&users(file)).unwrap_or_default()
}

fn users(file: &Path) -> Result<Vec<CardUser>, Refusal> {
    let nvml = Nvml::builder().lib_path(file.as_os_str()).init()?;
    let cards = (0..nvml.device_count()?).filter_map(|index| nvml.device_by_index(index).ok());
    let mut users = Vec::new();
    for card in cards {
        // Of a divided card each part has its own.
        let places = 0..card.mig_device_count().unwrap_or_default();
        for part in places.filter_map(|place| card.mig_device_by_index(place).ok()) {
            users.extend(users_of(&part));
        }
        users.extend(users_of(&card));
    }
    Ok(users)
}

/// The processes that have a context on a card, or a part of one; none where it does not say so.
fn users_of(device: &Device<'_>) -> Vec<CardUser> {
    let Ok(card) = device.uuid() else { return Vec::new() };
    let processes = device.running_compute_processes().unwrap_or_default().into_iter();
    let user = |process: ProcessInfo| CardUser {
        card: card.clone(),
        pid: process.pid,
        memory: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    processes.map(user).collect()
}

fn answer(file: &Path) -> Result<Answer, Refusal> {
    let nvml = Nvml::builder().lib_path(file.as_os_str()).init()?;
    let mut answer = Answer {
        driver: nvml.sys_driver_version().ok().as_deref().and_then(driver_version),
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
