//! The environment of a rank, layer by layer.
//!
//! Pure. The order is the design's: the allocator's own environment less cargo's, rustup's and ours; what is passed on;
//! the job's; the host's; the library path; the cards; last the variables that say which rank it is.
//! `MASTER_PORT` and what depends on the attempt come later, in [`super::LaunchPlan::late_variables`].

#[cfg(feature = "net")]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use torchlift_schema::{Finding, Place};

use super::devices;
use super::request::{Device, HostRequest, RunRequest};
use super::{EnvValue, Environment};
use crate::env_vars::{self, CUDA_DEVICE_ORDER};

const PCI_ORDER: &str = "PCI_BUS_ID";

/// Which rank an environment is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coordinates {
    pub(super) rank: u32,
    pub(super) local_rank: u32,
    pub(super) local_world_size: u32,
    pub(super) world_size: u32,
    pub(super) host_index: usize,
    pub(super) host_count: usize,
}

/// Findings about the variables that are the same for all hosts: the job's own, and those passed on.
pub(super) fn check_job(request: &RunRequest, findings: &mut Vec<Finding>) {
    for (name, value) in &request.job_env {
        check_variable(name, Some(value), &Place::default().key(format!("env.{name}")), findings);
    }
    for name in &request.env_pass {
        let place = Place::default().key("env_pass");
        let before = findings.len();
        check_variable(name, None, &place, findings);
        if findings.len() == before && !request.base_env.contains_key(OsStr::new(name)) {
            findings.push(
                Finding::warning("env-pass-unset", place, format!("`{name}` is not set here, so no rank gets it"))
                    .remedy(format!("set `{name}` before the start, or take it out of `env_pass`")),
            );
        }
    }
}

/// What all ranks of a host share, with the cards that they may see.
#[derive(Debug)]
pub(super) struct HostEnvironment {
    shared: Environment,
    visible: Option<Vec<String>>,
    visible_name: &'static str,
}

impl HostEnvironment {
    /// Lays the layers of a host over each other. `cwd` is the folder that its ranks run in.
    pub(super) fn new(request: &RunRequest, host: &HostRequest, cwd: &Path, findings: &mut Vec<Finding>) -> Self {
        for (name, value) in &host.env {
            let place = Place::host(&host.name).key(format!("env.{name}"));
            check_variable(name, Some(value), &place, findings);
        }
        let open = |value: &OsStr| EnvValue { value: value.to_owned(), is_secret: false };
        let mut shared: Environment = request
            .base_env
            .iter()
            .filter(|(name, _)| is_inherited(name))
            .map(|(name, value)| (name.clone(), open(value)))
            .collect();
        for name in &request.env_pass {
            if let Some(value) = request.base_env.get(OsStr::new(name)) {
                shared.insert(name.into(), EnvValue { value: value.clone(), is_secret: true });
            }
        }
        for (name, value) in request.job_env.iter().chain(&host.env) {
            shared.insert(name.into(), open(value.as_ref()));
        }
        shared.insert("PWD".into(), open(cwd.as_os_str()));

        let ours = host.program.per_host().map(|envelope| envelope.ld_library_path).unwrap_or_default();
        let key = OsStr::new(env_vars::LD_LIBRARY_PATH);
        let (theirs, is_secret) =
            shared.remove(key).map_or_else(Default::default, |entry| (entry.value, entry.is_secret));
        let joined = library_path(ours.as_bytes(), theirs.as_bytes());
        if !joined.is_empty() {
            shared.insert(key.to_owned(), EnvValue { value: joined, is_secret });
        }

        if host.slots > 1 {
            // As torchrun does: a thread per core in each of several ranks is slower than one thread each.
            shared.entry("OMP_NUM_THREADS".into()).or_insert_with(|| open("1".as_ref()));
        }
        // The library's own default differs from torchrun's; what the caller set holds.
        shared.entry("TORCH_NCCL_ASYNC_ERROR_HANDLING".into()).or_insert_with(|| open("1".as_ref()));

        let visible_name = devices::variable(host.program.accelerator());
        let inherited = shared.get(OsStr::new(visible_name)).map(|entry| entry.value.to_string_lossy().into_owned());
        let visible = devices::visible(host, inherited.as_deref(), findings);
        check_device_order(request, host, findings);
        shared.insert(CUDA_DEVICE_ORDER.into(), open(PCI_ORDER.as_ref()));
        if let (Some(visible), false) = (&visible, host.devices.is_empty()) {
            shared.insert(visible_name.into(), open(visible.join(",").as_ref()));
        }
        if let (Some(visible), true) = (&visible, request.one_gpu_per_rank)
            && visible.len() < host.slots as usize
        {
            findings.push(
                Finding::error(
                    "too-few-devices",
                    Place::host(&host.name).key("slots"),
                    format!("one card a rank makes {}, and {} can be seen", host.slots, visible.len()),
                )
                .remedy("lower `slots`, or leave `--one-gpu-per-rank` out"),
            );
        }
        Self { shared, visible, visible_name }
    }

    /// The variables that all ranks of the host have alike; what each of them gets of its own is not in it.
    pub(super) fn without(self, names: &BTreeSet<&OsStr>) -> Environment {
        let mut shared = self.shared;
        shared.retain(|name, _| !names.contains(name.as_os_str()));
        shared
    }

