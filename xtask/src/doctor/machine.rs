//! This machine: what `torchlift probe` says of it, and room on its disks.

use camino::{Utf8Path, Utf8PathBuf};
use nix::unistd::{AccessFlags, access};
use torchlift::commands::probe::of_this_machine;
use torchlift::keys::check::{Looked, look as look_at_keys, summary};
use torchlift::keys::place;
use torchlift::preflight::code::HOST_FACT_UNREAD;
use torchlift::report::host::{Row, rows};
use torchlift_schema::HostFacts;
use torchlift_schema::host::{Bound, DiskFacts, DiskPurpose, LibcFlavour};

use super::{Check, Scene, Section, SectionId, State, quoted};
use crate::libtorch::event::human_size;
use crate::libtorch::free_space;

/// Below this nothing can be built or kept: a trainer's debug build alone has more. Bytes.
const NO_ROOM: u64 = 256 << 20;
/// A libtorch for CPUs takes half of it, a build of a trainer another quarter; one for CUDA takes 6 GiB and says so when it
/// is fetched. Bytes.
const LITTLE_ROOM: u64 = 2 << 30;
/// Temporary files of compilers and linkers. Bytes.
const LITTLE_TEMPORARY: u64 = 256 << 20;
/// What container engines give by default, and what one data loader's first batch uses up. Bytes.
const LITTLE_SHARED: u64 = 64 << 20;
/// Open files that systems have allowed at least for decades.
const FEW_FILES: u64 = 1024;

pub(super) fn look(scene: &Scene) -> Section {
    let facts = of_this_machine(&scene.env, scene.context.cwd.as_std_path(), scene.folder.as_std_path());
    let mut section = Section::new(SectionId::Machine);
    for row in rows(&facts).into_iter().filter(|row| row.name != "disk") {
        section.push(judged(&row, &facts));
    }
    for disk in &facts.disks {
        section.push(of_disk(disk));
    }
    if let Ok(places) = &scene.places {
        section.push(folder("store-folder", &places.store(), "TORCHLIFT_HOME"));
        section.push(folder("cache-folder", &places.cache, "TORCHLIFT_CACHE"));
    }
    keys(scene, &mut section);
    section.push(project(&scene.folder));
    section.push(temporary(scene));
    for problem in facts.problems {
        let mut check = Check::of_finding(problem);
        if check.id == HOST_FACT_UNREAD {
            check.state = State::Unchecked;
        }
        section.push(check);
    }
    section
}

fn judged(row: &Row, facts: &HostFacts) -> Check {
    let id = row.name.replace(' ', "-");
    let found = row.values.iter().map(|value| value.trim()).collect::<Vec<_>>().join("; ");
    match id.as_str() {
        "libc" => match &facts.libc {
            Some(libc) if libc.flavour == LibcFlavour::Glibc => Check::right(&id, found),
            Some(_) => Check::doubtful(
                &id,
                found,
                "every published libtorch needs glibc: work in a container of a system that has it",
            ),
            None => Check::doubtful(&id, found, "no program that is linked with glibc starts here: install it"),
        },
        "limits" => {
            let few = facts.limits.as_ref().map(|limits| limits.nofile.hard);
            match few {
                Some(Bound::At(files)) if files < FEW_FILES => Check::doubtful(
                    &id,
                    found,
                    "let the administrator raise the hard limit of open files (`/etc/security/limits.conf`, `ulimit -Hn`): each rank takes four",
                ),
                _ => Check::right(&id, found),
            }
        }
        _ => Check::right(&id, found),
    }
}

fn of_disk(disk: &DiskFacts) -> Check {
    let filesystem = disk.filesystem.as_ref().map(|kind| format!(", {kind}")).unwrap_or_default();
    let found = format!("{} free of {} in `{}`{filesystem}", human_size(disk.free), human_size(disk.total), disk.path);
    match disk.purpose {
        DiskPurpose::Shared if disk.total <= LITTLE_SHARED => Check::doubtful(
            "shared-memory",
            found,
            "data loaders and NCCL want more: start the container with `--shm-size=8g`, or `mount -o remount,size=8G /dev/shm`",
        ),
        DiskPurpose::Shared => Check::right("shared-memory", found),
        DiskPurpose::Temporary if disk.free < LITTLE_TEMPORARY => {
            Check::doubtful("temporary-disk", found, "make room there, or set `TMPDIR` to a folder that has it")
        }
        DiskPurpose::Temporary => Check::right("temporary-disk", found),
        DiskPurpose::Project => {
            room("project-disk", found, Some(disk.free), "make room there, or build elsewhere with `--builds-dir`")
        }
    }
}

