//! The limits that control groups put on this process: v1, v2, and both at once (hybrid).
//!
//! Purpose: to find each controller's hierarchy through mountinfo, and to read its limits from the process's own group up
//! to the mount: the lowest holds. A group outside of the mount (a container without a namespace of its own) is looked for
//! at the mount itself, as that is what the container was given.

use std::path::{Path, PathBuf};

use super::Roots;
use super::mount::{self, Mount};

const GROUPS: &str = "/proc/self/cgroup";
/// Levels that are climbed at most; a path of the kernel has no more.
const MAX_LEVELS: usize = 256;

/// The hierarchy that a controller is in, and the process's place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// The mount, as the host names it.
    mount: PathBuf,
    /// The group, as the host names its folder: at or below `mount`.
    group: PathBuf,
    /// Whether it is the unified one.
    pub(super) is_unified: bool,
}

impl Hierarchy {
    /// The group's folders, from its own up to the mount.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.group.ancestors().take_while(|folder| folder.starts_with(&self.mount)).take(MAX_LEVELS)
    }

    /// The lowest of what `value` makes of a folder, over all folders of the group, and the folder that has it.
    pub(super) fn lowest(&self, value: impl Fn(&Path) -> Option<u64>) -> Option<(u64, PathBuf)> {
        let values = self.folders().filter_map(|folder| Some((value(folder)?, folder.to_owned())));
        values.min_by_key(|(value, _)| *value)
    }
}

/// Where `controller` (`memory`, `cpu`) limits this process; both where there are a v1 and a v2 hierarchy for it.
pub(super) fn hierarchies(roots: &Roots, controller: &str) -> Vec<Hierarchy> {
    let (Ok(groups), Ok(mounts)) = (roots.text(GROUPS), roots.text(mount::TABLE)) else { return Vec::new() };
    groups
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
            let is_unified = id == "0" && controllers.is_empty();
            if !is_unified && !controllers.split(',').any(|name| name == controller) {
                return None;
            }
            // A later mount over the same place hides the earlier one.
            let mount =
                mounts.lines().rev().filter_map(Mount::parse).find(|mount| serves(mount, controller, is_unified))?;
            let below = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
            // Seen from a namespace above it, the group of a process may be `/../x`.
            let is_outside = below.components().any(|part| part.as_os_str() == "..");
            let is_mount = is_outside || below.as_os_str().is_empty();
            let group = if is_mount { mount.place.clone() } else { mount.place.join(below) };
            Some(Hierarchy { mount: mount.place, group, is_unified })
        })
        .collect()
}

fn serves(mount: &Mount, controller: &str, is_unified: bool) -> bool {
    match is_unified {
        true => mount.kind == "cgroup2",
        false => mount.kind == "cgroup" && mount.options.split(',').any(|name| name == controller),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(groups: &str, mounts: &str) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs_err::write(folder.path().join("proc/self/cgroup"), groups).unwrap();
        fs_err::write(folder.path().join("proc/self/mountinfo"), mounts).unwrap();
        let roots = Roots::below(folder.path());
        (folder, roots)
    }

    #[test]
    fn a_hybrid_layout_has_the_controller_where_it_is_mounted() {
        let groups = "4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/u\n";
        let mounts = "34 31 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let (_folder, roots) = roots(groups, mounts);
        let shown = |controller| {
            let found = hierarchies(&roots, controller).into_iter();
            found.map(|it| (it.group.display().to_string(), it.is_unified)).collect::<Vec<_>>()
        };
        let unified = || ("/sys/fs/cgroup/unified/u".to_owned(), true);
        assert_eq!(shown("memory"), [("/sys/fs/cgroup/memory/a/b".to_owned(), false), unified()]);
        assert_eq!(shown("cpu"), [("/sys/fs/cgroup/cpu,cpuacct/c".to_owned(), false), unified()]);
    }

    #[test]
    fn a_container_that_got_a_part_of_the_hierarchy_finds_its_group_in_it() {
        let mounts = "34 31 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let group = |groups: &str| {
            let (_folder, roots) = roots(groups, mounts);
            hierarchies(&roots, "memory")[0].folders().map(|folder| folder.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(group("4:memory:/docker/abc/job\n"), ["/sys/fs/cgroup/memory/job", "/sys/fs/cgroup/memory"]);
        assert_eq!(group("4:memory:/elsewhere\n"), ["/sys/fs/cgroup/memory"]);
        assert_eq!(group("4:memory:/docker/abc/../x\n"), ["/sys/fs/cgroup/memory"]);
    }
}
