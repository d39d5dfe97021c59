//! Which run is meant: one that lives, or one whose folder is there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use torchlift_schema::exit_code;

use super::Context;
use super::run::RUNS_DIR;
use crate::error::CommandError;
use crate::event::Rank;
use crate::live::{self, Living};
use crate::report::shown::PLAN;

/// Which run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunName {
    /// The run's id, or a beginning of it that no other has [default: the one that lives]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Folder with the folders of runs, for one that is over
    #[arg(long, value_name = "DIR", default_value = RUNS_DIR)]
    pub runs: PathBuf,
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) run_id: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// The ranks with their hosts.
    pub(crate) ranks: Vec<(Rank, String)>,
    /// What it says of itself; none once it is over.
    pub(crate) living: Option<Living>,
}

/// As much as is needed of `plan.json`.
#[derive(Deserialize)]
struct Plan {
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    name: String,
    ranks: Vec<PlannedRank>,
}

#[derive(Deserialize)]
struct PlannedRank {
    rank: u32,
}

impl Found {
    /// The folder of a rank's files.
    pub(crate) fn rank_folder(&self, rank: Rank) -> PathBuf {
        self.folder.join("attempt-0").join(rank.0.to_string())
    }

    fn living(living: Living) -> Self {
        let ranks = living.status.ranks.iter().map(|rank| (Rank(rank.rank), rank.host.clone())).collect();
        let folder = PathBuf::from(living.status.run_dir.as_os_str());
        Self { run_id: living.status.run_id.clone(), folder, ranks, living: Some(living) }
    }

    /// # Errors
    /// When it has no plan that can be read.
    fn over(folder: PathBuf) -> Result<Self, CommandError> {
        let unreadable = || format!("`{}` is not the folder of a run", folder.display());
        let bytes = fs_err::read(folder.join(PLAN));
        let bytes = bytes.map_err(|error| CommandError::new(exit_code::USAGE, unreadable()).because(error))?;
        let plan: Plan = serde_json::from_slice(&bytes)
            .map_err(|error| CommandError::new(exit_code::USAGE, unreadable()).because(error))?;
        let hosts = plan.hosts.into_iter();
        let ranks = hosts.flat_map(|host| host.ranks.into_iter().map(move |rank| (Rank(rank.rank), host.name.clone())));
        let run_id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { run_id, ranks: ranks.collect(), folder, living: None })
    }
}

/// Finds the run that is meant.
///
/// # Errors
/// When there is none, or more than one.
pub(crate) fn find(name: &RunName, context: &Context) -> Result<Found, CommandError> {
    let live::Look { living, silent, .. } = live::look(&context.env);
    let folder = context.cwd.join(&name.runs);
    let is_silent = |id: &String| name.run.as_ref().is_none_or(|wanted| id.starts_with(wanted.as_str()));
    if let Some(id) = silent.iter().find(|id| is_silent(id) && (name.run.is_some() || living.is_empty())) {
        return Err(CommandError::new(exit_code::UNREACHABLE, format!("the run `{id}` gives no answer"))
            .hint("its launcher may be suspended: `fg` in its shell, or `kill -CONT` of its process"));
    }
    let Some(wanted) = &name.run else {
        let mut living = living.into_iter();
        return match (living.next(), living.next()) {
            (Some(one), None) => Ok(Found::living(one)),
            (None, _) => Err(CommandError::new(exit_code::USAGE, "no run of yours lives here")
                .hint("name one that is over, with `--runs DIR` where its folder is")),
            (Some(one), Some(other)) => {
                let rest = living.map(|living| living.status.run_id);
                Err(ambiguous(vec![one.status.run_id, other.status.run_id].into_iter().chain(rest).collect()))
            }
        };
    };
    let mut ids: Vec<String> = living.iter().map(|living| living.status.run_id.clone()).collect();
    ids.extend(folders_in(&folder));
    ids.sort();
    ids.dedup();
    let mut meant: Vec<String> = ids.iter().filter(|id| id.starts_with(wanted.as_str())).cloned().collect();
    if meant.contains(wanted) {
        meant = vec![wanted.clone()];
    }
    match meant.as_slice() {
        [one] => match living.into_iter().find(|living| living.status.run_id == *one) {
            Some(living) => Ok(Found::living(living)),
            None => Found::over(folder.join(one)),
        },
        [] => {
            let known = if ids.is_empty() { "there is none".to_owned() } else { format!("there are {}", quoted(&ids)) };
            Err(CommandError::new(exit_code::USAGE, format!("no run is called `{wanted}`"))
                .hint(format!("{known}; `--runs DIR` names the folder of those that are over")))
        }
        _ => Err(ambiguous(meant)),
    }
}

/// The run that is meant, which has to live.
///
/// # Errors
/// When it does not.
pub(crate) fn find_living(name: &RunName, context: &Context) -> Result<(Found, Living), CommandError> {
    let mut found = find(name, context)?;
    match found.living.take() {
        Some(living) => Ok((found, living)),
        None => Err(CommandError::new(exit_code::USAGE, format!("the run `{}` is over", found.run_id))
            .hint(format!("`torchlift logs {}` shows what its ranks wrote", found.run_id))),
    }
}

fn ambiguous(ids: Vec<String>) -> CommandError {
    CommandError::new(exit_code::USAGE, format!("more than one run may be meant: {}", quoted(&ids)))
        .hint("name one of them")
}

fn quoted(ids: &[String]) -> String {
    ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ")
}

/// The names of folders that may be those of runs.
fn folders_in(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.path().join(PLAN).is_file()).map(|entry| entry.file_name());
    named.filter_map(|name: OsString| name.into_string().ok()).collect()
}
