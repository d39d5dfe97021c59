//! Findings about libraries that the loader would not load.

use std::path::Path;

use torchlift_schema::{Finding, Place};

use crate::preflight::elf::{ElfError, ElfFacts};
use crate::preflight::loader::{Closure, HostLibraries, LibraryPath, Missing, MissingReason, MissingVersion, Root};
use crate::preflight::symbols::Unresolved;
use crate::preflight::{code, isa};

/// What is wrong with a program's closure, for the program itself at `place`.
pub(super) fn findings(
    closure: &Closure,
    library_path: &LibraryPath,
    host: &HostLibraries,
    place: &Place,
) -> Vec<Finding> {
    let missing = closure.missing.iter().map(|missing| missing_library(missing, library_path, host, place));
    let versions = closure.missing_versions.iter().map(|missing| missing_version(missing, place));
    missing.chain(versions).collect()
}

fn missing_library(missing: &Missing, library_path: &LibraryPath, host: &HostLibraries, place: &Place) -> Finding {
    let name = &missing.name;
    let needed_by = missing.needed_by.display();
    let place = place.clone();
    if missing.is_interpreter {
        return interpreter(missing, host, place);
    }
    match &missing.reason {
        MissingReason::Unusable { path, error } => {
            let mut message =
                format!("the loader would take `{}` for `{name}`, needed by `{needed_by}`: {error}", path.display());
            if let ElfError::Unreadable { source, .. } = error {
                // Its own words would name the path once more.
                message.push_str(&match source.kind() {
                    std::io::ErrorKind::InvalidInput => format!(", which is {source}"),
                    kind => format!(": {kind}"),
                });
            }
            let remedy = format!("put a whole library there, or take the file out of the way of `{name}`");
            Finding::error(code::LIBRARY_UNUSABLE, place, message).remedy(remedy)
        }
        MissingReason::NotFound { other_machines } if !other_machines.is_empty() => {
            let files: Vec<String> =
                other_machines.iter().map(|(path, arch)| format!("`{}` is for {arch}", path.display())).collect();
            let message =
                format!("`{name}`, needed by `{needed_by}`, is there only for another CPU: {}", files.join(", "));
            Finding::error(code::WRONG_ARCHITECTURE, place, message)
                .remedy("use a libtorch for the CPU that the program was built for")
        }
        MissingReason::NotFound { .. } => {
            let message = format!("`{name}` not found in {}: needed by `{needed_by}`", folders(missing));
            let finding = Finding::error(code::LIBRARY_MISSING, place, message);
            finding.remedy(remedy(name, library_path, host))
        }
    }
}

fn interpreter(missing: &Missing, host: &HostLibraries, place: Place) -> Finding {
    let (name, needed_by) = (&missing.name, missing.needed_by.display());
    let message = match &missing.reason {
        MissingReason::Unusable { error, .. } => format!("the loader of `{needed_by}` cannot be used: {error}"),
        MissingReason::NotFound { other_machines } => match other_machines.first() {
            Some((_, arch)) => format!("`{name}`, the loader of `{needed_by}`, is for {arch}"),
            None => format!("`{name}`, the loader of `{needed_by}`, is not there"),
        },
    };
    let finding = Finding::error(code::INTERPRETER_MISSING, place, message);
    match &host.root {
        Root::This => {
            finding.remedy("install the C library that the program was built for, or build for the one that is here")
        }
        Root::Below(folder) => finding.remedy(format!("put the C library that the program was built for into `{}`", folder.display())),
        Root::Before(_) => finding.remedy(format!(
            "give QEMU the folder of a system for {} with `-L`, such as `/usr/{}-linux-gnu` of Debian's cross compilers",
            host.arch, host.arch
        )),
    }
}

fn folders(missing: &Missing) -> String {
    if missing.searched.is_empty() {
        return "any folder".to_owned();
    }
    let folders: Vec<String> = missing.searched.iter().map(|folder| format!("`{}`", folder.display())).collect();
    folders.join(", ")
}

/// What to do about a library that is not found. A `lib` folder one step away is what people mean most often.
fn remedy(name: &str, library_path: &LibraryPath, host: &HostLibraries) -> String {
    for folder in library_path.elements() {
        let parent = folder.parent().unwrap_or(Path::new("/"));
        let near = [folder.join("lib"), folder.join("lib64"), parent.join("lib"), parent.join("lib64")];
        if let Some(near) = near.iter().find(|near| near.join(name).is_file()) {
            return format!("did you mean `{}` instead of `{}`?", near.display(), folder.display());
        }
    }
    if let Some(folder) = host.configured_folders().iter().find(|folder| folder.join(name).is_file()) {
        return format!("it lies in `{}`, which `/etc/ld.so.conf` names: run `ldconfig`", folder.display());
    }
    format!("put the folder that has `{name}` into the library path, or install the package that has it")
}

fn missing_version(missing: &MissingVersion, place: &Place) -> Finding {
    let MissingVersion { version, library, offered, needed_by } = missing;
    let (library, needed_by) = (library.display(), needed_by.display());
    let offered = offered.as_ref().map_or(String::new(), |offered| format!(", which goes up to `{offered}`"));
    let message = format!("`{needed_by}` needs `{version}` of `{library}`{offered}");
    let remedy = if version.starts_with("GLIBC") {
        "build in an older container, or start on a host with a newer system"
    } else {
        "use the library that the program was built with"
    };
    Finding::error(code::VERSION_MISSING, place.clone(), message).remedy(remedy)
}

/// A finding for a symbol that nothing offers.
pub(super) fn missing_symbol(missing: &Unresolved, place: &Place) -> Finding {
    let Unresolved { object, symbol, is_needed_at_start } = missing;
    let object = object.display();
    let when = if *is_needed_at_start { "would not start" } else { "would end when it is called" };
    let message = format!("`{object}` refers to `{symbol}`, which no loaded library offers: the program {when}");
    let finding = if *is_needed_at_start { Finding::error } else { Finding::warning };
    finding(code::SYMBOL_MISSING, place.clone(), message)
        .remedy("use the libtorch version that the program was built for, or link the library that has it")
}

/// A finding for an empty element of the library path, if there is one.
pub(super) fn empty_element(library_path: &LibraryPath, place: &Place) -> Option<Finding> {
    library_path.has_empty_element().then(|| {
        let message = "the library path has an empty element: the loader would search the working directory for it";
        Finding::error(code::EMPTY_LIBRARY_PATH_ELEMENT, place.clone(), message)
            .remedy("leave out the `:` at its start or end, and one of two together")
    })
}

/// A finding for a program that the host's CPU does not run, if it is one.
pub(super) fn wrong_cpu(program: &ElfFacts, host: &HostLibraries, binary: &Path, place: &Place) -> Option<Finding> {
    let is_run = isa::is_run_on(&program.arch, &host.arch);
    (!is_run).then(|| {
        let message = format!("`{}` is for {}, the host is {}", binary.display(), program.arch, host.arch);
        Finding::error(code::WRONG_ARCHITECTURE, place.clone(), message)
            .remedy(format!("build it with a target for {}", host.arch))
    })
}
