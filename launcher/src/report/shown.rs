//! A plan as it may be shown: no value that came through `env_pass`, and no value that a rank merely inherits.
//!
//! This is `plan.json` in the run's folder, and `--dry-run --format json`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde::Serialize;

use crate::plan::{EnvValue, HostPlan, LaunchPlan, Planned, RankPlan};

/// Name of the plan in a run's folder.
pub const PLAN: &str = "plan.json";
/// Version of the format: grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;
/// What stands for a value that may not be shown.
pub const MASK: &str = "***";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShownPlan {
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
pub struct ShownHost {
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
pub struct ShownRank {
    /// Its place in the run.
    pub rank: u32,
    /// Its place on its host.
    pub local_rank: u32,
    /// The variables that are its own.
    pub env: BTreeMap<String, String>,
}

/// The plan of the first attempt as it may be shown. Bytes that are no UTF-8 become U+FFFD.
pub fn plan(planned: &Planned) -> ShownPlan {
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

/// A rank's variables that are not merely inherited.
pub fn own(planned: &Planned, rank: &RankPlan, port: Option<u16>) -> BTreeMap<OsString, EnvValue> {
    let mut env = planned.plan.environment(rank, port.unwrap_or_default(), 0);
    if port.is_none() {
        env.remove(OsStr::new("MASTER_PORT"));
    }
    env.retain(|name, entry| entry.is_secret || planned.base_env.get(name) != Some(&entry.value));
    env
}

/// Names of variables that the launcher has and a rank does not get.
pub fn removed<'a>(planned: &'a Planned, rank: &RankPlan) -> Vec<&'a OsStr> {
    let env = planned.plan.environment(rank, 0, 0);
    planned.base_env.keys().filter(|name| !env.contains_key(*name)).map(OsString::as_os_str).collect()
}

fn shown_host(planned: &Planned, host: &HostPlan) -> ShownHost {
    let LaunchPlan { master_port, .. } = planned.plan;
    let all: Vec<_> = host.ranks.iter().map(|rank| own(planned, rank, master_port)).collect();
    let mut common = all.first().cloned().unwrap_or_default();
    common.retain(|name, entry| all.iter().all(|env| env.get(name) == Some(entry)));
    let first = host.ranks.first();
    let inherited = first.into_iter().flat_map(|rank| rank.env.keys()).filter(|name| !all[0].contains_key(*name));
    // A secret is the same for all ranks of a host.
    let masked = common.iter().filter(|(_, entry)| entry.is_secret).map(|(name, _)| name);
    let ranks = host.ranks.iter().zip(&all).map(|(rank, env)| ShownRank {
        rank: rank.rank.0,
        local_rank: rank.local_rank,
        env: shown_env(env.iter().filter(|(name, _)| !common.contains_key(*name))),
    });
    ShownHost {
        name: host.name.clone(),
        program: text(host.program.as_os_str()),
        args: host.args.iter().map(|arg| text(arg)).collect(),
        cwd: text(host.cwd.as_os_str()),
        inherited: inherited.map(|name| text(name)).collect(),
        removed: first.map(|rank| removed(planned, rank)).into_iter().flatten().map(text).collect(),
        masked: masked.map(|name| text(name)).collect(),
        env: shown_env(&common),
        ranks: ranks.collect(),
    }
}

fn shown_env<'a>(env: impl IntoIterator<Item = (&'a OsString, &'a EnvValue)>) -> BTreeMap<String, String> {
    let value = |entry: &EnvValue| if entry.is_secret { MASK.to_owned() } else { text(&entry.value) };
    env.into_iter().map(|(name, entry)| (text(name), value(entry))).collect()
}

fn text(bytes: &OsStr) -> String {
    bytes.to_string_lossy().into_owned()
}
