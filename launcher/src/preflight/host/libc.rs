//! The C library, and which symbol versions the system's libraries offer.
//!
//! Everything is read in the files that the loader would take; nothing is run, so that it holds for a host of another
//! machine's tree, and says what a program will meet and not what a command was built with.

use std::path::{Path, PathBuf};

use torchlift_schema::host::{LibcFacts, LibcFlavour, SystemLibrary};

use super::{Problems, Question};
use crate::preflight::elf::{self, Version};
use crate::preflight::loader::{self, LibraryPath};
use crate::preflight::map;

/// What programs with C++ and Rust in them need of a system beside the C library, by their names for the loader.
const LIBRARIES: [&str; 6] =
    ["libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1"];
/// The C library's own name.
const LIBC: &str = "libc.so.6";
/// The libraries that some systems do without: the older parts of glibc are in `libc.so.6` since 2.34.
const MAY_BE_MISSING: [&str; 3] = ["libpthread.so.0", "libdl.so.2", "librt.so.1"];
/// Where a musl system has its libraries when `/etc/ld-musl-ARCH.path` says nothing else.
const MUSL_FOLDERS: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];
/// What stands in glibc's own file before its version.
const BANNER: &[u8] = b" release version ";

/// Reads them.
pub(super) fn read(question: &Question<'_>, problems: &mut Problems) -> (Option<LibcFacts>, Vec<SystemLibrary>) {
    // The versions of the system are those that a program without search paths of its own gets; the environment's
    // LD_LIBRARY_PATH is the shell's of the moment.
    if let Some(libc) = glibc_library(question, LIBC, problems) {
        let version = banner(Path::new(&libc.from)).or_else(|| libc.highest("GLIBC_").map(str::to_owned));
        let facts = LibcFacts::new(LibcFlavour::Glibc, version, &libc.from);
        let others = LIBRARIES.iter().filter_map(|name| glibc_library(question, name, problems));
        return (Some(facts), std::iter::once(libc).chain(others).collect());
    }
    if let Some(libc) = musl(question) {
        return (Some(libc), musl_libraries(question));
    }
    let message = "no C library was found: neither glibc's `libc.so.6` nor musl's loader";
    problems.unknown("libc", message, "run `ldconfig` where the system keeps its libraries in folders of its own");
    (None, Vec::new())
}

fn glibc_library(question: &Question<'_>, name: &str, problems: &mut Problems) -> Option<SystemLibrary> {
    match loader::locate(name, question.arch, &LibraryPath::default(), Path::new("/"), question.libraries) {
        Ok(found) => Some(library(name, found.facts.version_defs, &found.path)),
        Err(missing) => {
            if let loader::MissingReason::Unusable { error, .. } = &missing.reason {
                let message = format!("the loader would take a file for `{name}` that is none: {error}");
                problems.unknown("libraries", message, "install the library again, and run `ldconfig`");
            } else if name != LIBC && !MAY_BE_MISSING.contains(&name) {
                let message = format!("`{name}` is in no folder of the loader");
                problems.unknown("libraries", message, "install it if programs with C++ are to run here");
            }
            None
        }
    }
}

fn library(name: &str, versions: Vec<String>, path: &Path) -> SystemLibrary {
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    SystemLibrary::new(name, versions, real.to_string_lossy())
}

/// The version that glibc's own file states: `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn banner(path: &Path) -> Option<String> {
    map::look(path, banner_in).ok()?
}

fn banner_in(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(BANNER.len()).position(|window| window == BANNER)?;
    let rest = bytes.get(at + BANNER.len()..)?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
    let text = std::str::from_utf8(&rest[..end]).ok()?.trim_end_matches('.');
    (text.contains('.') && text.parse::<Version>().is_ok()).then(|| text.to_owned())
}

/// musl's C library is its loader.
fn musl(question: &Question<'_>) -> Option<LibcFacts> {
    let path = PathBuf::from(format!("/lib/ld-musl-{}.so.1", question.arch));
    let file = question.roots.path(&path);
    let version = map::look(&file, musl_version).ok()?;
    Some(LibcFacts::new(LibcFlavour::Musl, version, path.to_string_lossy()))
}

/// The version that musl's file states: a string of its own, `1.2.5`, the only one of that form.
fn musl_version(bytes: &[u8]) -> Option<String> {
    let is_version = |text: &&[u8]| {
        (5..=12).contains(&text.len())
            && text.starts_with(b"1.")
            && text.split(|byte| *byte == b'.').count() == 3
            && text.split(|byte| *byte == b'.').all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
    };
    let mut found = bytes.split(|byte| *byte == 0).filter(is_version);
    let version = found.next()?;
    // With two of them, which is it?
    found.all(|other| other == version).then(|| String::from_utf8_lossy(version).into_owned())
}

fn musl_libraries(question: &Question<'_>) -> Vec<SystemLibrary> {
    let named = question.roots.text(format!("/etc/ld-musl-{}.path", question.arch)).unwrap_or_default();
    let named: Vec<&str> = named.split([':', '\n']).filter(|folder| folder.starts_with('/')).collect();
    let folders = if named.is_empty() { MUSL_FOLDERS.to_vec() } else { named };
    LIBRARIES
        .iter()
        .filter_map(|name| {
            folders.iter().find_map(|folder| {
                let path = Path::new(folder).join(name);
                let facts = elf::read(&question.roots.path(&path)).ok().filter(|facts| facts.arch == question.arch)?;
                Some(SystemLibrary::new(*name, facts.version_defs, path.to_string_lossy()))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_says_its_version_in_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libc.so.6");
        let banner_of = |text: &[u8]| {
            fs_err::write(&path, text).unwrap();
            banner(&path)
        };
        let debian =
            b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\nCopyright".as_slice();
        assert_eq!(banner_of(debian).as_deref(), Some("2.36"));
        assert_eq!(banner_of(b" development release version 2.40.9000.\n").as_deref(), Some("2.40.9000"));
        assert_eq!(banner_of(b" release version \n"), None);
        assert_eq!(banner_of(b" release version 2.36"), None, "cut short");
        assert_eq!(banner_of(b""), None);
    }

    #[test]
    fn musl_says_its_version_as_a_string_of_its_own() {
        let version = |strings: &[&str]| musl_version(strings.join("\0").as_bytes());
        assert_eq!(version(&["", "musl libc", ""]), None);
        assert_eq!(version(&["x", " 1.2.3 ", ""]), None);
        assert_eq!(version(&["x", "1.2.5", "y"]).as_deref(), Some("1.2.5"));
        assert_eq!(version(&["x", "1.2.5", "1.3.0", ""]), None);
    }
}
