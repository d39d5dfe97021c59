//! Room on disks.

use std::path::Path;

use nix::sys::statvfs::statvfs;
use torchlift_schema::host::{DiskFacts, MOST_BYTES};

use super::{Problems, Question, mount};

/// Reads the room of each folder that was asked about.
pub(super) fn read(question: &Question<'_>, problems: &mut Problems) -> Vec<DiskFacts> {
    let mounts = question.roots.text(mount::TABLE).unwrap_or_default();
    let mut disks = Vec::new();
    for (path, purpose) in question.folders {
        let there = question.roots.path(path);
        match statvfs(&there) {
            Ok(room) => {
                let bytes = |blocks: u64| blocks.saturating_mul(room.fragment_size()).min(MOST_BYTES);
                let mut disk = DiskFacts::new(
                    path.to_string_lossy(),
                    *purpose,
                    bytes(room.blocks()),
                    bytes(room.blocks_available()),
                );
                disk.filesystem = mount::filesystem(&mounts, &real(path));
                disk.from.push("statvfs".to_owned());
                disks.push(disk);
            }
            Err(error) => {
                let message = format!("the room in `{}` cannot be read: {error}", path.display());
                problems.unknown("disks", message, "make the folder, or let this user enter it");
            }
        }
    }
    disks
}

fn real(path: &Path) -> std::path::PathBuf {
    fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
