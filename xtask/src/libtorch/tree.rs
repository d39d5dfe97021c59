//! Taking a libtorch from a folder into a variant: which files, and that each is taken as what it is.
//!
//! The folder is a libtorch of its own (`lib`, `include`), or the `torch` folder of an unpacked wheel, whose further
//! libraries lie beside it. Owns the flat layout of what comes from folders; [`super::cut`] owns it for wheels.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::elf;

use super::archive::{MAX_BYTES, MAX_ENTRIES, SLACK};
use super::cut::{is_python_only, is_shared, needs, provider};
use super::event::{FetchEvent, Listener, human_size};
use super::tool::free_space;

/// Folders of a libtorch that are taken.
const FOLDERS: [&str; 5] = ["lib", "include", "share", "bin", "licenses"];
/// Of a Python package: the rest of it is Python's.
const PACKAGE_FOLDERS: [&str; 3] = ["lib", "include", "share"];
/// Files beside them.
const FILES: [&str; 6] = ["build-version", "build-hash", "LICENSE", "NOTICE", "LICENSE.txt", "NOTICE.txt"];
/// How deep a libtorch may lie in what an archive holds: `site-packages/torch`.
const DEPTH: usize = 4;
/// Problems that are named; of more the number is said.
const NAMED: usize = 8;

/// Why a folder is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Nothing in it is a libtorch.
    #[error("`{folder}` holds no libtorch: no `lib/libtorch_cpu.so`")]
    NoLibtorch {
        /// What was looked through: an archive or a folder.
        folder: Utf8PathBuf,
    },
    /// There is more than one.
    #[error("`{folder}` holds more than one libtorch: {}", found.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", "))]
    Several {
        /// What was looked through.
        folder: Utf8PathBuf,
        /// Where they are, below it.
        found: Vec<Utf8PathBuf>,
    },
    /// It does not say of itself that it is a libtorch and nothing else.
    #[error(
        "`{root}` has neither `build-version` nor `version.py`, so that nothing says that it holds a libtorch and nothing else"
    )]
    NotItsOwn {
        /// The folder.
        root: Utf8PathBuf,
    },
    /// Some of its files cannot be taken.
    #[error("{count} of the files of `{root}` cannot be taken: {}", some.join("; "))]
    Files {
        /// The folder.
        root: Utf8PathBuf,
        /// How many.
        count: usize,
        /// The first of them, with the reason.
        some: Vec<String>,
    },
    /// It is larger than a libtorch can be.
    #[error("`{root}` holds {entries} files of {} together, and a libtorch has at most {MAX_ENTRIES} of {}", human_size(*bytes), human_size(MAX_BYTES))]
    TooLarge {
        /// The folder.
        root: Utf8PathBuf,
        /// Files and links.
        entries: usize,
        /// Bytes.
        bytes: u64,
    },
    /// The store's disk has too little room.
    #[error("no room in `{folder}`: {} are needed, and it has {} free", human_size(*needed), human_size(*available))]
    Space {
        /// The folder on that disk.
        folder: Utf8PathBuf,
        /// Bytes.
        needed: u64,
        /// Bytes.
        available: u64,
    },
    /// A file cannot be read or written.
    #[error("`{file}` could not be read or written")]
    Io {
        /// The file.
        file: Utf8PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl TreeError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoLibtorch { .. } => Some(
                "name a folder that has `lib` and `include`, the `torch` folder of an unpacked wheel, a wheel, or an archive of one"
                    .to_owned(),
            ),
            Self::Several { .. } => Some("unpack it, and name the folder that is meant".to_owned()),
            Self::NotItsOwn { root } => Some(format!(
                "where it holds nothing else, write its version into `{root}/build-version`; a libtorch among other software is named \
                 by its path: `libtorch = \"{root}\"`"
            )),
            Self::Files { .. } => Some("take them away, or name a copy of the folder without them".to_owned()),
            Self::Space { .. } => Some("make room there, or name another place with `TORCHLIFT_HOME`".to_owned()),
            Self::Io { source, .. } => super::stage::store_hint(source),
            Self::TooLarge { .. } => None,
        }
    }
}

/// How files come into the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// They stay where they are as well.
    Copy,
    /// They were unpacked for this, on the same disk.
    Move,
}

