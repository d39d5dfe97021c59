//! What the machine's own loader says that it would load.

use std::path::{Path, PathBuf};
use std::process::Command;

use torchlift::preflight::{Closure, HostLibraries, LibraryPath, loader};

/// One line of the loader's list: the name asked for, and where it is; none when it is not found.
pub(crate) type Line = (String, Option<PathBuf>);

/// Asks the real loader, which the kernel starts for `program`, with `library_path`, in `cwd`.
pub(crate) fn ask(program: &Path, library_path: &str, cwd: &Path) -> Vec<Line> {
    let mut command = Command::new(program);
    command.env_clear().env("LD_TRACE_LOADED_OBJECTS", "1").current_dir(cwd);
    if !library_path.is_empty() {
        command.env("LD_LIBRARY_PATH", library_path);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| -> Option<Line> {
        let line = line.strip_prefix('\t')?;
        let line = line.rsplit_once(" (0x").map_or(line, |(head, _)| head);
        match line.split_once(" => ") {
            Some((name, "not found")) => Some((name.to_owned(), None)),
            Some((name, path)) => Some((name.to_owned(), Some(real(cwd, path)))),
            None if line.starts_with("linux-vdso") => None,
            None => Some((line.to_owned(), Some(real(cwd, line)))),
        }
    };
    text.lines().filter_map(line).collect()
}

fn real(cwd: &Path, path: &str) -> PathBuf {
    let path = cwd.join(path);
    path.canonicalize().unwrap_or(path)
}

/// What we say, in the same form.
pub(crate) fn ours(closure: &Closure) -> Vec<Line> {
    let found = closure.objects.iter().map(|object| {
        let path = object.path.canonicalize().unwrap_or_else(|_| object.path.clone());
        (object.name.clone(), Some(path))
    });
    let missing = closure.missing.iter().map(|missing| (missing.name.clone(), None));
    found.chain(missing).collect()
}

/// Asserts that the real loader and ours load the same files under the same names in the same order, and miss the same.
pub(crate) fn assert_same(program: &Path, library_path: &str, cwd: &Path) -> Closure {
    let host = HostLibraries::of_this_host();
    let closure = loader::closure(program, &LibraryPath::parse(library_path.as_ref()), cwd, &host).unwrap();
    let theirs = ask(program, library_path, cwd);
    // The loader lists itself where it is first needed, and may have been asked for by its name or its path.
    let is_loader = |line: &Line| {
        let file = line.1.as_ref().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned();
        file.starts_with("ld-linux") || file.starts_with("ld-2.")
    };
    // Of what is missing, the loader prints each name once for each object that needs it.
    let found = |lines: &[Line]| -> Vec<Line> {
        lines.iter().filter(|line| line.1.is_some() && !is_loader(line)).cloned().collect()
    };
    let lost = |lines: &[Line]| -> Vec<String> {
        let mut names: Vec<String> = lines.iter().filter(|line| line.1.is_none()).map(|line| line.0.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let ours = ours(&closure);
    assert_eq!(found(&ours), found(&theirs), "{} with `{library_path}`", program.display());
    assert_eq!(lost(&ours), lost(&theirs), "{} with `{library_path}`", program.display());
    assert!(theirs.len() > 1 || !closure.program.is_dynamic, "the loader printed a list: {theirs:?}");
    closure
}
