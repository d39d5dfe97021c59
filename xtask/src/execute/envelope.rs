//! Envelopes on disk: `target/cluster/<host>/envelope.json`, each written beside its place and renamed in.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use tempfile::NamedTempFile;
use torchlift_schema::envelope::FILE_NAME;
use torchlift_schema::{Envelope, exit_code};

use super::place::has_bytes;
use super::publish::{UNWRITABLE, sweep};
use super::verify::Verified;
use crate::error::CommandError;
use crate::plan::{BuildPlan, PUBLISHED};

const TEMP: &str = ".envelope.json-";
/// As any text file; there is nothing secret in an envelope.
const MODE: u32 = 0o644;

/// An envelope on disk, not yet in its place.
#[derive(Debug)]
pub(super) struct StagedEnvelope {
    /// Where it belongs.
    pub(super) place: Utf8PathBuf,
    /// What to rename; none when the place already has this text.
    pub(super) temp: Option<NamedTempFile>,
}

/// The file of a host's envelope in the workspace `root`.
pub fn envelope_file(root: &Utf8Path, host: &str) -> Utf8PathBuf {
    root.join(PUBLISHED).join(host).join(FILE_NAME)
}

/// Writes every envelope beside its place. When one cannot be written, none is put in.
pub(super) fn stage(plan: &BuildPlan, verified: &Verified) -> Result<Vec<StagedEnvelope>, CommandError> {
    verified
        .envelopes
        .iter()
        .map(|envelope| {
            let place = envelope_file(&plan.workspace, &envelope.host);
            let temp = write(envelope, &place).map_err(|error| {
                let message = format!("the envelope of host `{}` cannot be written", envelope.host);
                CommandError::new(exit_code::BUILD, message).because(error).hint(UNWRITABLE)
            })?;
            Ok(StagedEnvelope { place, temp })
        })
        .collect()
}

fn write(envelope: &Envelope, place: &Utf8Path) -> io::Result<Option<NamedTempFile>> {
    let text = torchlift_schema::write::to_text(envelope);
    if has_bytes(place, text.as_bytes())? {
        return Ok(None);
    }
    let folder = place.parent().unwrap_or(Utf8Path::new("/"));
    fs_err::create_dir_all(folder)?;
    sweep(folder, TEMP);
    let mut temp = tempfile::Builder::new().prefix(TEMP).tempfile_in(folder)?;
    temp.write_all(text.as_bytes())?;
    temp.as_file().set_permissions(Permissions::from_mode(MODE))?;
    temp.as_file().sync_all()?;
    Ok(Some(temp))
}
