//! What the hosts of each kind have, as far as a libtorch is chosen and checked by it.
//!
//! `gpus` of a kind goes before everything: whoever writes it builds for cards that may not be there yet. Without it, and
//! without facts of a host, nothing is known, and nothing is claimed.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use torchlift::env_vars::HSA_OVERRIDE_GFX_VERSION;
use torchlift::preflight::fit::{Device, Isa};
use torchlift_schema::gpu::{CudaArch, GfxTarget};

use crate::cluster::{Cluster, Host, Job, Kind};
use crate::libtorch::auto::{Gpus, Machine};
use crate::toolchain::Env;

/// The chosen hosts by the index of their kind.
pub(super) fn by_kind(
    cluster: &Cluster,
    job: &Job,
    hosts: &[&Host],
    env: &Env,
    prefers_cuda: bool,
) -> BTreeMap<usize, Vec<Machine>> {
    let mut machines: BTreeMap<usize, Vec<Machine>> = BTreeMap::new();
    for host in hosts {
        let Some(kind) = cluster.kinds.get(host.kind) else { continue };
        let machine =
            Machine { gfx_override: gfx_override(host, job, env), ..Machine::unknown(&host.name, prefers_cuda) };
        let machine = match stated(kind) {
            Some(devices) => Machine { gpus: Gpus::Known(devices), ..machine },
            None => machine,
        };
        machines.entry(host.kind).or_default().push(machine);
    }
    machines
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