/// The keys by which hosts are known over `tls`, by what their index says.
fn keys(scene: &Scene, section: &mut Section) {
    let Some(folder) = place::default_folder(&scene.env) else { return };
    let shown = quoted(folder.display());
    match look_at_keys(&folder, torchlift::clock::wall()) {
        Looked::Absent => section.push(Check::right(
            "keys",
            format!("{shown}, not there: only hosts that are reached over `tls` need them (`torchlift keys init`)"),
        )),
        Looked::There { index, findings } => {
            section.push(Check::right("keys", format!("{shown}: {}", summary(&index))));
            findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
        }
        Looked::Unusable(findings) => findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding))),
    }
}

fn room(id: &str, found: String, free: Option<u64>, remedy: &str) -> Check {
    match free {
        Some(free) if free < NO_ROOM => Check::wrong(id, found, remedy),
        Some(free) if free < LITTLE_ROOM => Check::doubtful(id, found, remedy),
        Some(_) => Check::right(id, found),
        None => Check::unchecked(id, found, "see that its file system is there"),
    }
}

/// A folder of this user, or that of it which is there already.
fn folder(id: &str, folder: &Utf8Path, variable: &str) -> Check {
    let there = nearest(folder);
    let is_there = there == folder;
    let remedy = format!("make it a folder that this user may write, or name another with `{variable}`");
    if !there.is_dir() {
        return Check::wrong(id, format!("{} is no folder", quoted(there)), remedy);
    }
    if let Err(error) = access(there.as_std_path(), AccessFlags::W_OK | AccessFlags::X_OK) {
        // What is in a store that cannot be written can be used all the same.
        return Check::doubtful(id, format!("{} cannot be written: {}", quoted(there), error.desc()), remedy);
    }
    let free = free_space(folder);
    let shown = free.map_or_else(|| "room not known".to_owned(), |free| format!("{} free", human_size(free)));
    let missing = if is_there { "" } else { ", not there yet" };
    room(
        id,
        format!("{}{missing}, {shown}", quoted(folder)),
        free,
        &format!("make room there, or name another with `{variable}`"),
    )
}

fn nearest(folder: &Utf8Path) -> &Utf8Path {
    folder.ancestors().find(|ancestor| fs_err::symlink_metadata(ancestor).is_ok()).unwrap_or(folder)
}

fn project(folder: &Utf8Path) -> Check {
    match access(folder.as_std_path(), AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Check::right("project-folder", format!("{} can be written", quoted(folder))),
        Err(error) => Check::doubtful(
            "project-folder",
            format!("{} cannot be written: {}", quoted(folder), error.desc()),
            "binaries, envelopes and runs are written below it: work in a copy that you may write",
        ),
    }
}

/// The folder for temporary files, by making one: compilers and linkers die without it, with errors of their own.
fn temporary(scene: &Scene) -> Check {
    let named = scene.env.get(std::ffi::OsStr::new(torchlift::env_vars::TMPDIR)).filter(|value| !value.is_empty());
    let folder =
        Utf8PathBuf::from(named.map_or_else(|| "/tmp".to_owned(), |value| value.to_string_lossy().into_owned()));
    let folder = scene.context.cwd.join(folder);
    match tempfile::Builder::new().prefix(".torchlift-doctor-").tempfile_in(&folder) {
        Ok(_) => Check::right("temporary-folder", format!("{} can be written", quoted(&folder))),
        Err(error) => Check::wrong(
            "temporary-folder",
            format!("nothing can be written in {}: {}", quoted(&folder), error.kind()),
            "set `TMPDIR` to a folder that this user may write: compilers and linkers need it",
        ),
    }
}
