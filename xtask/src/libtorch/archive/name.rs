//! What an entry of an archive may be called, where its links may lead, and how much may come out of it.
//!
//! The limits are some ten times what the largest libtorch has, so that a real one never meets them, and an archive that was
//! made to fill a disk or the memory ends early.

use std::path::Component;

use camino::Utf8Path;

/// Entries; torch 2.9 with CUDA has 12,000.
pub(in crate::libtorch) const MAX_ENTRIES: usize = 200_000;
/// Bytes of all files together; the largest libtorch, for ROCm, has some 20 GB.
pub(in crate::libtorch) const MAX_BYTES: u64 = 64 << 30;
/// Bytes of a link's text: what Linux takes as a path.
pub(super) const MAX_LINK: u64 = 4096;
/// Bytes of one of an archive's own lists, such as `RECORD`, which are read into memory.
pub(super) const MAX_LIST: u64 = 64 << 20;
/// Left free on the disk of what is unpacked.
pub(in crate::libtorch) const SLACK: u64 = 64_000_000;

/// Whether a name, taken below a folder, stays below it on every file system: relative, `/` only, no `..`, no NUL.
pub(super) fn is_inside(name: &str) -> bool {
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && Utf8Path::new(name).as_std_path().components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a link at `from` with this text leads to a place below `root`, by its text alone.
///
/// `..` is taken at its beginning only. Behind a name it could mean the parent of what a link of that name leads to,
/// which the text does not tell. Since no entry lies below a link either, what is at the beginning is a real folder.
pub(super) fn stays_inside(root: &Utf8Path, from: &Utf8Path, target: &str) -> bool {
    if target.is_empty() || target.contains(['\0', '\\']) || target.starts_with('/') {
        return false;
    }
    let Some(below) = from.parent().and_then(|folder| folder.strip_prefix(root).ok()) else { return false };
    let mut depth = below.components().count();
    let mut is_going_down = false;
    for part in Utf8Path::new(target).as_std_path().components() {
        match part {
            Component::ParentDir if depth == 0 || is_going_down => return false,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => is_going_down = true,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_folder_are_known_by_their_text() {
        for name in ["torch/lib/libc10.so", "a b/ü.h", "torch/include/"] {
            assert!(is_inside(name), "{name}");
        }
        for name in ["../x", "torch/../../x", "/etc/passwd", "a\\..\\b", "a\0b", "", "."] {
            assert!(!is_inside(name), "{name:?}");
        }
    }

    #[test]
    fn a_link_may_point_beside_itself_and_never_out() {
        let root = Utf8Path::new("/store/x");
        let from = Utf8Path::new("/store/x/lib/libgomp.so");
        for target in ["libgomp.so.1", "../include/a", "./b", "..", "a/b/c"] {
            assert!(stays_inside(root, from, target), "{target}");
        }
        for target in ["/etc/passwd", "../../etc", "a/../../../b", "", "a/../b", "../lib/..", "a\0"] {
            assert!(!stays_inside(root, from, target), "{target:?}");
        }
    }
}
