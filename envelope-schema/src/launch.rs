//! What an allocator is to start: the program, its folder, its environment, rank by rank.
//!
//! Owns the form in which a launch travels, bytes that are no UTF-8 included. Must not know how a process is started.

mod text;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule;

pub use text::{OsText, OsTextError};

/// What an allocator is to start for an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LaunchSpec {
    /// The run that it belongs to.
    #[schemars(regex(pattern = rule::TEXT))]
    pub run_id: String,
    /// How often the run was started before.
    #[serde(default)]
    #[schemars(range(max = u32::MAX))]
    pub attempt: u32,
    /// The program, absolute.
    pub program: OsText,
    /// Its arguments, without its own name.
    #[serde(default)]
    pub args: Vec<OsText>,
    /// The folder to run in, absolute.
    pub cwd: OsText,
    /// Whether `env` is all that ranks get; else it goes over the allocator's own, less `CARGO*`, `RUST*` and Torchlift's.
    #[serde(default)]
    pub is_env_whole: bool,
    /// The variables that all ranks have alike.
    #[serde(default)]
    pub env: BTreeMap<OsText, OsText>,
    /// The variables of each rank, by local rank: as many as the view has ranks, or none at all.
    #[serde(default)]
    pub rank_env: Vec<BTreeMap<OsText, OsText>>,
    /// Whether a port is held for rank 0 from before the first process starts until the allocation ends; it becomes
    /// `MASTER_PORT`, and `Allocated` tells it.
    #[serde(default)]
    pub is_port_wanted: bool,
    /// The cards that the ranks have to themselves on this host, by UUID or by index in PCI order: claimed for the whole machine
    /// before anything starts, all or none. What the ranks see of them is up to `env`.
    #[serde(default)]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub cards: Vec<String>,
    /// Time between the first signal of a stop and SIGKILL, in ms.
    #[schemars(range(max = rule::MAX_SIZE))]
    pub grace_ms: u64,
}

impl LaunchSpec {
    /// A launch of this program in this folder, with nothing else said.
    pub fn new(run_id: impl Into<String>, program: OsText, cwd: OsText, grace_ms: u64) -> Self {
        Self {
            run_id: run_id.into(),
            attempt: 0,
            program,
            args: Vec::new(),
            cwd,
            is_env_whole: false,
            env: BTreeMap::new(),
            rank_env: Vec::new(),
            is_port_wanted: false,
            cards: Vec::new(),
            grace_ms,
        }
    }
}
