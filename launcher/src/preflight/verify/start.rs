//! Whether a program would start here and now.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use torchlift_schema::{Envelope, Finding, Place, Severity};

use super::library;
use crate::preflight::code;
use crate::preflight::digest::{DigestCache, DigestError, FileDigest};
use crate::preflight::elf::{self, ElfError};
use crate::preflight::loader::{self, Closure, HostLibraries, LibraryPath};

/// Scripts whose interpreter is a script again: the kernel follows this many.
const MAX_SCRIPTS: usize = 4;

/// A program about to be started.
#[derive(Clone, Copy, Debug)]
pub struct StartQuestion<'a> {
    /// The program, absolute.
    pub program: &'a Path,
    /// The whole LD_LIBRARY_PATH that its ranks get.
    pub library_path: &'a LibraryPath,
    /// The folder that they run in, absolute.
    pub cwd: &'a Path,
    /// What the program and its libraries have to be; none for a program that was named on the command line.
    pub envelope: Option<&'a Envelope>,
    /// The host's name in the cluster, for the findings.
    pub host_name: Option<&'a str>,
}

/// All that would keep the program from starting, or make it another than the one that was verified.
/// [`code::exit_code`] tells the exit code.
pub fn check(question: StartQuestion<'_>, host: &HostLibraries, cache: &mut DigestCache) -> Vec<Finding> {
    let mut place = Place::file(question.program.display().to_string());
    place.host = question.host_name.map(str::to_owned);
    let mut findings = Vec::new();
    if let Some(finding) = not_startable(question.program, &place) {
        // Nothing else can be said of a program that is not there.
        return vec![finding];
    }
    if let Some(mut finding) = library::empty_element(question.library_path, &place) {
        // In what the user's own environment brings along it is a doubt; in an envelope it is an error.
        if question.envelope.is_none() {
            finding.severity = Severity::Warning;
        }
        findings.push(finding);
    }
    let closure = match loader::closure(question.program, question.library_path, question.cwd, host) {
        Ok(closure) => {
            findings.extend(library::wrong_cpu(&closure.program, host, question.program, &place));
            findings.extend(library::findings(&closure, question.library_path, host, &place));
            Some(closure)
        }
        Err(ElfError::Script { interpreter, .. }) => {
            findings.extend(script(question.program, &interpreter, &place));
            None
        }
        // The kernel reads it where this user may not, so that it starts all the same. With an envelope its digest is asked
        // for below, and not to get one is an error.
        Err(ElfError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            findings.extend(question.envelope.is_none().then(|| unread(question.program, &place)));
            None
        }
        Err(error) => {
            findings.push(unusable(&error, &place));
            None
        }
    };
    if let Some(envelope) = question.envelope {
        findings.extend(cpu_level(envelope, host, &place));
        findings.extend(changed(envelope, question, closure.as_ref(), &place, cache));
    }
    findings
}

/// Why a program cannot be started, if its file alone says so.
pub fn not_startable(program: &Path, place: &Place) -> Option<Finding> {
    let shown = program.display();
    let metadata = match fs_err::metadata(program) {
        Ok(metadata) => metadata,
        Err(error) => {
            let message = match error.kind() {
                io::ErrorKind::NotFound => format!("`{shown}` is not there"),
                kind => format!("`{shown}` cannot be reached: {kind}"),
            };
            let finding = Finding::error(code::PROGRAM_MISSING, place.clone(), message);
            return Some(finding.remedy("build it, or name the program that you mean"));
        }
    };
    if !metadata.is_file() {
        let message = format!("`{shown}` is not a file");
        let finding = Finding::error(code::PROGRAM_NOT_A_FILE, place.clone(), message);
        let remedy = if metadata.is_dir() { "name the program inside of it" } else { "name the program's file" };
        return Some(finding.remedy(remedy));
    }
    // Root may execute what anyone may, so that the mode decides for root and access() for all others.
    if metadata.mode() & 0o111 == 0 || access(program, AccessFlags::X_OK).is_err() {
        let message = format!("`{shown}` may not be executed: its mode is {:04o}", metadata.mode() & 0o7777);
        let finding = Finding::error(code::PROGRAM_NOT_EXECUTABLE, place.clone(), message);
        return Some(finding.remedy(format!("run `chmod +x {shown}`, and look at the file system's `noexec`")));
    }
    None
}

