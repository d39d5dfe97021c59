//! Variables of the shell that change what a build or a launch does, each with what it does here.
//!
//! Only those that are set are told. What a build does to a variable is decided where builds are planned
//! ([`crate::env_vars`]), what a rank gets where runs are; here it is said in words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use camino::Utf8Path;
use torchlift::env_vars::{
    self, CARDS, CUDA_DEVICE_ORDER, FDL_LIBTORCH_CASE, HOME, HSA_OVERRIDE_GFX_VERSION, LD_LIBRARY_PATH, LD_PRELOAD,
    TORCHRUN,
};
use torchlift::preflight::fit::Override;

use super::{Check, Scene, Section, SectionId, counted};
use crate::env_vars::{
    CARGO_ENCODED_RUSTFLAGS, CARGO_TARGET_DIR, CUDA_COMPUTE_CAP, LIBTORCH, LIBTORCH_BYPASS_VERSION_CHECK,
    LIBTORCH_CXX11_ABI, LIBTORCH_PATH, MISLEADING, RUSTFLAGS, TORCH_CUDA_ARCH_LIST,
};
use crate::libtorch::{active, inspect};

/// Variables that are handed on as they are, with what they do here.
const HANDED_ON: [(&str, &str); 13] = [
    (LIBTORCH_PATH, "each build sets its own"),
    (LIBTORCH_CXX11_ABI, "each build sets it by what the libtorch's symbols say"),
    (TORCH_CUDA_ARCH_LIST, "a build for CUDA sets it to its kind's GPUs; others are built anew when it changes"),
    (CUDA_COMPUTE_CAP, "a build for CUDA sets it to its kind's oldest GPU; others are built anew when it changes"),
    (RUSTFLAGS, "goes to cargo with the kind's own flags; another value is another build"),
    (CARGO_ENCODED_RUSTFLAGS, "goes to cargo with the kind's own flags; another value is another build"),
    (CARGO_TARGET_DIR, "builds lie below it"),
    ("CC", "build scripts compile C with it; another value is another build"),
    ("CXX", "build scripts compile C++ with it, and the check above does; another value is another build"),
    ("AR", "build scripts make archives with it; another value is another build"),
    ("OMP_NUM_THREADS", "every rank gets it, in place of 1 where several share a host"),
    (env_vars::TORCHLIFT_HOME, "holds the store of libtorches"),
    (env_vars::TORCHLIFT_CACHE, "holds downloads and remembered facts"),
];

pub(super) fn look(scene: &Scene) -> Section {
    let mut section = Section::new(SectionId::Environment);
    let mut checks = Vec::new();
    home(scene, &mut checks);
    loader(scene, &mut checks);
    libtorch(scene, &mut checks);
    cards(scene, &mut checks);
    ranks(scene, &mut checks);
    locale(scene, &mut checks);
    for (name, what) in HANDED_ON {
        checks.extend(value(scene, name).map(|value| Check::right(name, format!("`{value}`: {what}"))));
    }
    if checks.is_empty() {
        checks.push(Check::right("variables", "none is set that changes a build or a launch"));
    }
    checks.into_iter().for_each(|check| section.push(check));
    section
}

/// A variable that is set to something.
fn raw<'s>(scene: &'s Scene, name: &str) -> Option<&'s OsString> {
    scene.env.get(OsStr::new(name)).filter(|value| !value.is_empty())
}

fn value(scene: &Scene, name: &str) -> Option<String> {
    raw(scene, name).map(|value| value.to_string_lossy().into_owned())
}

fn home(scene: &Scene, checks: &mut Vec<Check>) {
    if let Err(error) = &scene.places {
        let remedy = "set `HOME` to this user's home, or `TORCHLIFT_HOME` and `TORCHLIFT_CACHE` to folders of your own";
        checks.push(Check::wrong("places", error.to_string(), remedy));
    } else if value(scene, HOME).is_none() {
        let remedy = "set `HOME`: cargo, rustup and pip keep their files there";
        checks.push(Check::doubtful(HOME, "is not set", remedy));
    }
    let inside = env_vars::TORCHLIFT_INTERNAL_BUILD_LOCK;
    if let Some(lock) = value(scene, inside) {
        let found =
            format!("`{lock}`: this was started by a build of that workspace, in which no other one may be made");
        checks.push(Check::doubtful(inside, found, "do not call this tool from a build script"));
    }
}

fn loader(scene: &Scene, checks: &mut Vec<Check>) {
    if let Some(libraries) = value(scene, LD_PRELOAD) {
        let found = format!("`{libraries}`: is loaded into every rank and every tool, before the libtorch");
        checks.push(Check::doubtful(
            LD_PRELOAD,
            found,
            format!("`unset {LD_PRELOAD}`, unless it is meant for all of them"),
        ));
    }
    let Some(path) = raw(scene, LD_LIBRARY_PATH) else { return };
    let shown = path.to_string_lossy();
    // Empty elements are taken out of what builds and ranks get.
    let elements: Vec<&[u8]> =
        path.as_bytes().split(|byte| matches!(byte, b':' | b';')).filter(|element| !element.is_empty()).collect();
    let mut wrong = Vec::new();
    for element in elements {
        let folder = std::path::Path::new(OsStr::from_bytes(element));
        let shown = folder.display();
        if !folder.is_absolute() {
            wrong.push(format!("`{shown}` starts from each program's working directory"));
        } else if folder.join("libtorch_cpu.so").is_file() {
            wrong.push(format!("`{shown}` has a libtorch, of which ranks load what their own one lacks"));
        } else if !folder.is_dir() {
            wrong.push(format!("`{shown}` is no folder"));
        }
    }
    wrong.dedup();
    let what = "goes behind the libtorch's folder in what each rank gets";
    checks.push(if wrong.is_empty() {
        Check::right(LD_LIBRARY_PATH, format!("`{shown}`: {what}"))
    } else {
        let found = format!("`{shown}`: {what}; {}", wrong.join("; "));
        Check::doubtful(
            LD_LIBRARY_PATH,
            found,
            format!("take that out, or `unset {LD_LIBRARY_PATH}`: a kind has `library_path` for it"),
        )
    });
}

