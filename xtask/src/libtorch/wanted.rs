//! Which torch version a program needs: the one that its locked `torch-sys` pins.
//!
//! Reads what the build script of that very version says, since that is what will refuse another libtorch.

use camino::Utf8Path;

use crate::toolchain::{Env, Run, output};
use crate::workspace::{LockFacts, metadata};

/// A version, and how it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Without a local part: `2.9.0`.
    pub version: String,
    /// For people: `torch-sys 0.22.0 (build.rs in …)`.
    pub origin: String,
}

/// What releases of torch-sys pin, newest first: used only where the source of the locked release is not on this machine.
const PINS: [(&str, &str); 6] = [
    ("0.22.", "2.9.0"),
    ("0.21.", "2.8.0"),
    ("0.20.", "2.7.0"),
    ("0.19.", "2.6.0"),
    ("0.18.", "2.5.1"),
    ("0.17.", "2.4.0"),
];

/// The version that the workspace of `manifest` needs; none when no `torch-sys` is in it.
///
/// Asks cargo for the locked dependency graph, which may download sources; where cargo cannot, the lock file is read.
pub fn of_workspace(cargo: &std::ffi::OsStr, manifest: &Utf8Path, env: &Env) -> Option<Wanted> {
    ask(cargo, manifest, env, &output)
}

/// The same, with cargo run by `run`.
pub fn ask(cargo: &std::ffi::OsStr, manifest: &Utf8Path, env: &Env, run: Run<'_>) -> Option<Wanted> {
    match metadata(cargo, manifest, "--locked", env, run) {
        Some(metadata) => of_metadata(&metadata),
        None => manifest.ancestors().skip(1).find_map(|folder| of_lock(&folder.join("Cargo.lock"))),
    }
}

/// The version that the `torch-sys` of a resolved graph pins; of several, that of the newest.
fn of_metadata(metadata: &cargo_metadata::Metadata) -> Option<Wanted> {
    let package = metadata
        .packages
        .iter()
        .filter(|package| *package.name == "torch-sys")
        .max_by_key(|package| &package.version)?;
    let release = package.version.to_string();
    let source = package.manifest_path.with_file_name("build.rs");
    of_source(&release, &source).or_else(|| of_table(&release))
}

/// The same from a lock file alone: the source is looked for nowhere, so that only the table can tell.
fn of_lock(file: &Utf8Path) -> Option<Wanted> {
    let newest = LockFacts::read(file).ok()??.torch_sys.into_iter().max()?;
    of_table(&newest.to_string())
}

/// The version that the newest known release of `tch` pins, for a workspace that has none.
pub fn newest_known() -> Wanted {
    let (release, version) = PINS[0];
    let release = release.trim_end_matches('.');
    Wanted { version: version.to_owned(), origin: format!("tch {release}, since no `torch-sys` is in this workspace") }
}

fn of_source(release: &str, build_script: &Utf8Path) -> Option<Wanted> {
    let text = crate::file::read_to_string(build_script).ok()?;
    let version = text.lines().find_map(|line| {
        let (name, value) = line.trim().strip_prefix("const ")?.split_once('=')?;
        let name = name.split(':').next()?.trim();
        (name == "TORCH_VERSION").then(|| value.trim().trim_end_matches(';').trim_matches('"').to_owned())
    })?;
    let is_version = version.split('.').count() >= 2 && version.starts_with(|c: char| c.is_ascii_digit());
    is_version.then(|| Wanted { version, origin: format!("torch-sys {release}, from its `build.rs`") })
}

fn of_table(release: &str) -> Option<Wanted> {
    let (_, version) = PINS.iter().find(|(prefix, _)| release.starts_with(prefix))?;
    let origin = format!("torch-sys {release}, from Torchlift's own table since its source is not on this machine");
    Some(Wanted { version: (*version).to_owned(), origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_script_of_the_locked_release_is_believed_before_the_table() {
        let temp = tempfile::tempdir().unwrap();
        let file = Utf8Path::from_path(temp.path()).unwrap().join("build.rs");
        fs_err::write(&file, "use a;\nconst TORCH_VERSION: &str = \"2.9.1\";\n").unwrap();
        let wanted = of_source("0.22.0", &file).unwrap();
        assert_eq!(wanted.version, "2.9.1");
        assert!(wanted.origin.contains("build.rs"), "{}", wanted.origin);
        fs_err::write(&file, "const TORCH_VERSION: &str = env!(\"X\");").unwrap();
        assert_eq!(of_source("0.22.0", &file), None, "a constant that is computed tells nothing");
    }

    #[test]
    fn a_lock_file_alone_gives_the_version_of_the_table_and_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let file = Utf8Path::from_path(temp.path()).unwrap().join("Cargo.lock");
        let locked = "version = 4\n[[package]]\nname = \"torch-sys\"\nversion = \"0.22.0\"\n";
        fs_err::write(&file, locked).unwrap();
        let wanted = of_lock(&file).unwrap();
        assert_eq!(wanted.version, "2.9.0");
        assert!(wanted.origin.contains("table"), "{}", wanted.origin);
        fs_err::write(&file, "version = 4\n[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\n").unwrap();
        assert_eq!(of_lock(&file), None);
    }
}
