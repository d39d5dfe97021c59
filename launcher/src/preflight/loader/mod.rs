//! The dynamic loader's search, repeated on the facts of a host.
//!
//! Purpose: to say before a start what `ld.so` would load from where and what it would not find. The rules are those
//! of glibc 2.33 and later (`elf/dl-load.c`, `elf/dl-deps.c`, `elf/dl-version.c`): breadth first, a name that is already loaded
//! before any search, DT_RPATH of the object and of those that loaded it unless it has a DT_RUNPATH,
//! LD_LIBRARY_PATH, DT_RUNPATH, `ld.so.cache`, the default folders; candidates of another machine are passed over.
//! Owns no judgement: [`super::verify`] turns what is missing into findings. Must not start the real loader.
//! Not repeated: preloads, auditing, DT_FILTER and the `tls`/`haswell` folders that glibc gave up in 2.37.

mod cache;
mod host;
mod search;
mod token;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::elf::{self, ByteOrder, Class, ElfError, ElfFacts, Kind};

pub use cache::LdCache;
pub(in crate::preflight) use host::CACHE;
pub use host::{HostLibraries, Root};

use search::{Found, Searcher};

/// The elements of a LD_LIBRARY_PATH, not yet expanded. The loader splits at `:` and at `;`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryPath(Vec<PathBuf>);

impl LibraryPath {
    /// The elements of a variable's value. An empty value has none; an empty element is kept, for the loader searches
    /// the working directory for it.
    pub fn parse(value: &OsStr) -> Self {
        if value.is_empty() {
            return Self::default();
        }
        let elements = value.as_bytes().split(|byte| matches!(byte, b':' | b';'));
        Self(elements.map(|element| PathBuf::from(OsStr::from_bytes(element))).collect())
    }

    /// The path of these folders.
    pub fn of(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(folders.into_iter().collect())
    }

    /// The elements in their order.
    pub fn elements(&self) -> &[PathBuf] {
        &self.0
    }

    /// Whether the loader would search the working directory for it.
    pub fn has_empty_element(&self) -> bool {
        self.0.iter().any(|element| element.as_os_str().is_empty())
    }
}

/// By which rule a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It is the loader itself (PT_INTERP).
    Interpreter,
    /// Its name has a slash and is a path.
    Path,
    /// DT_RPATH of the object that needs it, or of one that loaded that.
    Rpath,
    /// LD_LIBRARY_PATH.
    LibraryPath,
    /// DT_RUNPATH of the object that needs it.
    Runpath,
    /// `ld.so.cache`.
    Cache,
    /// A default folder.
    DefaultFolder,
}

/// One object of the closure.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The name that was searched for.
    pub name: String,
    /// Where it was found: the folder as the rule gave it, and the name.
    pub path: PathBuf,
    /// The object that needed it first.
    pub needed_by: PathBuf,
    /// The rule that found it.
    pub how: How,
    /// Its own facts.
    pub facts: ElfFacts,
}

/// Why a library is not loaded.
#[derive(Debug)]
pub enum MissingReason {
    /// No folder that was searched has it, but for files of other machines.
    NotFound {
        /// Files of that name that are for another machine, with its architecture.
        other_machines: Vec<(PathBuf, String)>,
    },
    /// The loader takes this file and dies of it.
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ElfError,
    },
}

/// A library that the loader would not find.
#[derive(Debug)]
pub struct Missing {
    /// The name that was searched for.
    pub name: String,
    /// The object that needs it.
    pub needed_by: PathBuf,
    /// The folders that were searched, in order, those that do not exist too.
    pub searched: Vec<PathBuf>,
    /// Why it is not loaded.
    pub reason: MissingReason,
    /// Whether it is the loader itself: then the kernel refuses the program.
    pub is_interpreter: bool,
}

/// A version that an object needs of a library that is loaded and does not offer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingVersion {
    /// Such as `GLIBC_2.38`.
    pub version: String,
    /// The library that should have it, as found.
    pub library: PathBuf,
    /// What its versions of the same family go up to, as in `GLIBC_2.36`.
    pub offered: Option<String>,
    /// The object that needs it.
    pub needed_by: PathBuf,
}

