//! What this machine offers a build from source: its tools with their versions, its memory, its disk.
//!
//! Reads and asks; whether it is enough is decided in [`super::needs`].

use std::ffi::OsStr;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};

use crate::libtorch::tool::{self, Env};

/// A tool answers at once; a cold one on a slow disk within seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// A tool that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its file.
    pub path: Utf8PathBuf,
    /// Its version's numbers; empty where it does not say one.
    pub version: Vec<u32>,
}

/// CUDA's compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvcc {
    /// Itself.
    pub tool: Tool,
    /// What it makes code for, such as `sm_61`; none where it does not tell.
    pub codes: Option<Vec<String>>,
    /// The toolkit's folder, which has `bin`.
    pub toolkit: Utf8PathBuf,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `git`, `cmake`, `ninja`, `flock`, `gcc`, `g++`, `python3`, in that order; none is not there.
    pub tools: Vec<(&'static str, Option<Tool>)>,
    /// Modules that the build's own Python lacks.
    pub missing_modules: Vec<String>,
    /// CUDA's compiler.
    pub nvcc: Option<Nvcc>,
    /// Cores that this process may use.
    pub cores: usize,
    /// Bytes of memory, or less where this process may have less; none where nothing says.
    pub memory: Option<u64>,
    /// Bytes free where the work folder is or will be.
    pub free: Option<u64>,
    /// Bytes that the work folder has already.
    pub used: u64,
}

/// Programs that are looked for, and what asks each for its version.
const TOOLS: [(&str, &str); 7] = [
    ("git", "--version"),
    ("cmake", "--version"),
    ("ninja", "--version"),
    ("flock", "--version"),
    ("gcc", "-dumpfullversion"),
    ("g++", "-dumpfullversion"),
    ("python3", "--version"),
];
/// Modules that torch's build calls, by the names that Python imports.
const MODULES: [&str; 2] = ["yaml", "typing_extensions"];

impl Machine {
    /// Looks. `nvcc` is one that a person named; else `CUDA_HOME`, `CUDA_PATH`, `PATH` and `/usr/local/cuda` are asked.
    pub fn read(env: &Env, work: &Utf8Path, nvcc: Option<&Utf8Path>) -> Self {
        let tools: Vec<(&'static str, Option<Tool>)> = TOOLS
            .iter()
            .map(|(name, question)| {
                let path = tool::on_path(env, name).into_iter().next();
                (*name, path.map(|path| with_version(path, question, env)))
            })
            .collect();
        let python = tools.iter().find(|(name, _)| *name == "python3").and_then(|(_, tool)| tool.as_ref());
        let missing_modules = python.map(|python| missing_modules(&python.path, env)).unwrap_or_default();
        Self {
            missing_modules,
            nvcc: find_nvcc(env, nvcc).map(|path| read_nvcc(path, env)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            free: tool::free_space(work),
            used: tool::folder_size(work),
            tools,
        }
    }

    /// A tool by its name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|(of, _)| *of == name).and_then(|(_, tool)| tool.as_ref())
    }
}

fn with_version(path: Utf8PathBuf, question: &str, env: &Env) -> Tool {
    let said = tool::ask(&path, &[question], env, LIMIT).unwrap_or_default();
    Tool { version: version(&said), path }
}

/// The first dotted number of a text: `3.27.9` of `cmake version 3.27.9`.
pub(super) fn version(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    let number = words.map(|word| word.trim_matches('.')).find(|word| !word.is_empty());
    number.into_iter().flat_map(|word| word.split('.')).map_while(|part| part.parse().ok()).collect()
}

fn missing_modules(python: &Utf8Path, env: &Env) -> Vec<String> {
    let script = "import importlib.util, sys\nfor name in sys.argv[1:]:\n    if importlib.util.find_spec(name) is None: print(name)";
    let args: Vec<&str> = ["-c", script].into_iter().chain(MODULES).collect();
    let said = tool::ask(python, &args, env, LIMIT).unwrap_or_default();
    said.lines().map(str::to_owned).collect()
}

fn find_nvcc(env: &Env, given: Option<&Utf8Path>) -> Option<Utf8PathBuf> {
    if let Some(given) = given {
        return Some(given.to_owned());
    }
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| env.get(OsStr::new(name))?.to_str());
    let named = named.map(|folder| Utf8Path::new(folder).join("bin/nvcc"));
    named
        .chain(tool::on_path(env, "nvcc"))
        .chain([Utf8PathBuf::from("/usr/local/cuda/bin/nvcc")])
        .find(|path| path.is_file())
}

fn read_nvcc(path: Utf8PathBuf, env: &Env) -> Nvcc {
    let said = tool::ask(&path, &["--version"], env, LIMIT).unwrap_or_default();
    // `Cuda compilation tools, release 12.8, V12.8.93`: the first number of the text is a year.
    let release = said.split("release ").nth(1).map(version).unwrap_or_default();
    let codes = tool::ask(&path, &["--list-gpu-code"], env, LIMIT).ok();
    let codes = codes.map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let codes = codes.filter(|codes| codes.iter().any(|code| code.starts_with("sm_")));
    let real = path.canonicalize_utf8().unwrap_or_else(|_| path.clone());
    let toolkit = real.parent().and_then(Utf8Path::parent).unwrap_or(Utf8Path::new("/")).to_owned();
    Nvcc { tool: Tool { path, version: release }, codes, toolkit }
}

/// What is installed, or what the control group of this process may have of it.
fn memory() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024;
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|file| fs_err::read_to_string(file).ok()?.trim().parse::<u64>().ok())
        .min();
    Some(limit.map_or(total, |limit| limit.min(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_tools_write_them() {
        for (text, numbers) in [
            ("cmake version 3.27.9\n\nCMake suite", &[3, 27, 9][..]),
            ("git version 2.39.5", &[2, 39, 5]),
            ("1.11.1.git.kitware", &[1, 11, 1]),
            ("flock from util-linux 2.38.1", &[2, 38, 1]),
            ("12.2.0", &[12, 2, 0]),
            ("Python 3.11.2", &[3, 11, 2]),
            ("12.8, V12.8.93", &[12, 8]),
            ("", &[]),
            ("no number", &[]),
        ] {
            assert_eq!(version(text), numbers, "{text}");
        }
    }
}
