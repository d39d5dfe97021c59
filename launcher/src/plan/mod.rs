//! What would run where: a value, made before anything starts.
//!
//! Pure: from envelopes, hosts and the caller's environment to each rank's command, folder and environment.
//! `--dry-run`, the tests and the dispatcher all work from it. Must not touch a file or a process.

mod devices;
mod environment;
mod layout;
mod request;
mod run_id;
#[cfg(test)]
mod tests;

pub(crate) use devices::elements as card_elements;
#[cfg(feature = "net")]
pub(crate) use environment::inherited;
pub(crate) use layout::{Planned, build, program};
pub use request::{Device, HostRequest, Program, RunRequest};
pub use run_id::{days_since, run_id, seconds_of, stamp};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::env_vars;
use crate::event::Rank;

/// Variables of a rank that nobody knows before the port is held and the attempt begins.
const LATE: [&str; 4] =
    [MASTER_PORT, "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", env_vars::TORCHLIFT_ATTEMPT];
/// The port of rank 0, for all ranks.
pub(crate) const MASTER_PORT: &str = "MASTER_PORT";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// The run's id: a folder name.
    pub run_id: String,
    /// The run's folder, absolute.
    pub run_dir: PathBuf,
    /// Address that ranks dial for rank 0.
    pub master_addr: String,
    /// The port for it; none means that rank 0's host picks and holds one.
    pub master_port: Option<u16>,
    /// Time between the first signal and SIGKILL.
    pub grace: Duration,
    /// The hosts in rank order: host 0 has rank 0.
    pub hosts: Vec<HostPlan>,
}

/// One host's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// Its name in the cluster file.
    pub name: String,
    /// The program, absolute.
    pub program: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// The folder that ranks run in, absolute.
    pub cwd: PathBuf,
    /// The variables that all its ranks have alike.
    pub env: Environment,
    /// Its ranks: contiguous, local rank by local rank.
    pub ranks: Vec<RankPlan>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// Its place in the run.
    pub rank: Rank,
    /// Its place on its host, from 0.
    pub local_rank: u32,
    /// The variables that are its own, none of which its host has, but for `MASTER_PORT` and what depends on the attempt:
    /// those are [`LaunchPlan::late_variables`].
    pub env: Environment,
}

/// Variables by name.
pub type Environment = BTreeMap<OsString, EnvValue>;

/// A variable's value, and whether it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvValue {
    /// The value.
    pub value: OsString,
    /// Whether it came through `env_pass`: masked wherever printed or written.
    pub is_secret: bool,
}

impl LaunchPlan {
    /// The number of ranks in the run.
    pub fn world_size(&self) -> u32 {
        self.hosts.iter().map(|host| host.ranks.len() as u32).sum()
    }

    /// The folder of a rank's files in an attempt, absolute: `<run dir>/attempt-<n>/<rank>`.
    pub fn rank_dir(&self, rank: Rank, attempt: u32) -> PathBuf {
        self.run_dir.join(format!("attempt-{attempt}")).join(rank.0.to_string())
    }

    /// A rank's whole environment: its host's, its own, and what is known last.
    pub fn environment(&self, host: &HostPlan, rank: &RankPlan, port: u16, attempt: u32) -> Environment {
        let late = self.late_variables(rank.rank, port, attempt);
        let late = late.map(|(name, value)| (name.into(), EnvValue { value, is_secret: false }));
        let planned = host.env.iter().chain(&rank.env).map(|(name, entry)| (name.clone(), entry.clone()));
        planned.chain(late).collect()
    }

    /// The variables of a rank that nobody knows before the port is held and the attempt begins.
    pub fn late_variables(&self, rank: Rank, port: u16, attempt: u32) -> [(&'static str, OsString); 4] {
        let [port_name, restarts, error_file, attempt_name] = LATE;
        [
            (port_name, port.to_string().into()),
            (restarts, attempt.to_string().into()),
            (error_file, self.rank_dir(rank, attempt).join("error.json").into()),
            (attempt_name, attempt.to_string().into()),
        ]
    }
}
