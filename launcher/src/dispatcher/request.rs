//! What a run asks of its hosts' allocators. Pure: from the plan alone.

use std::collections::BTreeMap;
use std::ffi::OsString;

use torchlift_schema::launch::{LaunchSpec, OsText};
use torchlift_schema::state::AllocKey;

use super::DispatchError;
use crate::client::{AllocSpec, HostSpec, split};
use crate::plan::{Environment, HostPlan, LaunchPlan, MASTER_PORT, RankPlan};
use crate::reach::local;

/// Attempts are counted from here. A new attempt is a new set of ranks with a new port.
const FIRST_ATTEMPT: u32 = 0;

/// One allocation over all hosts of the plan.
///
/// # Errors
/// When something in the plan cannot be given to a process.
pub(super) fn of(plan: &LaunchPlan) -> Result<AllocSpec, DispatchError> {
    let unusable = |why: String| DispatchError::NotAllocated { why };
    let by_host: Vec<usize> = plan.hosts.iter().map(|host| host.ranks.len()).collect();
    let (extent, views) = split::by_count(&by_host).map_err(|error| unusable(error.to_string()))?;
    let hosts = plan.hosts.iter().zip(views).enumerate().map(|(index, (host, view))| {
        let launch = launch(plan, index, host)?;
        Ok(HostSpec { name: host.name.clone(), view, launch: Some(launch), incarnation: None })
    });
    Ok(AllocSpec {
        key: AllocKey::new(&plan.run_id).map_err(|error| unusable(error.to_string()))?,
        owner: String::new(),
        extent,
        hosts: hosts.collect::<Result<_, DispatchError>>()?,
        is_forced: false,
        lease: None,
        context: None,
        patience: local::PATIENCE,
    })
}

fn launch(plan: &LaunchPlan, index: usize, host: &HostPlan) -> Result<LaunchSpec, DispatchError> {
    let place = |what: &str| format!("{what} of host `{}`", host.name);
    let program = text(&host.program, || place("the program"))?;
    let cwd = text(&host.cwd, || place("the working folder"))?;
    let grace_ms = u64::try_from(plan.grace.as_millis()).unwrap_or(u64::MAX);
    let mut launch = LaunchSpec::new(&plan.run_id, program, cwd, grace_ms);
    launch.attempt = FIRST_ATTEMPT;
    launch.args = host.args.iter().map(|arg| text(arg, || place("an argument"))).collect::<Result<_, _>>()?;
    launch.is_env_whole = true;
    launch.env = variables(&host.env, &place)?;
    launch.is_port_wanted = index == 0 && plan.master_port.is_none();
    if let Some(port) = plan.master_port {
        launch.env.insert(text(MASTER_PORT, || place("a variable"))?, text(port.to_string(), || place("a variable"))?);
    }
    launch.rank_env = host.ranks.iter().map(|rank| rank_variables(plan, rank, &place)).collect::<Result<_, _>>()?;
    Ok(launch)
}

fn rank_variables(
    plan: &LaunchPlan,
    rank: &RankPlan,
    place: &dyn Fn(&str) -> String,
) -> Result<BTreeMap<OsText, OsText>, DispatchError> {
    let mut all = variables(&rank.env, place)?;
    // Whoever holds the port says which it is.
    let late = plan.late_variables(rank.rank, 0, FIRST_ATTEMPT).into_iter().filter(|(name, _)| *name != MASTER_PORT);
    for (name, value) in late {
        all.insert(text(name, || place("a variable"))?, text(value, || place("a variable"))?);
    }
    Ok(all)
}

fn variables(env: &Environment, place: &dyn Fn(&str) -> String) -> Result<BTreeMap<OsText, OsText>, DispatchError> {
    env.iter()
        .map(|(name, entry)| {
            let what = || place(&format!("the variable `{}`", name.display()));
            Ok((text(name, what)?, text(&entry.value, what)?))
        })
        .collect()
}

fn text(value: impl Into<OsString>, what: impl FnOnce() -> String) -> Result<OsText, DispatchError> {
    OsText::new(value).map_err(|source| DispatchError::Unusable { what: what(), source })
}
