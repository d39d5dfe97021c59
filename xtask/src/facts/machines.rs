//! What the hosts of each kind have, as far as a libtorch is chosen and checked by it.
//!
//! `gpus` of a kind goes before everything: whoever writes it builds for cards that may not be there yet. Without it, and
//! without facts of a host, nothing is known, and nothing is claimed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

use torchlift::env_vars::HSA_OVERRIDE_GFX_VERSION;
use torchlift::preflight::code;
use torchlift::preflight::fit::{Compat, Device, Driver, Isa};
use torchlift_schema::Finding;
use torchlift_schema::gpu::{CudaArch, GfxTarget};
use torchlift_schema::host::{Gpu, LibcFlavour, NvidiaDriver, Vendor};

use super::hosts::{KnownHost, KnownHosts};
use crate::cluster::{Cluster, Host, Job, Kind};
use crate::libtorch::Variant;
use crate::libtorch::auto::{Candidate, Gpus, Libc, Machine};
use crate::toolchain::Env;

/// A host and the libtorch that it gets, as far as it is about GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGpus {
    /// The host, with its chosen cards.
    pub machine: Machine,
    /// The libtorch, with its GPU code, one for all hosts of a kind; none for a program without one.
    pub variant: Option<Arc<Candidate>>,
}

/// The chosen hosts by the index of their kind.
pub(super) fn by_kind(
    cluster: &Cluster,
    job: &Job,
    hosts: &[&Host],
    known: &KnownHosts,
    env: &Env,
) -> BTreeMap<usize, Vec<Machine>> {
    let mut machines: BTreeMap<usize, Vec<Machine>> = BTreeMap::new();
    for host in hosts {
        let Some(kind) = cluster.kinds.get(host.kind) else { continue };
        let machine = match known.get(&host.name) {
            Some(known) => of_facts(&host.name, known),
            // Of another machine than this one, that has no facts.
            None => Machine::unknown(&host.name, false),
        };
        let machine = Machine { gfx_override: gfx_override(host, job, env), ..machine };
        let machine = match stated(kind) {
            Some(devices) => Machine { gpus: Gpus::Known(devices), ..machine },
            None => machine,
        };
        machines.entry(host.kind).or_default().push(machine);
    }
    machines
}

/// The same by their names, each with the libtorch of its kind.
pub(super) fn with_variants(
    machines: BTreeMap<usize, Vec<Machine>>,
    variants: &BTreeMap<usize, Result<Variant, Finding>>,
) -> BTreeMap<String, HostGpus> {
    let of_kind = |(kind, machines): (usize, Vec<Machine>)| {
        let variant =
            variants.get(&kind).and_then(|variant| variant.as_ref().ok()).map(|variant| Arc::new(variant.candidate()));
        machines.into_iter().map(move |machine| {
            let variant = variant.clone();
            (machine.name.clone(), HostGpus { machine, variant })
        })
    };
    machines.into_iter().flat_map(of_kind).collect()
}

/// A host as its facts have it.
fn of_facts(name: &str, known: &KnownHost) -> Machine {
    let facts = &known.facts;
    let cards: Vec<&Gpu> = known.cards().collect();
    let devices: Vec<Device> = cards.iter().filter_map(|card| device(card)).collect();
    // A card that does not say what it is, and a driver that cannot be asked, may be anything.
    let is_unclear =
        devices.len() < cards.len() || (facts.gpus.is_empty() && facts.problems.iter().any(is_about_cards));
    let gpus = if is_unclear { Gpus::Unknown { prefers_cuda: facts.nvidia.is_some() } } else { Gpus::Known(devices) };
    let libc = facts.libc.as_ref().and_then(|libc| match libc.flavour {
        LibcFlavour::Glibc => libc.version.as_ref()?.parse().ok().map(Libc::Glibc),
        LibcFlavour::Musl => Some(Libc::Musl),
    });
    let driver = facts.nvidia.as_ref().and_then(driver);
    Machine { name: name.to_owned(), gpus, driver, gfx_override: None, libc }
}

/// Cards that have no driver are none that a program could use.
fn is_about_cards(problem: &Finding) -> bool {
    [code::GPU_DRIVER_BROKEN, code::GPU_UNREADABLE].contains(&problem.code.as_str())
}

fn device(card: &Gpu) -> Option<Device> {
    let isa = match card.vendor {
        Vendor::Nvidia => Isa::Cuda(card.capability?),
        Vendor::Amd => Isa::Gfx(card.gfx?),
    };
    Some(Device::found(card.index, card.name.as_deref(), card.uuid.as_deref(), isa))
}

/// What is known of a driver; none where it says neither its version nor the CUDA that it serves, as a Tegra's.
fn driver(facts: &NvidiaDriver) -> Option<Driver> {
    let compat = facts.compat.iter().filter_map(|compat| {
        Some(Compat {
            folder: compat.folder.clone(),
            version: compat.driver.parse().ok()?,
            is_loaded: compat.is_loaded,
        })
    });
    let driver = Driver {
        version: facts.version.as_ref().and_then(|version| version.parse().ok()),
        cuda: facts.cuda,
        compat: compat.collect(),
    };
    (driver.version.is_some() || driver.cuda.is_some()).then_some(driver)
}

/// The cards that `gpus` of a kind states.
fn stated(kind: &Kind) -> Option<Vec<Device>> {
    let devices: Vec<Device> = kind.gpus.iter().filter_map(|text| isa(text)).map(Device::stated).collect();
    (!devices.is_empty()).then_some(devices)
}

/// A card of `gpus`; code for one architecture alone (`9.0a`) is asked for, and the card is a 9.0.
fn isa(text: &str) -> Option<Isa> {
    match text.parse::<CudaArch>() {
        Ok(arch) => Some(Isa::Cuda(arch.capability)),
        Err(_) => text.parse::<GfxTarget>().ok().map(Isa::Gfx),
    }
}

/// The variable as the ranks of a host have it: the host's own before the job's before what is inherited.
fn gfx_override(host: &Host, job: &Job, env: &Env) -> Option<String> {
    let written = host.env.get(HSA_OVERRIDE_GFX_VERSION).or_else(|| job.env.get(HSA_OVERRIDE_GFX_VERSION)).cloned();
    written.or_else(|| env.get(OsStr::new(HSA_OVERRIDE_GFX_VERSION)).map(|value| value.to_string_lossy().into_owned()))
}
