//! What the ranks of an allocation are started with, and what has to be held for them first.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{Host, OpenError};
use crate::allocator::state::Request;
use crate::claim::{self, Claims, Holder, Wanted};
use crate::event::Rank;
use crate::process::spawn::Command;

/// What its ranks are started with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) cwd: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
    /// By local rank.
    pub(super) rank_env: Vec<BTreeMap<OsString, OsString>>,
    pub(super) open_files: u64,
}

impl Start {
    pub(super) fn of(world: &str, request: &Request, host: &Host) -> Result<Self, OpenError> {
        let own = host.program.as_deref().and_then(<[OsString]>::split_first);
        let (program, args, cwd, inherited, env, rank_env) = match (&request.launch, own) {
            (Some(launch), _) => {
                let args = launch.args.iter().map(|arg| arg.as_os_str().to_owned()).collect();
                let vars = |env: &BTreeMap<torchlift_schema::launch::OsText, torchlift_schema::launch::OsText>| {
                    let vars = env.iter();
                    vars.map(|(name, value)| (name.as_os_str().to_owned(), value.as_os_str().to_owned())).collect()
                };
                let rank_env = launch.rank_env.iter().map(vars).collect();
                let (program, cwd) = (launch.program.as_os_str().into(), launch.cwd.as_os_str().into());
                (program, args, cwd, !launch.is_env_whole, vars(&launch.env), rank_env)
            }
            (None, Some((program, args))) => {
                (program.into(), args.to_vec(), host.cwd.clone(), true, BTreeMap::new(), Vec::new())
            }
            // `state` lets no such request through.
            (None, None) => (PathBuf::new(), Vec::new(), host.cwd.clone(), true, BTreeMap::new(), Vec::new()),
        };
        let missing = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Missing { path, source }
        };
        fs_err::metadata(&cwd).map_err(missing(&cwd))?;
        let resolved = fs_err::canonicalize(&program).map_err(missing(&program))?;
        if !host.roots.is_empty() && !host.roots.iter().any(|root| resolved.starts_with(root)) {
            return Err(OpenError::Root { program });
        }
        let mut whole = if inherited { host.env.clone() } else { BTreeMap::new() };
        whole.extend(env);
        whole.insert(crate::env_vars::TORCHLIFT_RUN_ID.into(), world.into());
        if let Some(trace_id) = &request.trace_id {
            whole.insert(crate::env_vars::MONARCH_CLIENT_TRACE_ID.into(), trace_id.into());
        }
        let ranks = request.view.num_ranks();
        let rank_env =
            (0..ranks).map(|rank| variables(request, rank).chain(own_of(&rank_env, rank)).collect()).collect();
        Ok(Self { program, args, cwd, env: whole, rank_env, open_files: host.open_files })
    }

    pub(super) fn command(&self, rank: Rank) -> Command<'_> {
        let own = &self.rank_env[rank.0 as usize];
        let common = self.env.iter().filter(|(name, _)| !own.contains_key(*name));
        let env = common.chain(own).map(|(name, value)| (name.as_os_str(), Cow::from(value.as_os_str())));
        Command {
            program: &self.program,
            args: &self.args,
            env: env.collect::<Vec<(&OsStr, Cow<'_, OsStr>)>>(),
            cwd: &self.cwd,
            open_files: self.open_files,
        }
    }
}

/// What a rank can be told from its view alone.
fn variables(request: &Request, local: usize) -> impl Iterator<Item = (OsString, OsString)> + use<> {
    let global = request.view.get(local).unwrap_or(local);
    let number = |number: usize| OsString::from(number.to_string());
    let ranks = request.view.num_ranks();
    [("RANK", number(global)), ("LOCAL_RANK", number(local)), ("LOCAL_WORLD_SIZE", number(ranks))]
        .into_iter()
        .map(|(name, value)| (name.into(), value))
}

fn own_of(rank_env: &[BTreeMap<OsString, OsString>], rank: usize) -> impl Iterator<Item = (OsString, OsString)> + '_ {
    rank_env.get(rank).into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()))
}

/// Claims the cards that an allocation names, for the whole machine.
pub(super) fn claim_cards(world: &str, request: &Request, folder: &Path) -> Result<Claims, OpenError> {
    let names = request.launch.as_ref().map(|launch| launch.cards.as_slice()).unwrap_or_default();
    let wanted = Wanted { host: String::new(), cards: claim::named(names) };
    match claim::take(folder, &[wanted], &Holder::of(world)) {
        Ok((claims, doubts)) if doubts.is_empty() => Ok(claims),
        // Whoever asked for a card of its own would not have it.
        Ok((_, findings)) | Err(findings) => Err(OpenError::Cards { findings }),
    }
}
