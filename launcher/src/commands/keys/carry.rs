//! How keys get to where they are used: commands that can be pasted into a shell.
//!
//! Owns that modes survive and that nothing lies open on the way: a folder goes through ssh as one stream, and what is made of it
//! there is its user's alone.

use std::path::Path;

use crate::keys::check::{self, Looked};
use crate::keys::place;
use crate::keys::role::{Role, RoleKind};

/// Where keys are found on the other machine.
const THERE: &str = "~/.config/torchlift/keys";

/// A word of a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().into_owned();
    shlex::try_quote(&text).map(std::borrow::Cow::into_owned).unwrap_or(text)
}

/// Lines that say how the folders of these roles are carried.
pub(super) fn folders(folder: &Path, roles: &[Role]) -> Vec<String> {
    let unpack = format!("'umask 077; mkdir -p {THERE} && tar -C {THERE} -xpf - --no-same-owner'");
    let mut lines = Vec::new();
    for (kind, words) in [
        (RoleKind::Host, "carry the folder to the host, for the user that runs `torchlift serve` there:"),
        (RoleKind::Client, "to control from another machine, carry the folder to it:"),
    ] {
        let names: Vec<&str> = roles.iter().filter(|role| role.kind() == kind).map(Role::name).collect();
        let base = quoted(&place::of_kind(folder, kind));
        match names.as_slice() {
            [] => continue,
            [one] => {
                let to = if kind == RoleKind::Host { one } else { "MACHINE" };
                lines.push(words.to_owned());
                lines.push(format!("  tar -C {base}/{one} -cf - . | ssh {to} {unpack}"));
            }
            several if kind == RoleKind::Host => {
                lines
                    .push("carry each host's folder to it, for the user that runs `torchlift serve` there:".to_owned());
                lines.push(format!(
                    "  for host in {}; do tar -C {base}/$host -cf - . | ssh $host {unpack}; done",
                    several.join(" ")
                ));
            }
            several => {
                lines.push(format!(
                    "to control from other machines, carry each client's folder (of {}) to its own:",
                    several.join(", ")
                ));
                lines.push(format!("  tar -C {base}/CLIENT -cf - . | ssh MACHINE {unpack}"));
            }
        }
    }
    lines
}

/// Lines that say how files which are the same for all are carried to all.
pub(super) fn files(folder: &Path, names: &[&str]) -> Vec<String> {
    let Looked::There { index, .. } = check::look(folder, crate::clock::wall()) else { return Vec::new() };
    let current = |kind: RoleKind| -> Vec<&str> {
        index
            .issued
            .iter()
            .filter(|entry| entry.is_current() && entry.role == kind)
            .map(|entry| entry.name.as_str())
            .collect()
    };
    let (hosts, clients) = (current(RoleKind::Host), current(RoleKind::Client));
    let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let paths: Vec<String> = names.iter().map(|name| quoted(&folder.join(name))).collect();
    let mut lines = Vec::new();
    if !hosts.is_empty() {
        lines.push(format!("carry {} to every host:", shown.join(" and ")));
        lines.push(format!(
            "  for host in {}; do scp -p {} $host:.config/torchlift/keys/; done",
            hosts.join(" "),
            paths.join(" ")
        ));
    }
    if !clients.is_empty() {
        lines.push(format!("and to every machine from which a client controls ({}), but this one", clients.join(", ")));
    }
    lines
}
