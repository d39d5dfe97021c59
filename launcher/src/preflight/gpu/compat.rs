//! `cuda-compat`: a newer `libcuda` beside the driver's own, for data-centre cards.

use std::path::{Path, PathBuf};

use torchlift_schema::host::CudaCompat;

use super::{Question, driver_version};
use crate::preflight::loader;

/// The library that it brings.
const LIBCUDA: &str = "libcuda.so.1";
/// Where the packages put it, below each `cuda*` of this folder; images of NVIDIA have it one deeper.
const TOOLKITS: &str = "/usr/local";
const BELOW: [&str; 3] = ["compat", "compat/lib", "compat/lib.real"];

/// The packages that are installed, each once, whichever links lead to it.
pub(super) fn read(question: &Question<'_>) -> Vec<CudaCompat> {
    let roots = question.roots;
    let toolkits = roots.names(TOOLKITS).into_iter().filter(|name| name.starts_with("cuda"));
    let usual = toolkits.flat_map(|name| BELOW.map(|below| Path::new(TOOLKITS).join(&name).join(below)));
    let named = question
        .library_path
        .elements()
        .iter()
        .filter(|folder| folder.components().any(|part| part.as_os_str() == "compat"));
    let loaded = loader::locate(LIBCUDA, question.arch, question.library_path, question.cwd, question.libraries);
    let loaded = loaded.ok().and_then(|found| fs_err::canonicalize(found.path).ok());
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for folder in usual.chain(named.map(|folder| question.cwd.join(folder))) {
        let Ok(real) = fs_err::canonicalize(roots.path(folder.join(LIBCUDA))) else { continue };
        let Some(driver) = driver(&real) else { continue };
        if seen.contains(&real) {
            continue;
        }
        found.push(CudaCompat::new(folder.to_string_lossy(), driver, loaded.as_ref() == Some(&real)));
        seen.push(real);
    }
    found
}

/// The driver that a `libcuda.so.550.54.14` stands for.
pub(super) fn driver(file: &Path) -> Option<String> {
    driver_version(file.file_name()?.to_str()?.split_once(".so.")?.1)
}
