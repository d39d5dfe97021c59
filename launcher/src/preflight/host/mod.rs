//! What is this host? The facts that every question of fit is asked of.
//!
//! Purpose: reads a host into [`HostFacts`], each module one section: `cpu`, `cores`, `memory`, `libc`, `loader`,
//! `disk`, `limit`, `system`; cards are `gpu`'s, and [`saved`] keeps facts in `cluster.facts.json`.
//! What cannot be read is left out and becomes a problem with its reason; no reading ends another.
//! All of /proc, /sys and /dev is read below [`Roots`], so that recorded trees of other machines read the same.
//! Must not start a process, print, or read the environment.

mod cgroup;
mod cores;
mod cpu;
mod disk;
mod libc;
mod limit;
mod loader;
mod memory;
mod mount;
pub mod saved;
mod system;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift_schema::host::DiskPurpose;
use torchlift_schema::{Finding, HostFacts, Place};

use super::code;
use super::gpu::{self, Sources};
use super::loader::{HostLibraries, LibraryPath};
use crate::plan::stamp;

/// Where a host's files are: `/proc`, `/sys` and `/dev`, and all others below a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// In place of `/`.
    pub root: PathBuf,
    /// In place of `/proc`.
    pub proc: PathBuf,
    /// In place of `/sys`.
    pub sys: PathBuf,
    /// In place of `/dev`.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::below("/")
    }
}

impl Roots {
    /// The files of a host whose `/` is `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { proc: root.join("proc"), sys: root.join("sys"), dev: root.join("dev"), root }
    }

    /// The file that is `path`, an absolute path, on the host.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        for (name, root) in [("/proc", &self.proc), ("/sys", &self.sys), ("/dev", &self.dev)] {
            if let Ok(below) = path.strip_prefix(name) {
                // `join("")` would put a slash at its end.
                return if below.as_os_str().is_empty() { root.clone() } else { root.join(below) };
            }
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, with replacement characters where it is no UTF-8.
    ///
    /// # Errors
    /// What reading it says.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        fs_err::read(self.path(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first line of a file without white space around it; none where it cannot be read or is empty.
    pub fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = self.text(path).ok()?;
        let line = text.lines().next()?.trim_matches(|character: char| character.is_whitespace() || character == '\0');
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Names in a folder, sorted; none where there is no such folder.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs_err::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is something at this path.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }
}

/// What is asked.
#[derive(Debug)]
pub struct Question<'a> {
    /// Where the host's files are.
    pub roots: &'a Roots,
    /// CPU architecture as in a target triple.
    pub arch: &'a str,
    /// Where the host's libraries are.
    pub libraries: &'a HostLibraries,
    /// LD_LIBRARY_PATH of the environment that is asked about.
    pub library_path: &'a LibraryPath,
    /// The working directory, for relative elements of it.
    pub cwd: &'a Path,
    /// Folders whose room is told.
    pub folders: &'a [(PathBuf, DiskPurpose)],
    /// From where cards are read.
    pub cards: &'a Sources<'a>,
    /// The wall clock, as time since 1970.
    pub now: Duration,
}

/// Reads a host.
pub fn read(question: &Question<'_>) -> HostFacts {
    let mut problems = Problems::default();
    let roots = question.roots;
    let system = system::read(roots, &mut problems);
    let cpu = cpu::read(roots, question.arch, question.libraries, &mut problems);
    let cores = cores::read(roots, &mut problems);
    // To the second: a fact is not read in a millisecond either.
    let read_at = stamp(Duration::from_secs(question.now.as_secs())).replace(".000Z", "Z");
    let mut facts = HostFacts::new(read_at, env!("CARGO_PKG_VERSION"), system, cpu, cores);
    facts.memory = memory::read(roots, &mut problems);
    (facts.libc, facts.libraries) = libc::read(question, &mut problems);
    facts.loader = loader::read(question);
    facts.disks = disk::read(question, &mut problems);
    facts.limits = limit::read(roots, &mut problems);
    let cards = gpu::read(&gpu::Question {
        roots,
        arch: question.arch,
        libraries: question.libraries,
        library_path: question.library_path,
        cwd: question.cwd,
        sources: question.cards,
        memory: facts.memory.total,
    });
    (facts.nvidia, facts.amd, facts.gpus) = (cards.nvidia, cards.amd, cards.gpus);
    facts.problems = problems.list;
    facts.problems.extend(cards.problems);
    facts
}

/// What could not be read.
#[derive(Debug, Default)]
pub(in crate::preflight) struct Problems {
    pub(in crate::preflight) list: Vec<Finding>,
}

impl Problems {
    /// Adds that a section of the facts (`key`) could not be read in the kernel's files, and why.
    pub(in crate::preflight) fn unread(&mut self, key: &str, message: impl Into<String>) {
        self.unknown(key, message, "let this user read it; a container may have hidden it");
    }

    /// Adds that a section of the facts (`key`) is not known, why, and what to do.
    pub(in crate::preflight) fn unknown(&mut self, key: &str, message: impl Into<String>, remedy: &str) {
        let place = Place::default().key(key);
        self.list.push(Finding::warning(code::HOST_FACT_UNREAD, place, message).remedy(remedy));
    }
}

/// The value behind `key:` in a text of such lines, as in /proc.
pub(in crate::preflight) fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_host_is_found_below_its_own_root() {
        let mut roots = Roots::below("/recorded");
        roots.sys = "/elsewhere/sys".into();
        let shown = |path: &str| roots.path(path).display().to_string();
        assert_eq!(shown("/proc/self/status"), "/recorded/proc/self/status");
        assert_eq!(shown("/sys/fs/cgroup"), "/elsewhere/sys/fs/cgroup");
        assert_eq!(shown("/sys"), "/elsewhere/sys");
        assert_eq!(shown("/etc/os-release"), "/recorded/etc/os-release");
        assert_eq!(shown("/process"), "/recorded/process");
        assert_eq!(Roots::default().path("/proc/meminfo"), Path::new("/proc/meminfo"));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotal:       24683656 kB\nMemTotalX: 1 kB\nmodel name\t: A: b\n";
        assert_eq!(field(text, "MemTotal"), Some("24683656 kB"));
        assert_eq!(field(text, "model name"), Some("A: b"));
        assert_eq!(field(text, "Mem"), None);
    }
}