fn libtorch(scene: &Scene, checks: &mut Vec<Check>) {
    if let Some(root) = value(scene, LIBTORCH) {
        let what = "`libtorch = \"auto\"` takes it before those of the stores, if it suits; a kind that names one does not look at it";
        let folder = scene.context.cwd.join(&root);
        let cache = scene.places.as_ref().ok().map(crate::libtorch::Places::facts);
        checks.push(match inspect(&folder, cache.as_deref()) {
            Ok(facts) => Check::right(LIBTORCH, format!("`{root}`, torch {}: {what}", facts.version)),
            Err(error) => Check::doubtful(
                LIBTORCH,
                format!("`{root}`: {error}, so that it is passed over"),
                format!("`unset {LIBTORCH}`, or name the folder that has `lib` and `include`"),
            ),
        });
    }
    for name in MISLEADING {
        let found = |value| {
            format!("`{value}`: each build with a libtorch takes it out, and `cargo build` by itself follows it")
        };
        checks.extend(value(scene, name).map(|value| Check::right(name, found(value))));
    }
    let name = LIBTORCH_BYPASS_VERSION_CHECK;
    checks.extend(value(scene, name).map(|value| {
        let found =
            format!("`{value}`: `torch-sys` builds with any version, and what does not fit shows at the first call");
        Check::doubtful(name, found, format!("`unset {name}`, and set it in `build_env` of the one kind that needs it"))
    }));
    match active::case(&scene.env) {
        Ok(Some(case)) => checks
            .push(Check::right(FDL_LIBTORCH_CASE, format!("`{case}`: the pointer `.active.{case}` of a store counts"))),
        Ok(None) => {}
        Err(error) => {
            let remedy = error.hint(&scene.context.invocation);
            checks.push(Check::wrong(
                FDL_LIBTORCH_CASE,
                error.to_string(),
                format!("{remedy}; or `unset {FDL_LIBTORCH_CASE}`"),
            ));
        }
    }
}

fn cards(scene: &Scene, checks: &mut Vec<Check>) {
    for name in CARDS {
        // Set to nothing is not the same as not set: it hides all cards.
        let Some(value) = scene.env.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned()) else {
            continue;
        };
        let hides_all = name != CUDA_DEVICE_ORDER && (value.trim().is_empty() || value.trim_start().starts_with('-'));
        checks.push(if hides_all {
            let found = format!("`{value}`: hides every card from every rank");
            Check::doubtful(name, found, format!("`unset {name}`, and choose cards with `devices` of a host"))
        } else if name == CUDA_DEVICE_ORDER {
            Check::right(name, format!("`{value}`: ranks get `PCI_BUS_ID`, in whose order `devices` counts"))
        } else {
            Check::right(name, format!("`{value}`: ranks see these cards alone; `devices` chooses among them"))
        });
    }
    let name = HSA_OVERRIDE_GFX_VERSION;
    let Some(text) = value(scene, name) else { return };
    checks.push(match text.parse::<Override>() {
        Ok(_) => Check::right(name, format!("`{text}`: every AMD card is taken for that processor, by checks too")),
        Err(error) => Check::doubtful(
            name,
            format!("{error}: ROCm shows no card with it"),
            format!("`unset {name}`, or write it as `10.3.0`"),
        ),
    });
}

/// What a launcher sets for each rank: a shell inside of another job has it.
fn ranks(scene: &Scene, checks: &mut Vec<Check>) {
    let set: Vec<String> =
        TORCHRUN.iter().filter(|name| raw(scene, name).is_some()).map(|name| format!("`{name}`")).collect();
    if let Some((first, rest)) = set.split_first() {
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let found = format!(
            "{first}{more} of another job: each rank gets its own instead ({})",
            counted(set.len(), "variable")
        );
        checks.push(Check::right("rank-variables", found));
    }
}

/// Tools that follow the locale stumble over names outside of ASCII; ours do not.
fn locale(scene: &Scene, checks: &mut Vec<Check>) {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| Some((*name, value(scene, name)?)));
    let is_utf8 = named.as_ref().is_some_and(|(_, value)| {
        let value = value.to_ascii_lowercase();
        value.ends_with("utf-8") || value.ends_with("utf8")
    });
    let is_plain = [Some(scene.folder.as_path()), scene.places.as_ref().ok().map(|places| places.home.as_path())];
    let is_plain = is_plain.into_iter().flatten().all(|path: &Utf8Path| path.as_str().is_ascii());
    match named {
        Some((name, value)) if is_utf8 || is_plain => checks.push(Check::right("locale", format!("`{name}={value}`"))),
        None if is_plain => {}
        named => {
            let found = named.map_or_else(|| "none is set".to_owned(), |(name, value)| format!("`{name}={value}`"));
            let found = format!("{found}, and folders here have names outside of ASCII");
            checks.push(Check::doubtful(
                "locale",
                found,
                "`export LANG=C.UTF-8`: some tools write wrong names without it",
            ));
        }
    }
}
