//! A plan as it may be shown: no value that came through `env_pass`, and no value that a rank merely inherits.
//!
//! This is `plan.json` in the run's folder, and `--dry-run --format json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use serde::Serialize;

use crate::plan::{EnvValue, Environment, HostPlan, LaunchPlan, MASTER_PORT, Planned, RankPlan};

/// Name of the plan in a run's folder.
pub(crate) const PLAN: &str = "plan.json";
/// Version of the format: grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;
/// What stands for a value that may not be shown.
pub(crate) const MASK: &str = "***";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShownPlan {
    /// Version of this format.
    pub version: u32,
    /// The run's id.
    pub run_id: String,
    /// The run's folder.
    pub run_dir: String,
    /// Address that ranks dial for rank 0.
    pub master_addr: String,
    /// The port for it; null when a free one is taken at the start.
    pub master_port: Option<u16>,
    /// Seconds between the first signal and SIGKILL.
    pub grace_s: f64,
    /// The hosts in rank order.
    pub hosts: Vec<ShownHost>,
}

/// One host's part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShownHost {
    /// Its name.
    pub name: String,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The folder that ranks run in.
    pub cwd: String,
    /// Names of variables that ranks get as the launcher has them.
    pub inherited: Vec<String>,
    /// Names of variables that the launcher has and ranks do not get.
    pub removed: Vec<String>,
    /// Names of variables whose values are masked.
    pub masked: Vec<String>,
    /// Variables that are the same for all its ranks.
    pub env: BTreeMap<String, String>,
    /// Its ranks.
    pub ranks: Vec<ShownRank>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ShownRank {
    /// Its place in the run.
    pub rank: u32,
    /// Its place on its host.
    pub local_rank: u32,
    /// The variables that are its own.
    pub env: BTreeMap<String, String>,
}

/// The plan of the first attempt as it may be shown. Bytes that are no UTF-8 become U+FFFD.
pub(crate) fn plan(planned: &Planned) -> ShownPlan {
    let plan = &planned.plan;
    ShownPlan {
        version: VERSION,
        run_id: plan.run_id.clone(),
        run_dir: text(plan.run_dir.as_os_str()),
        master_addr: plan.master_addr.clone(),
        master_port: plan.master_port,
        grace_s: plan.grace.as_secs_f64(),
        hosts: plan.hosts.iter().map(|host| shown_host(planned, host)).collect(),
    }
}

/// A rank's variables that are not merely inherited, of the first attempt.
pub(crate) fn own(planned: &Planned, host: &HostPlan, rank: &RankPlan, port: u16) -> Environment {
    let mut env = planned.plan.environment(host, rank, port, 0);
    env.retain(|name, entry| !is_inherited(planned, name, entry));
    env
}

/// Names of variables that the launcher has and a rank does not get.
pub(crate) fn removed<'a>(planned: &'a Planned, host: &HostPlan, rank: &RankPlan) -> Vec<&'a OsStr> {
    let late = planned.plan.late_variables(rank.rank, 0, 0).map(|(name, _)| OsStr::new(name));
    let is_given = |name: &OsString| {
        host.env.contains_key(name) || rank.env.contains_key(name) || late.contains(&name.as_os_str())
    };
    planned.base_env.keys().filter(|name| !is_given(name)).map(OsString::as_os_str).collect()
}

fn is_inherited(planned: &Planned, name: &OsStr, entry: &EnvValue) -> bool {
    !entry.is_secret && planned.base_env.get(name) == Some(&entry.value)
}

/// What a rank has and its host has not, of the first attempt: no copy of it, because a host may have many ranks.
fn variables<'a>(plan: &LaunchPlan, rank: &'a RankPlan) -> BTreeMap<&'a OsStr, Cow<'a, OsStr>> {
    let mut variables: BTreeMap<_, _> =
        rank.env.iter().map(|(name, entry)| (name.as_os_str(), Cow::Borrowed(entry.value.as_os_str()))).collect();
    for (name, value) in plan.late_variables(rank.rank, plan.master_port.unwrap_or_default(), 0) {
        if name != MASTER_PORT || plan.master_port.is_some() {
            variables.insert(OsStr::new(name), Cow::Owned(value));
        }
    }
    variables
}

fn shown_host(planned: &Planned, host: &HostPlan) -> ShownHost {
    let all: Vec<_> = host.ranks.iter().map(|rank| variables(&planned.plan, rank)).collect();
    let first = all.first().cloned().unwrap_or_default();
    // Once for each name: a host may have thousands of ranks.
    let is_in_all = |name: &&OsStr| all.iter().all(|of| of.get(name) == first.get(name));
    let common: BTreeSet<&OsStr> = first.keys().copied().filter(is_in_all).collect();
    let is_known = |name: &OsStr, value: &OsStr| planned.base_env.get(name).is_some_and(|known| known == value);
    let (inherited, told): (Vec<_>, Vec<_>) =
        host.env.iter().partition(|(name, entry)| is_inherited(planned, name, entry));
    let mut inherited: BTreeSet<&OsStr> = inherited.into_iter().map(|(name, _)| name.as_os_str()).collect();
    inherited.extend(first.iter().filter(|(name, value)| is_known(name, value)).map(|(name, _)| *name));
    let mut env: BTreeMap<String, String> = told.iter().map(|(name, entry)| (text(name), shown(entry))).collect();
    let shared = first.iter().filter(|(name, value)| common.contains(*name) && !is_known(name, value));
    env.extend(shared.map(|(name, value)| (text(name), text(value))));
    let ranks = host.ranks.iter().zip(&all).map(|(rank, own)| ShownRank {
        rank: rank.rank.0,
        local_rank: rank.local_rank,
        env: own
            .iter()
            .filter(|(name, value)| !common.contains(*name) && !is_known(name, value))
            .map(|(name, value)| (text(name), text(value)))
            .collect(),
    });
    ShownHost {
        name: host.name.clone(),
        program: text(host.program.as_os_str()),
        args: host.args.iter().map(|arg| text(arg)).collect(),
        cwd: text(host.cwd.as_os_str()),
        inherited: inherited.into_iter().map(text).collect(),
        removed: host.ranks.first().map(|rank| removed(planned, host, rank)).into_iter().flatten().map(text).collect(),
        masked: told.iter().filter(|(_, entry)| entry.is_secret).map(|(name, _)| text(name)).collect(),
        ranks: ranks.collect(),
        env,
    }
}

fn shown(entry: &EnvValue) -> String {
    if entry.is_secret { MASK.to_owned() } else { text(&entry.value) }
}

fn text(bytes: &OsStr) -> String {
    bytes.to_string_lossy().into_owned()
}
