//! What a run is asked, and what it answers: one JSON object on one line each way.
//!
//! When you change this: `docs/runs.md` has the form; a field stays what it is, and readers pass over those that they do not know.

use serde::{Deserialize, Serialize};
use torchlift_schema::launch::OsText;

/// Version of [`Status`]: grows when a field changes its meaning or goes away.
pub(crate) const VERSION: u32 = 1;
/// Bytes that a request may have.
pub(crate) const MOST: usize = 1024;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How it goes.
    Status,
    /// To end, as SIGTERM would ask; or everything at once, by SIGKILL.
    Stop {
        /// Whether at once.
        kill: bool,
    },
    /// To be told when it is over.
    Watch,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// How it goes.
    Status(Box<Status>),
    /// It has been told to end.
    Stopping,
    /// It is over, and nothing of it is alive.
    Over(Over),
    /// Nothing that is understood was asked.
    Refused {
        /// Why.
        message: String,
    },
}

/// How a run goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// [`VERSION`].
    pub version: u32,
    /// The run's id.
    pub run_id: String,
    /// The run's folder.
    pub run_dir: OsText,
    /// The launcher's process id.
    pub pid: u32,
    /// When it started, in UTC.
    pub started_at: String,
    /// The program of rank 0, with its arguments.
    pub command: Vec<String>,
    /// Whether it is being ended.
    pub is_stopping: bool,
    /// The ranks in their order.
    pub ranks: Vec<RankStatus>,
}

/// How a rank goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankStatus {
    /// Its place in the run.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// How far it is.
    pub state: RankState,
    /// Its process id on its host, once it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How it ended, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

/// How far a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RankState {
    /// It was not started yet.
    Waiting,
    /// It runs.
    Running,
    /// It returned 0.
    Succeeded,
    /// It ended in any other way, or could not be started.
    Failed,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Over {
    /// What the launcher ended with, or what a shell shows for the signal that it died by.
    pub exit_code: u8,
    /// What it told people at its end.
    pub words: String,
}