/// The one libtorch in what an archive held.
pub(super) fn locate(folder: &Utf8Path, named: &Utf8Path) -> Result<Utf8PathBuf, TreeError> {
    let found: BTreeSet<Utf8PathBuf> = walkdir::WalkDir::new(folder)
        .max_depth(DEPTH + 2)
        .into_iter()
        .flatten()
        .filter_map(|entry| Utf8PathBuf::from_path_buf(entry.into_path()).ok())
        .filter_map(|path| Some(path.as_str().strip_suffix("/lib/libtorch_cpu.so")?.into()))
        .collect();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(root), None) => Ok(root),
        (None, _) => Err(TreeError::NoLibtorch { folder: named.to_owned() }),
        (Some(first), Some(second)) => {
            let below = |path: Utf8PathBuf| path.strip_prefix(folder).map(Utf8Path::to_owned).unwrap_or(path);
            let all = [first, second].into_iter().chain(found).map(below).collect();
            Err(TreeError::Several { folder: named.to_owned(), found: all })
        }
    }
}

/// What is taken: where from, by where it goes below the variant.
#[derive(Default)]
struct Plan {
    files: BTreeMap<Utf8PathBuf, Utf8PathBuf>,
    links: BTreeMap<Utf8PathBuf, String>,
    folders: BTreeSet<Utf8PathBuf>,
    bytes: u64,
    problems: Vec<String>,
}

/// Refuses a folder in which there is something else in the place of a file that says its version: reading a pipe would
/// wait for its writer.
pub(super) fn look(root: &Utf8Path) -> Result<(), TreeError> {
    let is_other = |name: &&str| root.join(name).exists() && !root.join(name).is_file();
    let wrong = ["build-version", "version.py", "lib/libtorch_cpu.so", "lib/libc10.so"].into_iter().filter(is_other);
    let some: Vec<String> = wrong.map(|name| format!("`{}` is no regular file", root.join(name))).collect();
    if some.is_empty() { Ok(()) } else { Err(TreeError::Files { root: root.to_owned(), count: some.len(), some }) }
}

/// Takes the libtorch in `root` into `to`, which is there and empty.
pub(super) fn take(root: &Utf8Path, to: &Utf8Path, manner: Manner, listen: Listener<'_>) -> Result<(), TreeError> {
    let stated = version_of_package(root);
    let is_package = stated.is_some() && !root.join("build-version").exists();
    if !is_package && !root.join("build-version").is_file() {
        return Err(TreeError::NotItsOwn { root: root.to_owned() });
    }
    let mut plan = Plan::default();
    let folders: &[&str] = if is_package { &PACKAGE_FOLDERS } else { &FOLDERS };
    // A folder that is itself a link is followed: it stands for the folder, as `lib` of a distribution may.
    for name in folders.iter().filter(|name| root.join(name).is_dir()) {
        plan.folder(root, name, is_package);
    }
    for name in FILES.iter().filter(|name| root.join(name).is_file()) {
        plan.files.insert((*name).into(), root.join(name));
    }
    if is_package {
        plan.beside(root);
    }
    if !plan.problems.is_empty() {
        let count = plan.problems.len();
        plan.problems.truncate(NAMED);
        return Err(TreeError::Files { root: root.to_owned(), count, some: plan.problems });
    }
    plan.measure(root, to, manner)?;
    plan.carry_out(root, to, manner, listen)?;
    match stated.filter(|_| is_package) {
        Some(version) => {
            let file = to.join("build-version");
            fs_err::write(&file, format!("{version}\n")).map_err(|source| TreeError::Io { file, source })
        }
        None => Ok(()),
    }
}