fn unusable(error: &ElfError, place: &Place) -> Finding {
    let mut message = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        message = format!("{message}: {source}");
    }
    Finding::error(code::PROGRAM_UNUSABLE, place.clone(), message)
        .remedy("name an ELF program, or a script that begins with `#!`")
}

/// A doubt about a program that may be executed and not read.
fn unread(program: &Path, place: &Place) -> Finding {
    let message = format!("`{}` may be executed and not read, so what it loads was not checked", program.display());
    let remedy =
        "let this user read it (`chmod +r`), and what would fail is told before the start; a script has to be readable";
    Finding::warning(code::PROGRAM_UNREADABLE, place.clone(), message).remedy(remedy)
}

/// What is wrong with a script's `#!` line. The interpreter's own libraries are its package's business.
fn script(program: &Path, line: &str, place: &Place) -> Option<Finding> {
    let mut line = line.to_owned();
    let mut script = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let interpreter = PathBuf::from(line.split([' ', '\t']).next().unwrap_or_default());
        let shown = interpreter.display();
        let problem = match not_startable(&interpreter, place) {
            _ if interpreter.as_os_str().is_empty() => "its `#!` line names no interpreter".to_owned(),
            Some(finding) => format!("its interpreter {}", finding.message),
            None => match elf::read(&interpreter) {
                Ok(_) => return None,
                // It is started as any program that may be executed and not read.
                Err(ElfError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                    return None;
                }
                Err(ElfError::Script { interpreter: next, .. }) => {
                    script = interpreter;
                    line = next;
                    continue;
                }
                Err(error) => format!("its interpreter `{shown}` cannot be used: {error}"),
            },
        };
        let message = format!("`{}` cannot be started: {problem}", script.display());
        let finding = Finding::error(code::INTERPRETER_MISSING, place.clone(), message);
        // A script from another system ends its lines in a way that becomes part of the interpreter's name.
        let remedy = if line.contains('\r') {
            "end its lines with LF alone"
        } else {
            "install the interpreter, or mend the first line"
        };
        return Some(finding.remedy(remedy));
    }
    let message =
        format!("`{}` cannot be started: its interpreters are scripts, one behind the other", program.display());
    Some(Finding::error(code::INTERPRETER_MISSING, place.clone(), message).remedy("name a program as interpreter"))
}

/// An error for code that asks for a higher level than this CPU has. What is known of a level is what the loader knows, which
/// is that of x86-64.
fn cpu_level(envelope: &Envelope, host: &HostLibraries, place: &Place) -> Option<Finding> {
    let level = envelope.artifact.cpu_level.as_ref()?;
    let is_known =
        host.is_this_machine() && host.arch == "x86_64" && level.starts_with("x86-64-") && level != "x86-64-v1";
    if !is_known || host.hwcaps.contains(level) {
        return None;
    }
    let has = host.hwcaps.first().map_or("x86-64-v1", String::as_str);
    let message = format!("the program was built for CPUs of level `{level}`, and this one has `{has}`");
    let remedy = format!("build it with `-Ctarget-cpu={has}` in the `rustflags` of the host's kind");
    Some(Finding::error(code::CPU_LACKS, place.clone(), message).remedy(remedy))
}

