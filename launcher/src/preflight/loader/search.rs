//! The search for one name: which folders, in which order, and what is taken there.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::token::{Tokens, expand};
use super::{HostLibraries, How, LibraryPath, Missing, MissingReason, Object};
use crate::preflight::elf::{self, ElfError, ElfFacts, Kind};

/// What a search ends with.
pub(super) enum Found {
    At {
        path: PathBuf,
        how: How,
        facts: Box<ElfFacts>,
    },
    /// With an empty `needed_by`, which the caller knows.
    Nowhere(Missing),
}

/// What the loader makes of a candidate.
pub(super) enum Probe {
    /// Not there, or may not be read: the search goes on.
    Absent,
    /// An ELF file for another machine: the search goes on.
    OtherMachine(String),
    /// It is taken.
    Usable(Box<ElfFacts>),
    /// It is taken, and the loader dies of it.
    Unusable(ElfError),
}

impl Probe {
    pub(super) fn into_reason(self, path: PathBuf) -> MissingReason {
        match self {
            Self::OtherMachine(arch) => MissingReason::NotFound { other_machines: vec![(path, arch)] },
            Self::Unusable(error) => MissingReason::Unusable { path, error },
            Self::Absent | Self::Usable(_) => MissingReason::NotFound { other_machines: Vec::new() },
        }
    }
}

/// What is the same for all searches of one program.
pub(super) struct Searcher<'a> {
    host: &'a HostLibraries,
    cwd: &'a Path,
    /// LD_LIBRARY_PATH, expanded: its `$ORIGIN` is the program's folder.
    library_path: Vec<PathBuf>,
    /// The program's folder, by its real path, as the kernel tells it.
    program_folder: Option<String>,
    program: ElfFacts,
    /// For a folder that was looked at: the subfolders of it that exist, with itself, in the order of the search.
    folders: HashMap<PathBuf, Vec<PathBuf>>,
}

/// One search on its way.
#[derive(Default)]
struct Trail {
    searched: Vec<PathBuf>,
    other_machines: Vec<(PathBuf, String)>,
}

/// How a list of folders ended.
enum Step {
    GoOn,
    Done(Box<Found>),
}

impl<'a> Searcher<'a> {
    pub(super) fn new(
        library_path: &LibraryPath,
        cwd: &'a Path,
        host: &'a HostLibraries,
        program: &ElfFacts,
        binary: &Path,
    ) -> Self {
        let real = fs_err::canonicalize(binary).ok();
        let program_folder = real.as_deref().and_then(Path::parent).and_then(Path::to_str).map(str::to_owned);
        let mut searcher = Self {
            host,
            cwd,
            library_path: Vec::new(),
            program_folder,
            program: program.clone(),
            folders: HashMap::new(),
        };
        let origin = searcher.program_folder.as_deref();
        let elements = library_path.elements().iter();
        let expanded = elements.filter_map(|element| searcher.folder(&element.to_string_lossy(), origin)).collect();
        searcher.library_path = expanded;
        searcher
    }

    fn tokens<'b>(&'b self, origin: Option<&'b str>) -> Tokens<'b> {
        Tokens { origin, lib: &self.host.lib, platform: self.host.platform.as_deref() }
    }

    /// An element of a search path as an absolute folder; an empty one is the working directory.
    fn folder(&self, element: &str, origin: Option<&str>) -> Option<PathBuf> {
        expand(element, self.tokens(origin)).map(|folder| self.cwd.join(folder))
    }

    /// The folder that `$ORIGIN` is for `object`: by the path that it was opened with, but for the program.
    fn origin(&self, object: &Object) -> Option<String> {
        if object.loader.is_none() && object.how != How::Interpreter {
            return self.program_folder.clone();
        }
        self.cwd.join(&object.path).parent().and_then(Path::to_str).map(str::to_owned)
    }

    /// A DT_NEEDED of `object` with its tokens replaced.
    pub(super) fn expand_name(&self, name: &str, object: &Object) -> String {
        if !name.contains('$') {
            return name.to_owned();
        }
        let origin = self.origin(object);
        expand(name, self.tokens(origin.as_deref())).unwrap_or_else(|| name.to_owned())
    }

    /// Searches `name` for the object at `index`.
    pub(super) fn search(&mut self, name: &str, index: usize, objects: &[Object]) -> Found {
        let mut trail = Trail::default();
        match self.steps(name, index, objects, &mut trail) {
            Step::Done(found) => *found,
            Step::GoOn => nowhere(name, trail, None),
        }
    }

