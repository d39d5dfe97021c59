//! Does a compiler really compile and link? A tiny program says so in a fraction of a second, and says what kind of C++ it is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;

use torchlift::preflight::symbols::{self, CxxAbi};

use super::tool::{ask, run};
use super::{Check, Scene};
use crate::toolchain::Env;

/// The shim of `torch-sys` is C++17, and speaks in strings.
const CXX: &str = "#include <string>\nstd::string torchlift(const std::string& text) { return text + \"!\"; }\n";
const RUST: &str = "fn main() {}\n";

const INSTALL: &str = "install one (`apt-get install g++`, `dnf install gcc-c++`), or name it with `CXX`: `torch-sys` compiles its shim with it";

/// The C++ compiler that build scripts call.
pub(super) fn look(scene: &Scene) -> Vec<Check> {
    let words = compiler(&scene.env);
    let Some((program, args)) = words.split_first() else { return Vec::new() };
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let check = match compile(scene, program, args) {
        Ok(CxxAbi::PreCxx11) => Check::doubtful(
            "c++-compiler",
            format!(
                "`{shown}` compiles, and has the old strings alone (`_GLIBCXX_USE_CXX11_ABI=0`), which no libtorch since 2.6 has"
            ),
            "use a GCC of the system's own, or one whose libstdc++ has both",
        ),
        Ok(_) => {
            let version = ask(scene, program, &["--version"]).ok();
            let version = version.as_deref().and_then(|text| text.lines().next()).unwrap_or("of an unknown version");
            Check::right("c++-compiler", format!("`{shown}` compiles and links C++17: {version}"))
        }
        Err(words) => Check::wrong("c++-compiler", words, INSTALL),
    };
    vec![check]
}

/// As the crate `cc` reads it for this machine's own target: `CXX`, which may have arguments, else `c++`.
fn compiler(env: &Env) -> Vec<OsString> {
    let named = ["HOST_CXX", "CXX"].iter().find_map(|name| env.get(OsStr::new(name)).filter(|value| !value.is_empty()));
    match named {
        None => vec!["c++".into()],
        // A path with spaces that is there is one word.
        Some(value) if Path::new(value).is_file() => vec![value.clone()],
        Some(value) => value.to_string_lossy().split_whitespace().map(OsString::from).collect(),
    }
}

fn compile(scene: &Scene, program: &OsStr, args: &[OsString]) -> Result<CxxAbi, String> {
    let folder = folder(scene).map_err(|error| error.to_string())?;
    let (source, library) = (folder.path().join("probe.cpp"), folder.path().join("libprobe.so"));
    fs_err::write(&source, CXX).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(args)
        .args(["-std=c++17", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1", "-o"])
        .arg(&library)
        .arg(&source);
    run(scene, command.env_clear().envs(&scene.env).current_dir(folder.path()))?;
    let made = symbols::read(&library);
    made.map(|symbols| symbols.cxx_abi)
        .map_err(|error| format!("`{}` ended well, and made no library: {error}", program.to_string_lossy()))
}

/// Whether rustc links, which takes a linker: `cc`, unless cargo's configuration names another.
pub(super) fn links_rust(scene: &Scene, rustc: &OsStr) -> Check {
    let linked = folder(scene).map_err(|error| error.to_string()).and_then(|folder| {
        let (source, program) = (folder.path().join("probe.rs"), folder.path().join("probe"));
        fs_err::write(&source, RUST).map_err(|error| error.to_string())?;
        let mut command = Command::new(rustc);
        command.args(["--edition=2021", "-Cdebuginfo=0", "-o"]).arg(&program).arg(&source);
        run(scene, command.env_clear().envs(&scene.env).current_dir(&scene.folder))
    });
    match linked {
        Ok(_) => Check::right("linker", "rustc compiles and links a program with it"),
        Err(words) => Check::wrong(
            "linker",
            words,
            "install one (`apt-get install gcc`), and the standard library of the toolchain (`rustup component add rust-std`)",
        ),
    }
}

/// A folder that is gone when it is dropped.
fn folder(scene: &Scene) -> io::Result<tempfile::TempDir> {
    let named = scene.env.get(OsStr::new(torchlift::env_vars::TMPDIR)).filter(|value| !value.is_empty());
    let base = scene.context.cwd.as_std_path().join(named.map_or(OsStr::new("/tmp"), OsString::as_os_str));
    tempfile::Builder::new().prefix(".torchlift-doctor-").tempdir_in(base)
}
