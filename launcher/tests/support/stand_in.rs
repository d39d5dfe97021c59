//! Compiles the stand-in libraries of `fixtures/libs`; that folder's README has the commands.
//!
//! Needs nothing but `std`, so that tests of other packages can take this file by its path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the sources, whichever package of the workspace the test belongs to.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/libs")
}

/// Runs `compiler` (`cc`, `c++`) to make `output` of a source in `fixtures/libs`, with `args` behind the source.
pub(crate) fn compile<S: AsRef<OsStr>>(compiler: &str, source: &str, output: &Path, args: &[S]) {
    let mut command = Command::new(compiler);
    command.arg("-o").arg(output).arg(sources().join(source)).args(args);
    let result = command.output().unwrap_or_else(|error| panic!("`{compiler}` cannot be started: {error}"));
    assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
}

/// Makes the shared library `output` of a source, with its file name as its soname.
pub(crate) fn library<S: AsRef<OsStr>>(source: &str, output: &Path, args: &[S]) {
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    library_by(compiler, source, output, args);
}

/// The same with this compiler.
pub(crate) fn library_by<S: AsRef<OsStr>>(compiler: &str, source: &str, output: &Path, args: &[S]) {
    let name = output.file_name().expect("a library has a name").to_string_lossy().into_owned();
    let mut all: Vec<&OsStr> = vec![OsStr::new("-shared"), OsStr::new("-fPIC")];
    let soname = format!("-Wl,-soname,{name}");
    all.push(OsStr::new(&soname));
    all.extend(args.iter().map(AsRef::as_ref));
    compile(compiler, source, output, &all);
}

/// `-L` and the folder.
pub(crate) fn search(folder: &Path) -> String {
    format!("-L{}", folder.to_str().expect("test folders are UTF-8"))
}

/// Makes a stand-in libtorch in the existing folder `lib`: `libc10.so`, `libtorch_cpu.so`, `libtorch.so`, and
/// `libtorch_cuda.so` when it is to have one.
pub(crate) fn libtorch(lib: &Path, has_cuda: bool) {
    libtorch_by("cc", lib, has_cuda);
}

/// The same with this compiler, which may be one for another CPU.
pub(crate) fn libtorch_by(cc: &str, lib: &Path, has_cuda: bool) {
    let search = search(lib);
    library_by::<&str>(cc, "c10.c", &lib.join("libc10.so"), &[]);
    library_by(cc, "torch_cpu.c", &lib.join("libtorch_cpu.so"), &[search.as_str(), "-lc10"]);
    let mut needs = vec!["-Wl,--no-as-needed", search.as_str(), "-ltorch_cpu", "-lc10"];
    if has_cuda {
        library_by(cc, "torch_cuda.c", &lib.join("libtorch_cuda.so"), &[search.as_str(), "-ltorch_cpu", "-lc10"]);
        needs.push("-ltorch_cuda");
    }
    library_by(cc, "torch.c", &lib.join("libtorch.so"), &needs);
}

/// Makes `program` with the stand-in libtorch in `lib`. It keeps every library that `lib` has, or only those that it
/// calls, as linkers do when they are not told otherwise.
pub(crate) fn program(program: &Path, lib: &Path, keeps_all: bool) {
    let search = search(lib);
    let mut args = vec![if keeps_all { "-Wl,--no-as-needed" } else { "-Wl,--as-needed" }, search.as_str()];
    if lib.join("libtorch_cuda.so").exists() {
        args.push("-ltorch_cuda");
    }
    args.extend(["-ltorch_cpu", "-lc10"]);
    compile("cc", "program.c", program, &args);
}
