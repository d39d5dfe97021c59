//! `--dry-run`: each rank's command, folder and environment, ready to paste into a shell.
//!
//! Pure. What ranks inherit is not repeated, since the shell has it too; what is passed on is referred to and not shown.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::shown;
use super::words;
use crate::output::terminal::{is_obeyed, visible};
use crate::plan::{HostPlan, Planned, RankPlan};

/// The port that stands for the one that a run would take.
const EXAMPLE_PORT: u16 = 29_500;

const OLDPWD: &str = "OLDPWD";

/// The text; arguments that are no UTF-8 are spelled out in ASCII.
pub(crate) fn render(planned: &Planned) -> String {
    let plan = &planned.plan;
    let ranks = words::count(plan.world_size() as usize, "rank");
    let hosts = words::count(plan.hosts.len(), "host");
    let mut text = format!("# a run would start {ranks} on {hosts}; nothing was started or written\n");
    if plan.master_port.is_none() {
        text.push_str(&format!("# a run takes a free port for rank 0; {EXAMPLE_PORT} stands for it here\n"));
    }
    for host in &plan.hosts {
        for rank in &host.ranks {
            text.push_str(&command(planned, host, rank));
        }
    }
    text
}

fn command(planned: &Planned, host: &HostPlan, rank: &RankPlan) -> String {
    let mut text =
        format!("\n# rank {} on host {}, local rank {}\n", rank.rank.0, visible(&host.name), rank.local_rank);
    text.push_str(&format!("cd {} && env", quote(host.cwd.as_os_str())));
    // A shell sets `_` anew for every command, and `cd` has just set OLDPWD.
    let mut removed = shown::removed(planned, host, rank);
    removed.retain(|name| *name != "_" && *name != OLDPWD);
    if !host.env.contains_key(OsStr::new(OLDPWD)) {
        removed.push(OsStr::new(OLDPWD));
    }
    for name in removed {
        text.push_str(&format!(" -u {}", quote(name)));
    }
    let port = planned.plan.master_port.unwrap_or(EXAMPLE_PORT);
    for (name, entry) in shown::own(planned, host, rank, port) {
        let value = match (entry.is_secret, is_identifier(&name)) {
            (false, _) => quote(&entry.value),
            (true, true) => format!("\"${}\"", name.to_string_lossy()),
            (true, false) => quote(shown::MASK.as_ref()),
        };
        text.push_str(&format!(" \\\n  {}={value}", quote(&name)));
    }
    text.push_str(" \\\n  ");
    if host.program.as_os_str().as_bytes().contains(&b'=') {
        // `env` would take such a path for one more variable.
        text.push_str("sh -c 'exec \"$0\" \"$@\"' ");
    }
    text.push_str(&quote(host.program.as_os_str()));
    for arg in &host.args {
        text.push(' ');
        text.push_str(&quote(arg));
    }
    text.push('\n');
    text
}

fn is_identifier(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !bytes.first().is_some_and(u8::is_ascii_digit)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// One word for a shell, in a text that a terminal shows as it is.
///
/// Control characters and bytes that are no UTF-8 need `$'…'`, which bash, zsh and ksh know; other words are quoted for
/// every POSIX shell.
pub(crate) fn quote(word: &OsStr) -> String {
    let plain = word.to_str().filter(|text| !text.contains(is_obeyed));
    if let Some(quoted) = plain.and_then(|text| shlex::try_quote(text).ok()) {
        return quoted.into_owned();
    }
    let mut text = String::from("$'");
    for chunk in word.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\'' | '\\' => text.extend(['\\', character]),
                _ if is_obeyed(character) => {
                    let mut bytes = [0; 4];
                    let bytes = character.encode_utf8(&mut bytes).bytes();
                    text.extend(bytes.map(|byte| format!("\\{byte:03o}")));
                }
                _ => text.push(character),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\{byte:03o}")));
    }
    text + "'"
}
