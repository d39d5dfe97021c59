//! The machine's Pythons: which there are, which has torch, which has pip.

use std::time::Duration;

use camino::Utf8PathBuf;

use super::tool::{self, Env};

/// A cold Python on a slow disk answers within seconds; one that takes longer than this is broken.
const LIMIT: Duration = Duration::from_secs(20);

/// Prints torch's folder and version without importing it, which would take seconds and may fail.
/// The working directory is taken out of the search: a folder `torch` there is none.
const FIND_TORCH: &str = "\
import sys
sys.path = [p for p in sys.path if p]
import importlib.util, importlib.metadata, os
spec = importlib.util.find_spec('torch')
if spec and spec.origin:
    print(os.path.dirname(os.path.realpath(spec.origin)))
    print(importlib.metadata.version('torch'))
";

/// A torch that a Python has.
pub(super) struct PythonTorch {
    /// The Python.
    pub python: Utf8PathBuf,
    /// Its package folder, which has `lib` and `include`.
    pub root: Utf8PathBuf,
}

/// The Pythons to ask, the active virtual environment's first.
pub(super) fn pythons(env: &Env) -> Vec<Utf8PathBuf> {
    let active = env.get(std::ffi::OsStr::new("VIRTUAL_ENV")).and_then(|path| path.to_str());
    let mut found: Vec<Utf8PathBuf> = active
        .map(|path| Utf8PathBuf::from(path).join("bin/python"))
        .filter(|path| path.is_file())
        .into_iter()
        .collect();
    for name in ["python3", "python"] {
        for program in tool::on_path(env, name) {
            if !found.contains(&program) {
                found.push(program);
            }
        }
    }
    found
}

/// The torch of the first Python that has one. What could not be asked is told to `note`.
pub(super) fn torch(env: &Env, note: &mut dyn FnMut(String)) -> Option<PythonTorch> {
    for python in pythons(env) {
        match tool::ask(&python, &["-c", FIND_TORCH], env, LIMIT) {
            Ok(text) => {
                if let Some(root) = text.lines().next().filter(|line| !line.is_empty()) {
                    return Some(PythonTorch { python, root: root.into() });
                }
            }
            Err(error) => note(format!("`{python}` could not be asked for its torch: {error}")),
        }
    }
    None
}

/// The first Python that has pip; else what each said.
pub(super) fn with_pip(env: &Env) -> Result<Utf8PathBuf, Vec<String>> {
    with_pip_within(env, LIMIT)
}

/// The same, with so much time for each Python.
///
/// # Errors
/// With what each said, when none has pip.
pub fn with_pip_within(env: &Env, limit: Duration) -> Result<Utf8PathBuf, Vec<String>> {
    let mut tried = Vec::new();
    for python in pythons(env) {
        match tool::ask(&python, &["-m", "pip", "--version"], env, limit) {
            Ok(_) => return Ok(python),
            Err(error) => tried.push(format!("`{python}` has no pip: {error}")),
        }
    }
    if tried.is_empty() {
        tried.push("no `python3` on `PATH`".to_owned());
    }
    Err(tried)
}