/// What the loader would do with a program.
#[derive(Debug)]
pub struct Closure {
    /// The program's own facts.
    pub program: ElfFacts,
    /// What is loaded, in the loader's order; the interpreter first.
    pub objects: Vec<Loaded>,
    /// What is not found.
    pub missing: Vec<Missing>,
    /// Versions that are not there.
    pub missing_versions: Vec<MissingVersion>,
}

impl Closure {
    /// The object that was loaded for `name`, by the name searched for or its soname.
    pub fn find(&self, name: &str) -> Option<&Loaded> {
        self.objects.iter().find(|object| object.name == name || object.facts.soname.as_deref() == Some(name))
    }

    /// Whether the program would start as far as the loader is concerned.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.missing_versions.is_empty()
    }
}

/// What the loader would load for `binary` with `library_path` on this file system, run in `cwd`.
///
/// `host` says where the system's own libraries are. The binary's machine is not compared with the host's: all
/// libraries are searched for the binary's own.
///
/// # Errors
/// When the binary itself cannot be read as ELF.
pub fn closure(
    binary: &Path,
    library_path: &LibraryPath,
    cwd: &Path,
    host: &HostLibraries,
) -> Result<Closure, ElfError> {
    let program = elf::read(binary)?;
    let mut walk = Walk {
        searcher: Searcher::new(library_path, cwd, host, &program, binary),
        objects: vec![Object::program(binary, program)],
        missing: Vec::new(),
        steps: VecDeque::new(),
    };
    walk.add_interpreter();
    walk.run();
    Ok(walk.finish())
}

/// The file that the loader of `host` would take for `name`, asked for by a program for `arch` that lies in `cwd` and has
/// no search paths of its own.
///
/// # Errors
/// When no folder has it, or the file that would be taken is no library.
pub fn locate(
    name: &str,
    arch: &str,
    library_path: &LibraryPath,
    cwd: &Path,
    host: &HostLibraries,
) -> Result<Loaded, Box<Missing>> {
    let program = ElfFacts {
        class: Class::Bits64,
        byte_order: ByteOrder::Little,
        arch: arch.to_owned(),
        kind: Kind::PositionIndependent,
        is_dynamic: true,
        soname: None,
        needed: vec![name.to_owned()],
        rpath: Vec::new(),
        runpath: None,
        interpreter: None,
        build_id: None,
        version_needs: Vec::new(),
        version_defs: Vec::new(),
        has_symbol_versions: false,
        has_nodefaultlib: false,
    };
    let mut searcher = Searcher::new(library_path, cwd, host, &program, cwd);
    let needed_by = cwd.to_owned();
    match searcher.search(name, 0, &[Object::program(cwd, program)]) {
        Found::At { path, how, facts } => Ok(Loaded { name: name.to_owned(), path, needed_by, how, facts: *facts }),
        Found::Nowhere(missing) => Err(Box::new(Missing { needed_by, ..missing })),
    }
}

/// An object on its way into the closure.
struct Object {
    /// All names by which it was asked for.
    names: Vec<String>,
    path: PathBuf,
    how: How,
    /// The object that caused it to be loaded: the next of the chain along which DT_RPATH is inherited.
    loader: Option<usize>,
    facts: ElfFacts,
    /// Device and inode: one file is loaded once, whatever its names.
    file: Option<(u64, u64)>,
}

impl Object {
    fn program(path: &Path, facts: ElfFacts) -> Self {
        let file = search::identity(path);
        Self { names: Vec::new(), path: path.to_owned(), how: How::Path, loader: None, facts, file }
    }

    fn answers_to(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name) || self.facts.soname.as_deref() == Some(name)
    }
}

struct Walk<'a> {
    searcher: Searcher<'a>,
    /// The program, then the interpreter if there is one, then the libraries in their order.
    objects: Vec<Object>,
    missing: Vec<Missing>,
    steps: VecDeque<usize>,
}