    /// The variables that one rank of the host has of its own: the same names for each.
    pub(super) fn rank(&self, request: &RunRequest, host: &HostRequest, at: Coordinates, master: &str) -> Environment {
        let mut env = Environment::new();
        let mut set = |name: &str, value: OsString| {
            env.insert(name.into(), EnvValue { value, is_secret: false });
        };
        let mut local_rank = at.local_rank;
        if request.one_gpu_per_rank {
            let own = match &self.visible {
                // Too short a list is already a finding.
                Some(visible) => visible.get(at.local_rank as usize).cloned().unwrap_or_default(),
                None => at.local_rank.to_string(),
            };
            set(self.visible_name, own.into());
            local_rank = 0;
        }
        for (name, number) in [
            ("LOCAL_RANK", u64::from(local_rank)),
            ("RANK", at.rank.into()),
            ("GROUP_RANK", at.host_index as u64),
            ("ROLE_RANK", at.rank.into()),
            ("LOCAL_WORLD_SIZE", at.local_world_size.into()),
            ("WORLD_SIZE", at.world_size.into()),
            ("GROUP_WORLD_SIZE", at.host_count as u64),
            ("ROLE_WORLD_SIZE", at.world_size.into()),
            ("TORCHELASTIC_MAX_RESTARTS", request.max_restarts.into()),
        ] {
            set(name, number.to_string().into());
        }
        set("ROLE_NAME", "default".into());
        set("MASTER_ADDR", master.into());
        set("TORCHELASTIC_RUN_ID", (&request.run_id).into());
        // With `True` a rank expects an agent to serve the store, which nobody does: it would hang.
        set("TORCHELASTIC_USE_AGENT_STORE", "False".into());
        set(env_vars::TORCHLIFT_RUN_ID, (&request.run_id).into());
        set(env_vars::TORCHLIFT_RUN_DIR, request.runs_dir.join(&request.run_id).into());
        set(env_vars::TORCHLIFT_HOST, (&host.name).into());
        env
    }
}

/// Whether a variable of the caller is for ranks too.
///
/// `CARGO*` and `RUST*` say how something was built, `_` and `OLDPWD` what the caller's shell did last:
/// with them a rank's environment would depend on which tool launched it.
fn is_inherited(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let is_foreign = ["CARGO", "RUST", env_vars::TORCHLIFT_INTERNAL_PREFIX]
        .iter()
        .any(|prefix| bytes.starts_with(prefix.as_bytes()));
    !is_foreign && name != "_" && name != "OLDPWD"
}

/// What of the caller's environment is for ranks too.
#[cfg(feature = "net")]
pub(crate) fn inherited(env: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
    let own = env.iter().filter(|(name, _)| is_inherited(name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// `ours` before `theirs` without an empty element: the loader would search the working directory for it.
///
/// The loader splits at `;` as well as at `:`.
fn library_path(ours: &[u8], theirs: &[u8]) -> OsString {
    let elements: Vec<&[u8]> = [ours, theirs]
        .into_iter()
        .flat_map(|list| list.split(|byte| matches!(byte, b':' | b';')))
        .filter(|element| !element.is_empty())
        .collect();
    OsString::from_vec(elements.join(&b':'))
}

fn check_variable(name: &str, value: Option<&str>, place: &Place, findings: &mut Vec<Finding>) {
    // A variable that torchrun itself takes over from outside may be passed on, but not written down.
    let is_passed = value.is_none() && name == "TORCH_NCCL_ASYNC_ERROR_HANDLING";
    if !env_vars::is_name(name) {
        findings.push(
            Finding::error("env-name", place.clone(), format!("`{}` is no name of a variable", name.escape_debug()))
                .remedy(env_vars::NAME_REMEDY),
        );
    } else if env_vars::is_rank_variable(name) && !is_passed {
        findings.push(
            Finding::error(
                "env-rank-variable",
                place.clone(),
                format!("`{name}` is set by the launcher for each rank"),
            )
            .remedy("take it out, and use a name of your own"),
        );
    }
    if value.is_some_and(|value| value.contains('\0')) {
        findings.push(
            Finding::error("env-value", place.clone(), format!("the value of `{name}` has a NUL byte"))
                .remedy("take it out: no environment can hold it"),
        );
    }
}

/// An index of `devices` counts in PCI order, so another order in a file would mean other cards.
fn check_device_order(request: &RunRequest, host: &HostRequest, findings: &mut Vec<Finding>) {
    let is_by_index = host.devices.iter().any(|device| matches!(device, Device::Index(_)));
    let other = host.env.get(CUDA_DEVICE_ORDER).or_else(|| request.job_env.get(CUDA_DEVICE_ORDER));
    if let Some(other) = other.filter(|order| order.as_str() != PCI_ORDER && is_by_index) {
        findings.push(
            Finding::error(
                "device-order",
                Place::host(&host.name).key(format!("env.{CUDA_DEVICE_ORDER}")),
                format!("`{other}` contradicts `devices`, whose indices count in PCI order"),
            )
            .remedy(format!("take `{CUDA_DEVICE_ORDER}` out, or name the cards by UUID")),
        );
    }
}
