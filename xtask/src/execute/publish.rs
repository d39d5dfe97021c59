//! Binaries in their places: copied beside them first, renamed in at the very end.
//!
//! Never a hard link to cargo's own file: some linkers write that in place, under the feet of a running rank. A rename
//! leaves a running rank its old file.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use tempfile::NamedTempFile;
use torchlift::preflight::DigestCache;
use torchlift::preflight::digest::DigestError;
use torchlift_schema::exit_code;

use super::envelope::StagedEnvelope;
use super::interrupt::Interrupt;
use crate::cargo::CargoRun;
use crate::error::{Cause, CommandError};
use crate::plan::{BuildKey, BuildPlan, HostBuild};

/// Whoever builds may read and execute what was built, whatever mode the linker gave it.
const READ_AND_EXECUTE: u32 = 0o500;

/// Bytes that are copied before it is asked whether a signal came: a moment's work for any disk.
const CHUNK: u64 = 16 << 20;

/// What to do when something cannot be written to its place.
pub(super) const UNWRITABLE: &str = "make room, and see that you may write below `target/cluster`; then build again";

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
pub(super) fn stage<'a>(
    plan: &'a BuildPlan,
    runs: &BTreeMap<BuildKey, CargoRun>,
    mut digests: DigestCache,
    interrupt: Interrupt<'_>,
) -> Result<(Vec<Staged>, DigestCache), CommandError> {
    let built =
        |host: &'a HostBuild| Some((host, runs.get(&host.build)?.executable.clone(), plan.workspace.join(&host.bin)));
    let hosts: Vec<(&HostBuild, Utf8PathBuf, Utf8PathBuf)> = plan.hosts.iter().filter_map(built).collect();
    let files: Vec<(Utf8PathBuf, Utf8PathBuf)> =
        hosts.iter().map(|(_, executable, place)| (executable.clone(), place.clone())).collect();
    let (are_there, digests) = interrupt.read(move || {
        let answers: Vec<_> = files.iter().map(|(from, to)| is_there(from, to, &mut digests)).collect();
        (answers, digests)
    })?;
    let mut staged = Vec::new();
    for ((host, executable, place), is_there) in hosts.into_iter().zip(are_there) {
        let failed = |error: Cause| {
            CommandError::new(exit_code::BUILD, format!("the binary of host `{}` cannot be published", host.name))
                .because(error)
                .hint(UNWRITABLE)
        };
        let temp = if is_there.map_err(|error| failed(error.into()))? {
            None
        } else {
            let copy = Copy::begin(&executable, &place).map_err(|error| failed(error.into()))?;
            Some(copy.end(interrupt, failed)?)
        };
        staged.push(Staged { place, temp });
    }
    Ok((staged, digests))
}

/// Whether a host's place has the bytes of the program already.
fn is_there(executable: &Utf8Path, place: &Utf8Path, digests: &mut DigestCache) -> Result<bool, DigestError> {
    let digest = digests.digest(executable.as_std_path())?;
    let is_file = fs_err::symlink_metadata(place).is_ok_and(|metadata| metadata.is_file());
    Ok(is_file && digests.digest(place.as_std_path()).is_ok_and(|there| there == digest))
}

/// A copy of a program beside its place. Shares the bytes where the file system can.
struct Copy {
    source: fs_err::File,
    temp: NamedTempFile,
    is_whole: bool,
}

impl Copy {
    fn begin(from: &Utf8Path, to: &Utf8Path) -> io::Result<Self> {
        let folder = to.parent().unwrap_or(Utf8Path::new("/"));
        let name = format!(".{}-", to.file_name().unwrap_or_default());
        fs_err::create_dir_all(folder)?;
        sweep(folder, &name);
        let source = crate::file::open(from)?;
        let temp = tempfile::Builder::new().prefix(&name).tempfile_in(folder)?;
        let is_whole = rustix::fs::ioctl_ficlone(temp.as_file(), source.file()).is_ok();
        Ok(Self { source, temp, is_whole })
    }

    /// The copy, complete on disk; a signal ends it between two chunks.
    fn end(
        mut self,
        interrupt: Interrupt<'_>,
        failed: impl Fn(Cause) -> CommandError,
    ) -> Result<NamedTempFile, CommandError> {
        let io = |error: io::Error| failed(error.into());
        while !self.is_whole {
            interrupt.check()?;
            let copied = io::copy(&mut self.source.file().take(CHUNK), self.temp.as_file_mut()).map_err(io)?;
            self.is_whole = copied == 0;
        }
        let mode = self.source.metadata().map_err(io)?.permissions().mode() | READ_AND_EXECUTE;
        self.temp.as_file().set_permissions(Permissions::from_mode(mode)).map_err(io)?;
        self.temp.as_file().sync_all().map_err(io)?;
        Ok(self.temp)
    }
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
        CommandError::new(exit_code::BUILD, format!("`{place}` of host `{host}` cannot be replaced"))
            .because(error)
            .hint(UNWRITABLE)
    };
    temp.persist(place).map_err(|error| failed(error.error))?;
    if let Some(folder) = place.parent() {
        // The rename itself must be on disk too; a file system that cannot do that has done what it can.
        let _ = fs_err::File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}