impl Walk<'_> {
    fn add_interpreter(&mut self) {
        let program = &self.objects[0];
        let Some(name) = program.facts.interpreter.clone() else { return };
        let needed_by = program.path.clone();
        let path = self.searcher.interpreter(&name);
        match self.searcher.probe(&path) {
            search::Probe::Usable(facts) => {
                let file = search::identity(&path);
                let names = vec![name];
                self.objects.push(Object { names, path, how: How::Interpreter, loader: None, facts: *facts, file });
            }
            other => self.missing.push(Missing {
                name,
                needed_by,
                searched: Vec::new(),
                reason: other.into_reason(path),
                is_interpreter: true,
            }),
        }
    }

    fn run(&mut self) {
        self.steps.push_back(0);
        while let Some(index) = self.steps.pop_front() {
            for name in self.objects[index].facts.needed.clone() {
                self.need(index, &name);
            }
        }
    }

    fn need(&mut self, index: usize, raw: &str) {
        let name = self.searcher.expand_name(raw, &self.objects[index]);
        // The kernel maps this one into every process.
        if matches!(name.as_str(), "linux-vdso.so.1" | "linux-gate.so.1") {
            return;
        }
        if self.objects.iter().any(|object| object.answers_to(&name)) {
            return;
        }
        let is_known_missing = |missing: &Missing| missing.name == name && !missing.is_interpreter;
        match self.searcher.search(&name, index, &self.objects) {
            Found::At { path, how, facts } => {
                let file = search::identity(&path);
                let known = self.objects.iter_mut().find(|object| file.is_some() && object.file == file);
                if let Some(object) = known {
                    object.names.push(name);
                    return;
                }
                self.steps.push_back(self.objects.len());
                self.objects.push(Object { names: vec![name], path, how, loader: Some(index), facts: *facts, file });
            }
            // Another object may find what this one does not (RUNPATH is not inherited), so that each is asked; but
            // one finding for a library is enough when it stays missing for all.
            Found::Nowhere(_) if self.missing.iter().any(is_known_missing) => {}
            Found::Nowhere(missing) => {
                self.missing.push(Missing { needed_by: self.objects[index].path.clone(), ..missing });
            }
        }
    }

    fn finish(self) -> Closure {
        let missing_versions = missing_versions(&self.objects);
        let needed_by: Vec<PathBuf> =
            (self.objects.iter()).map(|object| self.objects[object.loader.unwrap_or(0)].path.clone()).collect();
        let mut objects = self.objects.into_iter().zip(needed_by);
        let program = objects.next().map(|(object, _)| object.facts);
        let objects = objects
            .map(|(object, needed_by)| Loaded {
                name: object.names.into_iter().next().unwrap_or_default(),
                path: object.path,
                needed_by,
                how: object.how,
                facts: object.facts,
            })
            .collect();
        let program = program.unwrap_or_else(|| unreachable!("the program is the first object"));
        Closure { program, objects, missing: self.missing, missing_versions }
    }
}

/// The versions that objects need of each other and do not offer.
///
/// A library that defines no version is taken as it is, with a warning, when its symbols have versions of other
/// libraries; when they have none at all, the loader ends with a failed assertion of its own.
fn missing_versions(objects: &[Object]) -> Vec<MissingVersion> {
    let mut missing = Vec::new();
    for object in objects {
        for need in &object.facts.version_needs {
            let Some(library) = objects.iter().find(|library| library.answers_to(&need.library)) else { continue };
            let offered = &library.facts.version_defs;
            if offered.is_empty() && library.facts.has_symbol_versions {
                continue;
            }
            for version in need.versions.iter().filter(|version| !version.is_weak && !offered.contains(&version.name)) {
                let family = version.name.split_inclusive('_').next().unwrap_or_default();
                let highest = elf::highest(offered.iter().map(String::as_str), family);
                missing.push(MissingVersion {
                    version: version.name.clone(),
                    library: library.path.clone(),
                    offered: highest.map(|number| format!("{family}{number}")),
                    needed_by: object.path.clone(),
                });
            }
        }
    }
    missing
}