/// Takes libraries that those of the variant in `root` need from further folders: a CUDA toolkit's `lib64`, say, of which
/// most has no business here. With one that is needed come the others of its package, which it loads by name.
pub(super) fn complete(root: &Utf8Path, folders: &[Utf8PathBuf], listen: Listener<'_>) -> Result<(), TreeError> {
    if folders.is_empty() {
        return Ok(());
    }
    let lib = root.join("lib");
    // By the name that others need it by; a library's further names are links to the same file.
    let mut offers: BTreeMap<String, Utf8PathBuf> = BTreeMap::new();
    for folder in folders {
        let entries = folder.read_dir_utf8().map_err(|source| TreeError::Io { file: folder.clone(), source })?;
        for entry in entries.flatten().filter(|entry| is_shared(entry.file_name())) {
            if let Some(soname) = soname(entry.path()).filter(|soname| soname == entry.file_name()) {
                offers.entry(soname).or_insert_with(|| entry.into_path());
            }
        }
    }
    let entries = lib.read_dir_utf8().map_err(|source| TreeError::Io { file: lib.clone(), source })?;
    let mut queue: Vec<Utf8PathBuf> = entries.flatten().map(camino::Utf8DirEntry::into_path).collect();
    queue.retain(|path| is_shared(path.as_str()));
    while let Some(library) = queue.pop() {
        for name in needs(&library) {
            if !offers.contains_key(&name) || lib.join(&name).exists() {
                continue;
            }
            let is_of_it =
                |other: &String| *other == name || provider(&name).is_some_and(|of| provider(other) == Some(of));
            for (other, from) in offers.iter().filter(|(other, _)| is_of_it(other)) {
                let to = lib.join(other);
                if !to.exists() {
                    listen(FetchEvent::Note(format!("taking `{from}`")));
                    fs_err::copy(from, &to).map_err(|source| TreeError::Io { file: to.clone(), source })?;
                    queue.push(to);
                }
            }
        }
    }
    Ok(())
}

fn soname(library: &Utf8Path) -> Option<String> {
    elf::read(library.as_std_path()).ok()?.soname
}

