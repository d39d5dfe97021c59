//! What lies where results belong, looked at before anything is built.
//!
//! Files and links there are replaced. All else was put there by somebody, and is left to them: nothing of it is read,
//! replaced or taken away.

use std::collections::BTreeSet;
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Finding, Place, exit_code};

use super::envelope::envelope_file;
use crate::error::CommandError;
use crate::file::in_words;
use crate::plan::BuildPlan;

/// Looks at the places of all binaries and envelopes of a plan.
///
/// # Errors
/// With a finding for each thing that is in the way.
pub(crate) fn check(plan: &BuildPlan) -> Result<(), CommandError> {
    let mut told = BTreeSet::new();
    let mut findings = Vec::new();
    for host in &plan.hosts {
        for place in [plan.workspace.join(&host.bin), envelope_file(&plan.workspace, &host.name)] {
            let Some((path, what, wanted)) = in_the_way(&plan.workspace, &place) else { continue };
            // Hosts share the folders above their own.
            if told.insert(path.clone()) {
                let message = format!("`{path}` is a {what}, and a {wanted} of host `{}` belongs there", host.name);
                let remedy = "move it away, or remove it; then build again";
                let place = Place::file(path).on(&host.name);
                findings.push(Finding::error("place-taken", place, message).remedy(remedy));
            }
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    let summary = format!("`{}` cannot be published; nothing was published", plan.program.name);
    Err(CommandError::findings(exit_code::BUILD, summary, findings))
}

/// What keeps a file from being renamed to `place`: what is no folder above it, below `root`, or no file in it.
fn in_the_way(root: &Utf8Path, place: &Utf8Path) -> Option<(Utf8PathBuf, &'static str, &'static str)> {
    let mut above: Vec<&Utf8Path> = place.ancestors().skip(1).take_while(|folder| *folder != root).collect();
    above.reverse();
    for folder in above {
        match fs_err::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => return Some((folder.to_owned(), in_words(metadata.file_type()), "folder")),
            // A link that leads nowhere: no folder can be made in its place.
            Err(_) if fs_err::symlink_metadata(folder).is_ok() => {
                return Some((folder.to_owned(), "link to nothing", "folder"));
            }
            Err(_) => return None,
        }
    }
    let kind = fs_err::symlink_metadata(place).ok()?.file_type();
    (!kind.is_file() && !kind.is_symlink()).then(|| (place.to_owned(), in_words(kind), "file"))
}

/// Whether the regular file at `place` has exactly these bytes. A link is none: it is to be replaced.
pub(super) fn has_bytes(place: &Utf8Path, bytes: &[u8]) -> io::Result<bool> {
    match fs_err::symlink_metadata(place) {
        Ok(metadata) if metadata.is_file() && metadata.len() == bytes.len() as u64 => {
            Ok(crate::file::read(place)? == bytes)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
