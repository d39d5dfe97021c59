//! One file of `lib`.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use camino::Utf8Path;
use torchlift::preflight::fatbin::{self, GpuContent};
use torchlift::preflight::{ElfError, elf};

/// What a file of `lib` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibraryKind {
    /// A shared library.
    Library,
    /// Another name of a file.
    Link,
    /// A text for the linker, which no loader can follow.
    LinkerScript,
    /// It has a library's name and is none.
    Unreadable,
}

/// One file of `lib` that has the name of a library.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Library {
    /// Its name.
    pub file: String,
    /// What it is.
    pub kind: LibraryKind,
    /// Bytes; of a link those of its file.
    pub size: u64,
    /// What it is a link to, as it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// CPU architecture as in a target triple.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// DT_SONAME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    /// DT_NEEDED in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
    /// DT_RPATH by element.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rpath: Vec<String>,
    /// DT_RUNPATH by element.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runpath: Option<Vec<String>>,
    /// The newest glibc that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// The newest libstdc++ that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libstdcxx: Option<String>,
    /// Its GPU code; none when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuContent>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The files of `folder` that have a library's name, sorted.
pub(super) fn list(folder: &Utf8Path) -> io::Result<Vec<Library>> {
    let mut files = Vec::new();
    for entry in folder.read_dir_utf8()? {
        let name = entry?.file_name().to_owned();
        let is_shared = name.ends_with(".so") || name.contains(".so.");
        // A folder or a pipe is no library, whatever its name.
        if is_shared && folder.join(&name).is_file() {
            files.push(name);
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|file| read(folder, file)).collect())
}

fn read(folder: &Utf8Path, file: String) -> Library {
    let path = folder.join(&file);
    let target = path.read_link_utf8().ok().map(String::from);
    let mut library = Library {
        kind: if target.is_some() { LibraryKind::Link } else { LibraryKind::Library },
        size: fs_err::metadata(&path).map(|metadata| metadata.size()).unwrap_or_default(),
        file,
        target,
        arch: None,
        soname: None,
        needed: Vec::new(),
        rpath: Vec::new(),
        runpath: None,
        glibc: None,
        libstdcxx: None,
        gpu: None,
        problem: None,
    };
    match elf::read(path.as_std_path()) {
        Ok(facts) => {
            library.glibc = facts.glibc();
            library.libstdcxx = facts.libstdcxx();
            library.arch = Some(facts.arch);
            library.soname = facts.soname;
            library.needed = facts.needed;
            library.rpath = facts.rpath;
            library.runpath = facts.runpath;
        }
        Err(ElfError::LinkerScript { .. }) if library.kind == LibraryKind::Library => {
            library.kind = LibraryKind::LinkerScript;
        }
        Err(error) => {
            library.kind = LibraryKind::Unreadable;
            library.problem = Some(with_cause(&error));
            return library;
        }
    }
    // A link is a further name of a file that is looked at by its own.
    if library.kind == LibraryKind::Library {
        match fatbin::read(path.as_std_path()) {
            Ok(gpu) => library.gpu = gpu,
            Err(error) => library.problem = Some(with_cause(&error)),
        }
    }
    library
}

fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
