//! The command line of `torchlift run`, and the request that it makes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use torchlift_schema::{Finding, Place, exit_code};

use super::envelopes;
use super::flags::RunFlags;
use crate::clock;
use crate::commands::Context;
use crate::commands::lookup;
use crate::error::CommandError;
use crate::plan::{self, HostRequest, Program, RunRequest};
use crate::preflight::code;

/// The name of this machine in a run without envelopes.
const LOCAL: &str = "local";

/// Start ranks on this machine and stay until the last is gone
///
/// A run ends with the first failing rank's own exit code, or 128 + signal; codes from 200 to 219 are torchlift's own.
/// Every byte that a rank writes is in `<runs>/<id>/attempt-0/<rank>/{stdout,stderr}.log`, the verdict in
/// `<runs>/<id>/report.json`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "torchlift run --nproc <N> [OPTIONS] -- <PROGRAM> [ARGS]...\n       \
                      torchlift run --envelopes <PATH> [OPTIONS] [-- <ARGS>...]",
    group = ArgGroup::new("what").required(true).args(["nproc", "envelopes"])
)]
pub(crate) struct RunArgs {
    /// Start this many ranks of the program that stands after `--`
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub nproc: Option<u32>,
    /// Start what envelopes say: a folder of `<host>/envelope.json` or `<host>.json`, one envelope, or a map of hosts
    #[arg(long, value_name = "PATH")]
    pub envelopes: Option<PathBuf>,
    /// The project's folder, for all hosts or for one [default: the current directory]; may be repeated
    #[arg(long, value_name = "[HOST=]DIR", conflicts_with = "nproc")]
    pub path: Vec<OsString>,
    /// Ranks a host, for all hosts or for one [default: 1]; may be repeated
    #[arg(long, value_name = "[HOST=]N", conflicts_with = "nproc")]
    pub slots: Vec<String>,
    /// Only this host of the envelopes; may be repeated
    #[arg(long = "host", value_name = "NAME", conflicts_with = "nproc")]
    pub hosts: Vec<String>,
    /// What it has in common with `cargo xtask launch`.
    #[command(flatten)]
    pub flags: RunFlags,
    /// The program with its arguments; with envelopes only arguments
    #[arg(last = true, value_name = "PROGRAM | ARGS")]
    pub command: Vec<OsString>,
}

/// The request that a command line makes.
///
/// # Errors
/// What cannot be meant, and envelopes that cannot be used.
pub(super) fn request(args: &RunArgs, context: Context) -> Result<RunRequest, CommandError> {
    let Context { cwd, env } = context;
    let (hosts, rank_args) = match (&args.envelopes, args.nproc) {
        (Some(path), _) => (enveloped(args, &cwd.join(path), &cwd)?, args.command.clone()),
        (None, nproc) => plain(args, nproc.unwrap_or(1), &cwd, &env)?,
    };
    let flags = &args.flags;
    Ok(RunRequest {
        run_id: plan::run_id(clock::wall(), std::process::id()),
        runs_dir: absolute(&cwd, &flags.runs),
        hosts,
        args: rank_args,
        job_env: flags.job_env(),
        env_pass: flags.env_pass.clone(),
        base_env: env,
        require: flags.require.clone(),
        grace: flags.grace,
        master_port: flags.master_port,
        one_gpu_per_rank: flags.one_gpu_per_rank,
        max_restarts: 0,
    })
}

/// One host that is this machine, running the program of the command line.
fn plain(
    args: &RunArgs,
    nproc: u32,
    cwd: &Path,
    env: &BTreeMap<OsString, OsString>,
) -> Result<(Vec<HostRequest>, Vec<OsString>), CommandError> {
    let Some((name, rest)) = args.command.split_first() else {
        return Err(CommandError::new(exit_code::USAGE, "no program is named")
            .hint("write it after `--`: `torchlift run --nproc 2 -- ./train --epochs 3`"));
    };
    let program = if name.as_bytes().contains(&b'/') {
        absolute(cwd, Path::new(name))
    } else {
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        lookup::find(name, path, cwd).ok_or_else(|| not_in_path(name, cwd))?
    };
    let host = HostRequest {
        name: LOCAL.to_owned(),
        path: cwd.to_owned(),
        program: Program::Plain { program, cwd: cwd.to_owned() },
        slots: nproc,
        env: BTreeMap::new(),
        runner: Vec::new(),
        devices: Vec::new(),
    };
    Ok((vec![host], rest.to_vec()))
}

