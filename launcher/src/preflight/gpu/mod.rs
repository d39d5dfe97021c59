//! Which cards are here, and which driver serves them?
//!
//! Purpose: NVIDIA's cards by its own library (`nvml`), and where that cannot be used or leaves something open by the
//! kernel's files (`kernel`) and its command (`smi`); those of a Tegra by the device tree (`tegra`); AMD's by the
//! kernel's files alone (`amd`). `merge` puts together what several sources say of one card.
//! Owns the difference between *no card* and *a card that cannot be used*: the second is a problem, always.
//! Starts no process but `nvidia-smi` and the one that opens NVIDIA's library, both with limits (`program`). Must not print,
//! or read the environment.

mod amd;
mod compat;
mod identity;
mod kernel;
mod merge;
mod nvml;
mod pci;
mod program;
mod smi;
mod tegra;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchlift_schema::Finding;
use torchlift_schema::host::{AmdDriver, Gpu, NvidiaDriver};

use super::elf::Version;
use super::host::{Problems, Roots};
use super::loader::{HostLibraries, LibraryPath};

pub(crate) use kernel::cards as nvidia_cards;
pub(super) use pci::address as pci_address;

/// What may be asked beside the kernel's files.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// NVIDIA's library: searched for as the loader does.
    pub nvml: Nvml<'a>,
    /// The program that opens it: one whose `main` begins with [`crate::commands::probe::enter`], so this one itself.
    pub asker: &'a Path,
    /// `nvidia-smi`, where it was found; it is started with a time limit when the library does not answer.
    pub nvidia_smi: Option<PathBuf>,
    /// How long each of the two may take.
    pub patience: Duration,
}

/// The argument that makes a program of ours open NVIDIA's library, whose file is the next one, and say what it answers.
pub(crate) const ASK_NVML: &str = "--internal-ask-nvml";

/// The same for who uses the cards.
pub(crate) const ASK_NVML_USERS: &str = "--internal-ask-nvml-users";

/// Whether NVIDIA's library is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nvml<'a> {
    /// The one that the loader finds.
    Search,
    /// This file.
    File(&'a Path),
    /// No: what is read are the files of another machine.
    Never,
}

/// What is asked.
#[derive(Debug)]
pub struct Question<'a> {
    /// Where the host's files are.
    pub roots: &'a Roots,
    /// CPU architecture as in a target triple.
    pub arch: &'a str,
    /// Where the host's libraries are.
    pub libraries: &'a HostLibraries,
    /// LD_LIBRARY_PATH of the environment that is asked about.
    pub library_path: &'a LibraryPath,
    /// The working directory, for relative elements of it.
    pub cwd: &'a Path,
    /// What may be asked beside the kernel's files.
    pub sources: &'a Sources<'a>,
    /// The machine's memory, which a Tegra's card shares.
    pub memory: Option<u64>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Cards {
    /// The NVIDIA driver.
    pub nvidia: Option<NvidiaDriver>,
    /// The AMD driver.
    pub amd: Option<AmdDriver>,
    /// NVIDIA's cards, then AMD's, each by index.
    pub gpus: Vec<Gpu>,
    /// What is broken or could not be read.
    pub problems: Vec<Finding>,
}

/// A process that uses a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardUser {
    /// The card's UUID, or that of a part of it.
    pub card: String,
    /// The process's id, in the machine's own numbers: in a container they may be others.
    pub pid: u32,
    /// What it holds of the card's memory, in bytes.
    pub memory: Option<u64>,
}

/// Who uses the NVIDIA cards of this host at this moment; nobody where their library does not say so. AMD's are not asked.
pub fn users(question: &Question<'_>) -> Vec<CardUser> {
    let Sources { asker, patience, nvml, .. } = question.sources;
    let file = match nvml {
        Nvml::Search => nvml::file(question),
        Nvml::File(file) => Some((*file).to_owned()),
        Nvml::Never => None,
    };
    // What is wrong with a driver is told by whoever asks for the cards.
    file.and_then(|file| nvml::read_users(asker, &file, *patience).ok()).unwrap_or_default()
}

/// Reads the cards of a host.
pub fn read(question: &Question<'_>) -> Cards {
    let mut problems = Problems::default();
    let (nvidia, mut gpus) = merge::nvidia(question, &mut problems);
    let (amd, amd_cards) = amd::read(question.roots, &mut problems);
    pci::without_driver(question.roots, nvidia.is_some(), amd::is_loaded(question.roots), &mut problems);
    gpus.extend(amd_cards);
    identity::keep_apart(&mut gpus);
    Cards { nvidia, amd, gpus, problems: problems.list }
}

/// Opens NVIDIA's library in this process, which that may end, and gives its answer in the form that [`read`] takes.
pub(crate) fn ask_nvml(file: &Path) -> String {
    nvml::ask(file)
}

/// The same for [`users`].
pub(crate) fn ask_nvml_users(file: &Path) -> String {
    nvml::ask_users(file)
}

/// The version of an NVIDIA driver, such as `550.54.14`; none for any other text.
fn driver_version(text: &str) -> Option<String> {
    (text.contains('.') && text.parse::<Version>().is_ok()).then(|| text.to_owned())
}