/// Findings for files that are not what the envelope says; `closure` is what the loader would load, where that is known.
pub fn changed(
    envelope: &Envelope,
    question: StartQuestion<'_>,
    closure: Option<&Closure>,
    place: &Place,
    cache: &mut DigestCache,
) -> Vec<Finding> {
    let artifact = &envelope.artifact;
    let expected = FileDigest { size: artifact.size, sha256: artifact.sha256.clone() };
    let mut expectations = vec![(question.program.to_owned(), expected, code::PROGRAM_CHANGED)];
    let mut findings = Vec::new();
    for library in envelope.libtorch.iter().flat_map(|libtorch| &libtorch.libraries) {
        let expected = FileDigest { size: library.size, sha256: library.sha256.clone() };
        match library_path_of(&library.file, question, closure) {
            Some(path) => expectations.push((path, expected, code::LIBRARY_CHANGED)),
            // One that the loader misses has its finding already.
            None if closure.is_some_and(|closure| closure.missing.iter().any(|lost| lost.name == library.file)) => {}
            None => {
                let folders = question.library_path.elements().iter();
                let folders: Vec<String> = folders.map(|folder| format!("`{}`", folder.display())).collect();
                let folders = if folders.is_empty() { "an empty library path".to_owned() } else { folders.join(", ") };
                let message = format!("`{}`, which the envelope names, not found in {folders}", library.file);
                let finding = Finding::error(code::LIBRARY_MISSING, place.clone(), message);
                findings.push(finding.remedy("put the variant back, or build again"));
            }
        }
    }
    let paths: Vec<PathBuf> = expectations.iter().map(|expectation| expectation.0.clone()).collect();
    let digests = cache.digest_all(&paths);
    for ((path, expected, code), digest) in expectations.into_iter().zip(digests) {
        // Before anyone is told of swapped bytes, the bytes themselves are read, whatever was remembered of them.
        let digest = match digest {
            Ok(found) if found != expected => cache.digest_anew(&path),
            other => other,
        };
        findings.extend(difference(&path, &expected, digest, code, place));
    }
    findings
}

/// The file that would be loaded for a library of the envelope.
fn library_path_of(file: &str, question: StartQuestion<'_>, closure: Option<&Closure>) -> Option<PathBuf> {
    let is_it = |path: &Path| path.file_name().is_some_and(|name| name == file);
    let loaded = closure.and_then(|closure| closure.objects.iter().find(|object| is_it(&object.path)));
    if let Some(object) = loaded {
        return Some(object.path.clone());
    }
    let folders = question.library_path.elements().iter();
    folders.map(|folder| question.cwd.join(folder).join(file)).find(|path| path.is_file())
}

fn difference(
    path: &Path,
    expected: &FileDigest,
    found: Result<FileDigest, DigestError>,
    code: &'static str,
    place: &Place,
) -> Option<Finding> {
    let shown = path.display();
    let message = match &found {
        Ok(found) if found == expected => return None,
        Ok(found) => format!(
            "`{shown}` is not the file of the envelope: expected {} B with sha256 `{}`, found {} B with sha256 `{}`",
            expected.size, expected.sha256, found.size, found.sha256
        ),
        Err(error) => {
            let reason = match error {
                DigestError::Unreadable { source, .. } => format!("it cannot be read: {}", source.kind()),
                DigestError::NotAFile { .. } => "it is not a regular file".to_owned(),
                DigestError::Replaced { .. } => "it was replaced or removed while it was read".to_owned(),
                DigestError::Changed { .. } => "it changed while it was read".to_owned(),
            };
            format!("cannot tell whether `{shown}` is the file of the envelope: {reason}")
        }
    };
    let mut place = place.clone();
    place.file = Some(shown.to_string());
    let remedy = match found {
        Err(DigestError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            "let this user read it (`chmod +r`): what an envelope names is started only if its bytes are the expected ones"
        }
        Err(DigestError::Replaced { .. } | DigestError::Changed { .. }) => {
            "wait until whatever writes it is done, then start again"
        }
        _ => "build again, or bring back the file that was built",
    };
    Some(Finding::error(code, place, message).remedy(remedy))
}

#[cfg(test)]
mod tests {
    use torchlift_schema::exit_code;

    use super::*;

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_an_integrity_error_with_its_reason() {
        let path = PathBuf::from("/p/train");
        let expected = FileDigest { size: 1, sha256: "00".to_owned() };
        let replaced = DigestError::Replaced { path: path.clone() };
        let finding = difference(&path, &expected, Err(replaced), code::PROGRAM_CHANGED, &Place::default()).unwrap();
        assert!(finding.message.ends_with("it was replaced or removed while it was read"), "{}", finding.message);
        assert!(finding.remedy.as_ref().unwrap().starts_with("wait until"));
        assert_eq!(code::exit_code(&[finding]), Some(exit_code::INTEGRITY));
    }
}