impl Plan {
    /// Everything below the folder `name` of `root`.
    fn folder(&mut self, root: &Utf8Path, name: &str, is_package: bool) {
        let start = root.join(name);
        let real = start.canonicalize_utf8().unwrap_or_else(|_| start.clone());
        for entry in walkdir::WalkDir::new(&real).min_depth(1) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.problems.push(error.to_string());
                    continue;
                }
            };
            let Some(path) = Utf8Path::from_path(entry.path()) else {
                self.problems.push(format!("`{}` is not UTF-8", entry.path().display()));
                continue;
            };
            let below = Utf8Path::new(name).join(path.strip_prefix(&real).unwrap_or(path));
            let is_of_lib = below.parent() == Some(Utf8Path::new("lib"));
            if is_package && is_of_lib && is_python_only(below.file_name().unwrap_or_default()) {
                continue;
            }
            let kind = entry.file_type();
            if kind.is_dir() {
                self.folders.insert(below);
            } else if kind.is_file() {
                self.file(path, below);
            } else if kind.is_symlink() {
                self.link(&real, name, path, below);
            } else {
                let what = if kind.is_fifo() { "a pipe" } else { "a device or a socket" };
                self.problems.push(format!("`{path}` is {what}"));
            }
        }
    }

    fn file(&mut self, path: &Utf8Path, below: Utf8PathBuf) {
        match fs_err::metadata(path) {
            Ok(metadata) => self.bytes = self.bytes.saturating_add(metadata.len()),
            Err(error) => self.problems.push(error.to_string()),
        }
        self.files.insert(below, path.to_owned());
    }

    /// A link that stays in its folder is kept; one that leaves it stands for the file it leads to, so that the variant
    /// needs nothing else.
    fn link(&mut self, real: &Utf8Path, name: &str, path: &Utf8Path, below: Utf8PathBuf) {
        let Ok(leads_to) = path.canonicalize_utf8() else {
            self.problems.push(format!("`{path}` is a link that leads nowhere"));
            return;
        };
        let text = fs_err::read_link(path).ok().and_then(|text| Utf8PathBuf::from_path_buf(text).ok());
        match text {
            Some(text) if text.is_relative() && leads_to.starts_with(real) => {
                // As the text says it, from the link's own folder: it must not leave the folder on its way either.
                let depth = below.components().count() - 2;
                let ups = text.components().filter(|part| part.as_str() == "..").count();
                if ups <= depth {
                    self.links.insert(below, text.into_string());
                } else {
                    self.file(&leads_to, below);
                }
            }
            _ if leads_to.is_file() => self.file(&leads_to, below),
            _ => self.problems.push(format!("`{path}` is a link to `{leads_to}`, which is no file of `{name}`")),
        }
    }

    /// The libraries that an unpacked wheel has beside its package: `torch.libs`, and NVIDIA's packages. A folder of
    /// which one library is needed is taken with all of its libraries, since they load each other by name.
    fn beside(&mut self, root: &Utf8Path) {
        let Some(site) = root.parent() else { return };
        let mut folders = vec![site.join("torch.libs")];
        for package in site.join("nvidia").read_dir_utf8().into_iter().flatten().flatten() {
            folders.push(package.path().join("lib"));
        }
        folders.sort();
        let mut offers: BTreeMap<String, usize> = BTreeMap::new();
        for (index, folder) in folders.iter().enumerate() {
            for entry in folder.read_dir_utf8().into_iter().flatten().flatten() {
                if is_shared(entry.file_name()) && entry.path().is_file() {
                    offers.entry(entry.file_name().to_owned()).or_insert(index);
                }
            }
        }
        let of_lib = |plan: &Self| -> Vec<Utf8PathBuf> {
            let is_library = |below: &&Utf8PathBuf| below.starts_with("lib") && is_shared(below.as_str());
            plan.files.iter().filter(|(below, _)| is_library(below)).map(|(_, path)| path.clone()).collect()
        };
        let mut queue = of_lib(self);
        let mut taken = BTreeSet::new();
        while let Some(library) = queue.pop() {
            // What is no library after all needs none.
            for name in needs(&library) {
                let Some(index) = offers.get(&name).copied() else { continue };
                if self.files.contains_key(&Utf8Path::new("lib").join(&name)) || !taken.insert(index) {
                    continue;
                }
                for (file, _) in offers.iter().filter(|(_, folder)| **folder == index) {
                    let path = folders[index].join(file);
                    let real = path.canonicalize_utf8().unwrap_or_else(|_| path.clone());
                    self.file(&real, Utf8Path::new("lib").join(file));
                    queue.push(real);
                }
            }
        }
    }

    /// Whether it is as large as a libtorch may be, and there is room.
    fn measure(&self, root: &Utf8Path, to: &Utf8Path, manner: Manner) -> Result<(), TreeError> {
        let entries = self.files.len() + self.links.len() + self.folders.len();
        if entries > MAX_ENTRIES || self.bytes > MAX_BYTES {
            return Err(TreeError::TooLarge { root: root.to_owned(), entries, bytes: self.bytes });
        }
        let needed = self.bytes + SLACK;
        match free_space(to) {
            Some(available) if manner == Manner::Copy && available < needed => {
                Err(TreeError::Space { folder: to.to_owned(), needed, available })
            }
            _ => Ok(()),
        }
    }

    fn carry_out(&self, root: &Utf8Path, to: &Utf8Path, manner: Manner, listen: Listener<'_>) -> Result<(), TreeError> {
        if manner == Manner::Copy {
            listen(FetchEvent::Begin { what: format!("copying `{root}`"), total: Some(self.bytes) });
        }
        let result = self.put(to, manner, listen);
        if manner == Manner::Copy {
            listen(FetchEvent::End);
        }
        result
    }

    fn put(&self, to: &Utf8Path, manner: Manner, listen: Listener<'_>) -> Result<(), TreeError> {
        let io = |file: &Utf8Path| {
            let file = file.to_owned();
            move |source| TreeError::Io { file, source }
        };
        for folder in &self.folders {
            fs_err::create_dir_all(to.join(folder)).map_err(io(folder))?;
        }
        let mut done = 0;
        for (below, from) in &self.files {
            let place = to.join(below);
            if let Some(folder) = place.parent() {
                fs_err::create_dir_all(folder).map_err(io(folder))?;
            }
            // A second name and not a rename: where two links lead to one file, it is taken twice.
            let is_moved = manner == Manner::Move && fs_err::hard_link(from, &place).is_ok();
            if !is_moved {
                done += fs_err::copy(from, &place).map_err(io(&place))?;
                listen(FetchEvent::Done(done));
            }
            let mode = fs_err::metadata(&place).map_err(io(&place))?.permissions().mode();
            // Owner bits are added so that the tree can be read and deleted; set-id bits have no business here.
            let wanted = (mode & 0o777) | 0o600;
            if mode & 0o7777 != wanted {
                fs_err::set_permissions(&place, std::fs::Permissions::from_mode(wanted)).map_err(io(&place))?;
            }
        }
        for (below, target) in &self.links {
            let place = to.join(below);
            if let Some(folder) = place.parent() {
                fs_err::create_dir_all(folder).map_err(io(folder))?;
            }
            fs_err::os::unix::fs::symlink(target, &place).map_err(io(&place))?;
        }
        Ok(())
    }
}

/// The version that a Python package states.
fn version_of_package(root: &Utf8Path) -> Option<String> {
    let text = super::small::read(&root.join("version.py"), 64 * 1024).ok()??;
    let text = String::from_utf8_lossy(&text).into_owned();
    let stated = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(stated.trim().trim_matches(['\'', '"']).to_owned())
}