fn not_in_path(name: &OsStr, cwd: &Path) -> CommandError {
    let shown = name.display();
    let message = format!("`{shown}` is no program in any folder of `PATH`");
    let finding = Finding::error(code::PROGRAM_MISSING, Place::host(LOCAL), message);
    let finding = if cwd.join(name).is_file() {
        finding.remedy(format!("for the file in the current directory write `./{shown}`"))
    } else {
        finding.remedy("give its path, or put its folder into `PATH`")
    };
    CommandError::findings(exit_code::VERIFY, "the run was not started", vec![finding])
}

/// The hosts of the envelopes that were chosen.
fn enveloped(args: &RunArgs, path: &Path, cwd: &Path) -> Result<Vec<HostRequest>, CommandError> {
    let all = envelopes::read(path)?;
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let known = |name: &str| names.contains(&name);
    let mut unknown: Vec<String> =
        args.hosts.iter().filter(|name| !known(name)).map(|name| format!("`{name}` of `--host`")).collect();
    let mut paths = BTreeMap::new();
    let mut default_path = cwd.to_owned();
    for text in &args.path {
        match for_host(text) {
            Some((host, folder)) if known(host) => {
                paths.insert(host.to_owned(), absolute(cwd, Path::new(folder)));
            }
            Some((host, _)) => unknown.push(format!("`{host}` of `--path`")),
            None => default_path = absolute(cwd, Path::new(text)),
        }
    }
    let mut slots = BTreeMap::new();
    let mut default_slots = 1;
    for text in &args.slots {
        match text.split_once('=') {
            Some((host, number)) if known(host) => {
                slots.insert(host.to_owned(), count(number)?);
            }
            Some((host, _)) => unknown.push(format!("`{host}` of `--slots`")),
            None => default_slots = count(text)?,
        }
    }
    if !unknown.is_empty() {
        let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("the envelopes have no host {}", unknown.join(", "));
        return Err(CommandError::new(exit_code::USAGE, message).hint(format!("they have {}", known.join(", "))));
    }
    let is_chosen = |name: &str| args.hosts.is_empty() || args.hosts.iter().any(|host| host == name);
    let chosen = all.into_iter().filter(|(name, _)| is_chosen(name));
    Ok(chosen
        .map(|(name, program)| HostRequest {
            path: paths.get(&name).unwrap_or(&default_path).clone(),
            slots: slots.get(&name).copied().unwrap_or(default_slots),
            program,
            env: BTreeMap::new(),
            runner: Vec::new(),
            devices: Vec::new(),
            name,
        })
        .collect())
}

/// `HOST=DIR`, where what stands before the first `=` can be a host's name; a folder with `=` in it is written `./a=b`.
fn for_host(text: &OsStr) -> Option<(&str, &OsStr)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let host = std::str::from_utf8(&bytes[..at]).ok().filter(|host| !host.contains('/'))?;
    Some((host, OsStr::from_bytes(&bytes[at + 1..])))
}

fn count(text: &str) -> Result<u32, CommandError> {
    match text.parse() {
        Ok(number) if (1..=65_536).contains(&number) => Ok(number),
        _ => Err(CommandError::new(exit_code::USAGE, format!("`{text}` is no number of ranks for `--slots`"))
            .hint("a number from 1 on, or `HOST=NUMBER`")),
    }
}

/// `path` from `cwd`, without `./` and the like, so that messages can be read.
fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path).components().collect()
}
