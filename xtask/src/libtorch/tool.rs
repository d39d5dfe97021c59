//! Running one of the machine's own tools for a bounded or a watched time: `python3`, `pip`, `curl`.
//!
//! Owns how a tool is started, watched and ended. Must not know what the tools do.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};

use crate::bounded;
pub(super) use crate::toolchain::Env;

/// How often a running tool's output and files are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// All programs of that name on `PATH`, in its order, each file once.
pub(super) fn on_path(env: &Env, name: &str) -> Vec<Utf8PathBuf> {
    let Some(path) = env.get(OsStr::new("PATH")) else { return Vec::new() };
    let mut found: Vec<(Utf8PathBuf, Utf8PathBuf)> = Vec::new();
    for folder in std::env::split_paths(path) {
        // An empty element means the working directory, where a stray file may have any name.
        let Ok(folder) = Utf8PathBuf::from_path_buf(folder) else { continue };
        let program = folder.join(name);
        let is_program = folder.is_absolute()
            && fs_err::metadata(&program).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        let real = program.canonicalize_utf8().unwrap_or_else(|_| program.clone());
        if is_program && found.iter().all(|(_, seen)| *seen != real) {
            found.push((program, real));
        }
    }
    found.into_iter().map(|(program, _)| program).collect()
}

/// What a tool that ran for a bounded time wrote on stdout.
///
/// # Errors
/// When it cannot be started, runs longer than `limit` (it is ended then), or fails; with the end of what it said.
pub(super) fn ask(program: &Utf8Path, args: &[&str], env: &Env, limit: Duration) -> io::Result<String> {
    let output = bounded::output(Command::new(program).args(args).env_clear().envs(env), limit)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(last_lines(&said, 1)))
    }
}

/// How a watched tool ended.
pub(super) struct Ended {
    /// Whether it ended with 0.
    pub is_success: bool,
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// All that it wrote, stdout and stderr in one.
    pub output: String,
}

/// Runs a tool whose output goes to the file `log`, and calls `look` with the whole output so far again and again.
///
/// When `look` gives an error the tool is ended, and that is the result.
pub(super) fn watch<E: From<io::Error>>(
    program: &Utf8Path,
    args: &[String],
    env: &Env,
    log: &Utf8Path,
    look: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<Ended, E> {
    let handle = duct::cmd(program.as_std_path(), args)
        .full_env(env)
        .stdin_null()
        .stderr_to_stdout()
        .stdout_path(log)
        .unchecked()
        .start()?;
    let read = || fs_err::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let status = loop {
        let ended = handle.wait_timeout(LOOK)?.map(|output| output.status);
        let looked = read().map_err(E::from).and_then(|output| look(&output));
        if let Err(error) = looked {
            handle.kill()?;
            return Err(error);
        }
        if let Some(status) = ended {
            break status;
        }
    };
    Ok(Ended { is_success: status.success(), code: status.code(), output: read()? })
}

/// The last lines with text in them, for an error's cause.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(count)..].join("; ")
}

/// The size of all files below a folder, in bytes; what vanishes meanwhile counts as nothing.
pub(super) fn folder_size(folder: &Utf8Path) -> u64 {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len())
        .sum()
}

/// Bytes that this user may still write where `folder` is, or will be.
pub(crate) fn free_space(folder: &Utf8Path) -> Option<u64> {
    let there = folder.ancestors().find(|ancestor| ancestor.exists())?;
    let stat = nix::sys::statvfs::statvfs(there.as_std_path()).ok()?;
    Some(stat.blocks_available().saturating_mul(stat.fragment_size()))
}
