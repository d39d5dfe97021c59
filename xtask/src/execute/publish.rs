//! Binaries in their places: copied beside them first, renamed in at the very end.
//!
//! Never a hard link to cargo's own file: some linkers write that in place, under the feet of a running rank. A rename
//! leaves a running rank its old file.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use tempfile::NamedTempFile;
use torchlift::preflight::DigestCache;
use torchlift_schema::exit_code;

use super::envelope::StagedEnvelope;
use crate::cargo::CargoRun;
use crate::error::CommandError;
use crate::plan::{BuildKey, BuildPlan};

/// Whoever builds may read and execute what was built, whatever mode the linker gave it.
const READ_AND_EXECUTE: u32 = 0o500;

/// A host's binary on disk, not yet in its place.
#[derive(Debug)]
pub(super) struct Staged {
    /// Where it belongs.
    pub(super) place: Utf8PathBuf,
    /// What to rename; none when the place already has these bytes.
    temp: Option<NamedTempFile>,
}

impl Staged {
    /// The file that has the bytes now.
    pub(super) fn file(&self) -> &Utf8Path {
        self.temp.as_ref().and_then(|temp| Utf8Path::from_path(temp.path())).unwrap_or(&self.place)
    }
}

/// What was done for a host.
#[derive(Debug)]
pub(super) struct Published {
    /// Whether its binary is new.
    pub(super) is_new: bool,
    /// Its envelope's file.
    pub(super) envelope: Utf8PathBuf,
}

/// Puts every host's binary beside its place, but for those that lie there already.
pub(super) fn stage(
    plan: &BuildPlan,
    runs: &BTreeMap<BuildKey, CargoRun>,
    digests: &mut DigestCache,
) -> Result<Vec<Staged>, CommandError> {
    let mut staged = Vec::new();
    for host in &plan.hosts {
        let Some(run) = runs.get(&host.build) else { continue };
        let place = plan.workspace.join(&host.bin);
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            CommandError::new(exit_code::BUILD, format!("the binary of host `{}` cannot be published", host.name))
                .because(error)
        };
        let digest = digests.digest(run.executable.as_std_path()).map_err(|error| failed(error.into()))?;
        let is_there = fs_err::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_file())
            && digests.digest(place.as_std_path()).is_ok_and(|there| there == digest);
        let temp =
            if is_there { None } else { Some(copy(&run.executable, &place).map_err(|error| failed(error.into()))?) };
        staged.push(Staged { place, temp });
    }
    Ok(staged)
}

/// A copy of `from` beside `to`, complete on disk. Shares the bytes where the file system can.
fn copy(from: &Utf8Path, to: &Utf8Path) -> io::Result<NamedTempFile> {
    let folder = to.parent().unwrap_or(Utf8Path::new("/"));
    let name = format!(".{}-", to.file_name().unwrap_or_default());
    fs_err::create_dir_all(folder)?;
    sweep(folder, &name);
    let mut source = fs_err::File::open(from)?;
    let mut temp = tempfile::Builder::new().prefix(&name).tempfile_in(folder)?;
    if rustix::fs::ioctl_ficlone(temp.as_file(), source.file()).is_err() {
        io::copy(&mut source, temp.as_file_mut())?;
    }
    let mode = source.metadata()?.permissions().mode() | READ_AND_EXECUTE;
    temp.as_file().set_permissions(Permissions::from_mode(mode))?;
    temp.as_file().sync_all()?;
    Ok(temp)
}

/// Takes away what a build that was killed left beside its place; the caller holds the workspace's lock.
pub(super) fn sweep(folder: &Utf8Path, prefix: &str) {
    let Ok(entries) = folder.read_dir_utf8() else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().starts_with(prefix)) {
        let _ = fs_err::remove_file(entry.path());
    }
}

/// Renames everything in. All of it is on disk already, so that what can still fail is no matter of space.
pub(super) fn publish(
    plan: &BuildPlan,
    staged: Vec<Staged>,
    envelopes: Vec<StagedEnvelope>,
) -> Result<Vec<Published>, CommandError> {
    let mut published = Vec::new();
    for (host, binary) in plan.hosts.iter().zip(staged) {
        let is_new = binary.temp.is_some();
        rename(binary.temp, &binary.place, &host.name)?;
        published.push(is_new);
    }
    let mut results = Vec::new();
    for ((host, envelope), is_new) in plan.hosts.iter().zip(envelopes).zip(published) {
        rename(envelope.temp, &envelope.place, &host.name)?;
        results.push(Published { is_new, envelope: envelope.place });
    }
    Ok(results)
}

fn rename(temp: Option<NamedTempFile>, place: &Utf8Path, host: &str) -> Result<(), CommandError> {
    let Some(temp) = temp else { return Ok(()) };
    let failed = |error: io::Error| {
        CommandError::new(exit_code::BUILD, format!("`{place}` of host `{host}` cannot be replaced")).because(error)
    };
    temp.persist(place).map_err(|error| failed(error.error))?;
    if let Some(folder) = place.parent() {
        // The rename itself must be on disk too; a file system that cannot do that has done what it can.
        let _ = fs_err::File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}