    fn steps(&mut self, name: &str, index: usize, objects: &[Object], trail: &mut Trail) -> Step {
        if name.contains('/') {
            let path = self.cwd.join(name);
            return self.take(name, path, How::Path, trail);
        }
        let needing = &objects[index];
        if needing.facts.runpath.is_none() {
            let mut link = Some(index);
            while let Some(object) = link.map(|link| &objects[link]) {
                let folders = self.own_folders(object, &object.facts.rpath);
                if let Step::Done(found) = self.look(name, &folders, How::Rpath, trail) {
                    return Step::Done(found);
                }
                link = object.loader;
            }
        }
        let folders = self.library_path.clone();
        if let Step::Done(found) = self.look(name, &folders, How::LibraryPath, trail) {
            return Step::Done(found);
        }
        if let Some(runpath) = &needing.facts.runpath {
            let folders = self.own_folders(needing, runpath);
            if let Step::Done(found) = self.look(name, &folders, How::Runpath, trail) {
                return Step::Done(found);
            }
        }
        let is_default = |path: &Path| self.host.default_folders.iter().any(|folder| path.starts_with(folder));
        let cached = HostLibraries::cache_flags(&self.program.arch)
            .and_then(|flags| self.host.cache.lookup(name, flags, &self.host.hwcaps))
            .map(|path| self.host.of_system(&path))
            .filter(|path| !needing.facts.has_nodefaultlib || !is_default(path));
        if let Some(path) = cached
            && let Step::Done(found) = self.take(name, path, How::Cache, trail)
        {
            return Step::Done(found);
        }
        if needing.facts.has_nodefaultlib {
            return Step::GoOn;
        }
        let folders = self.host.default_folders.clone();
        self.look(name, &folders, How::DefaultFolder, trail)
    }

    fn own_folders(&self, object: &Object, elements: &[String]) -> Vec<PathBuf> {
        if elements.is_empty() {
            return Vec::new();
        }
        let origin = self.origin(object);
        elements.iter().filter_map(|element| self.folder(element, origin.as_deref())).collect()
    }

    /// Looks for `name` in `folders`, and in the glibc-hwcaps folders of each first.
    fn look(&mut self, name: &str, folders: &[PathBuf], how: How, trail: &mut Trail) -> Step {
        for folder in folders {
            let shown = self.host.at(folder);
            if !trail.searched.contains(&shown) {
                trail.searched.push(shown);
            }
            for place in self.places(folder) {
                if let Step::Done(found) = self.take(name, place.join(name), how, trail) {
                    return Step::Done(found);
                }
            }
        }
        Step::GoOn
    }

    fn places(&mut self, folder: &Path) -> Vec<PathBuf> {
        if let Some(places) = self.folders.get(folder) {
            return places.clone();
        }
        let mut places = Vec::new();
        let is_dir = |path: &Path| self.host.at(path).is_dir();
        if is_dir(folder) {
            let hwcaps = folder.join("glibc-hwcaps");
            if is_dir(&hwcaps) {
                places.extend(self.host.hwcaps.iter().map(|level| hwcaps.join(level)).filter(|place| is_dir(place)));
            }
            places.push(folder.to_owned());
        }
        self.folders.insert(folder.to_owned(), places.clone());
        places
    }

    fn take(&self, name: &str, path: PathBuf, how: How, trail: &mut Trail) -> Step {
        let path = self.host.at(&path);
        match self.probe(&path) {
            Probe::Absent => Step::GoOn,
            Probe::OtherMachine(arch) => {
                trail.other_machines.push((path, arch));
                Step::GoOn
            }
            Probe::Usable(facts) => Step::Done(Box::new(Found::At { path, how, facts })),
            Probe::Unusable(error) => {
                let trail = std::mem::take(trail);
                Step::Done(Box::new(nowhere(name, trail, Some((path, error)))))
            }
        }
    }

    /// Where the loader lies that a program names as its own.
    pub(super) fn interpreter(&self, name: &str) -> PathBuf {
        self.host.at(&self.host.of_system(Path::new(name)))
    }

    /// What the loader makes of the file at `path`.
    pub(super) fn probe(&self, path: &Path) -> Probe {
        match elf::read(path) {
            // A file for another machine is told from its first bytes; whatever follows may be damaged.
            Ok(facts) if !facts.is_same_machine(&self.program) => Probe::OtherMachine(facts.arch),
            Ok(facts) if facts.kind == Kind::Other => Probe::Unusable(ElfError::Damaged {
                path: path.to_owned(),
                what: "it is neither a program nor a library",
            }),
            Ok(facts) => Probe::Usable(Box::new(facts)),
            Err(ElfError::Unreadable { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
                ) =>
            {
                Probe::Absent
            }
            Err(error) => Probe::Unusable(error),
        }
    }
}

fn nowhere(name: &str, trail: Trail, unusable: Option<(PathBuf, ElfError)>) -> Found {
    let reason = match unusable {
        Some((path, error)) => MissingReason::Unusable { path, error },
        None => MissingReason::NotFound { other_machines: trail.other_machines },
    };
    Found::Nowhere(Missing {
        name: name.to_owned(),
        needed_by: PathBuf::new(),
        searched: trail.searched,
        reason,
        is_interpreter: false,
    })
}

/// Device and inode of the file at `path`.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs_err::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
