//! From a cluster and its envelopes to a request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use torchlift::clock;
use torchlift::commands::run::RUNS_DIR;
use torchlift::plan::{Device, HostRequest, Program, RunRequest, run_id};
use torchlift_schema::{Artifact, Envelope, Finding, exit_code};

use super::LaunchArgs;
use crate::cluster::{self, Host, Slots};
use crate::commands::Context;
use crate::error::CommandError;
use crate::facts::{Facts, KnownHost};
use crate::plan::{BuildPlan, HostBuild};

/// The request for a run of the chosen hosts with these envelopes.
///
/// # Errors
/// With a finding for each host whose number of ranks cannot be told.
pub(crate) fn request(
    args: &LaunchArgs,
    facts: &Facts,
    mut envelopes: BTreeMap<String, Envelope>,
    context: &Context,
) -> Result<RunRequest, CommandError> {
    let mut findings = Vec::new();
    let mut hosts = Vec::new();
    for host in &facts.hosts {
        let Some(envelope) = envelopes.remove(&host.name) else { continue };
        let slots = slots(host, &envelope, facts.known_hosts.get(&host.name)).unwrap_or_else(|finding| {
            findings.push(*finding);
            1
        });
        hosts.push(HostRequest {
            name: host.name.clone(),
            path: host.path.clone().into(),
            program: Program::Envelope(Box::new(envelope)),
            slots,
            env: host.env.clone(),
            runner: facts.cluster.runner_of(host).to_vec(),
            devices: host.devices.iter().map(device).collect(),
        });
    }
    if !findings.is_empty() {
        let summary = format!("job `{}` cannot be launched; nothing was started", facts.job.name);
        return Err(CommandError::findings(exit_code::CLUSTER_FILE, summary, findings));
    }
    let mut job_env = facts.job.env.clone();
    job_env.extend(args.run.job_env());
    let mut env_pass = facts.job.env_pass.clone();
    env_pass.extend(args.run.env_pass.iter().filter(|name| !facts.job.env_pass.contains(name)).cloned());
    Ok(RunRequest {
        run_id: run_id(clock::wall(), std::process::id()),
        runs_dir: runs_dir(&args.run.runs, facts, context),
        hosts,
        args: args.args.clone(),
        job_env,
        env_pass,
        base_env: facts.env.clone(),
        require: require(facts, &args.run.require),
        grace: args.run.grace,
        master_port: args.run.master_port,
        one_gpu_per_rank: args.run.one_gpu_per_rank,
        max_restarts: 0,
    })
}

/// Paths of the cluster file as each host sees them, then those of the command line; each once.
fn require(facts: &Facts, of_command_line: &[String]) -> Vec<String> {
    let of_file = facts.job.require.iter().flat_map(|path| facts.hosts.iter().map(|host| path.on(host).into_string()));
    let mut all: Vec<String> = Vec::new();
    for path in of_file.chain(of_command_line.iter().cloned()) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

/// The default is below the workspace, wherever in it the command is given.
fn runs_dir(given: &Path, facts: &Facts, context: &Context) -> PathBuf {
    if given == Path::new(RUNS_DIR) {
        facts.workspace.root.join(RUNS_DIR).into()
    } else {
        context.cwd.as_std_path().join(given).components().collect()
    }
}

fn device(device: &cluster::Device) -> Device {
    match device {
        cluster::Device::Index(index) => Device::Index(*index),
        cluster::Device::Uuid(uuid) => Device::Uuid(uuid.clone()),
    }
}

/// How many ranks a host gets. Cards only count for a program whose libtorch computes on them.
fn slots(host: &Host, envelope: &Envelope, known: Option<&KnownHost>) -> Result<u32, Box<Finding>> {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let chosen = count(host.devices.len());
    let accelerator = envelope.libtorch.as_ref().map(|libtorch| &libtorch.accelerator);
    let there = || Some(count(known?.cards_for(accelerator?).len()));
    let cards = || if chosen > 0 { chosen } else { there().unwrap_or(0) };
    match host.slots {
        Slots::Count(count) => Ok(count),
        Slots::Default => Ok(cards().max(1)),
        Slots::Gpus => match cards() {
            0 => {
                let place = host.places.at("slots").on(&host.name);
                let message =
                    format!("`slots = \"gpus\"` for `{}`, and no GPU that its libtorch computes on is here", host.name);
                Err(Box::new(
                    Finding::error("slots-without-gpus", place, message).remedy("write a number, or leave `slots` out"),
                ))
            }
            count => Ok(count),
        },
    }
}

/// What a build would write, as far as it is known before: for a dry run. Sizes and digests are not.
pub(super) fn planned_envelopes(plan: &BuildPlan) -> BTreeMap<String, Envelope> {
    let planned = |host: &HostBuild| {
        let build = plan.build_of(host)?;
        let artifact = Artifact::new(&build.target, 0, "", build.key.as_str(), "");
        Some((host.name.clone(), host.envelope(artifact)))
    };
    plan.hosts.iter().filter_map(planned).collect()
}
