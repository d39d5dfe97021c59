//! The user's cargo workspace: what is in it, and which program of it a job means.
//!
//! Facts come from `cargo metadata --no-deps` and `Cargo.lock`, so that reading them needs no network and no
//! registry. Must not build, and must not read a cluster file.

mod program;
mod source;

use std::ffi::OsStr;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::{MetadataCommand, TargetKind};
use torchlift_schema::exit_code;

pub(crate) use program::offer;
pub use program::{ArtifactKind, Program, resolve};
pub use source::{SourceId, source_id, source_times};

use crate::error::CommandError;
use crate::file;
use crate::toolchain::{Env, Run, output};

/// What was read of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WorkspaceFacts {
    /// Its root, absolute.
    pub root: Utf8PathBuf,
    /// Where cargo would put what it builds: `CARGO_TARGET_DIR` and the configuration are already followed.
    pub target_directory: Utf8PathBuf,
    /// Its members, in cargo's order.
    pub packages: Vec<PackageFacts>,
    /// Names of those that cargo takes when none is named.
    pub default_packages: Vec<String>,
    /// Names of the `[profile.<name>]` tables of the root's manifest.
    pub profiles: Vec<String>,
    /// What `Cargo.lock` pins; none when there is no such file yet.
    pub lock: Option<LockFacts>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PackageFacts {
    /// Its name.
    pub name: String,
    /// The folder of its manifest, absolute.
    pub folder: Utf8PathBuf,
    /// Names of its programs.
    pub bins: Vec<String>,
    /// Names of its examples.
    pub examples: Vec<String>,
    /// `default-run`.
    pub default_run: Option<String>,
    /// Names of its features.
    pub features: Vec<String>,
}

/// What `Cargo.lock` pins.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LockFacts {
    /// Number of packages in it: an upper bound for what a build compiles.
    pub packages: usize,
    /// Versions of `torch-sys` in it; several when dependencies disagree.
    pub torch_sys: Vec<semver::Version>,
    /// Packages in it whose purpose is to link C++.
    pub cxx: Vec<String>,
}

/// Packages that are there to compile C++ and to link its library.
const CXX: [&str; 4] = ["autocxx", "cpp", "cxx", "link-cplusplus"];

/// What cargo says of the packages of `manifest`, asked from its folder with one further `option`; none where it cannot.
pub(crate) fn metadata(
    cargo: &OsStr,
    manifest: &Utf8Path,
    option: &str,
    env: &Env,
    run: Run<'_>,
) -> Option<cargo_metadata::Metadata> {
    let mut command = MetadataCommand::new();
    command.cargo_path(cargo).manifest_path(manifest).other_options([option.to_owned()]);
    let mut command = command.cargo_command();
    command.env_clear().envs(env).stdin(std::process::Stdio::null());
    if let Some(folder) = manifest.parent() {
        command.current_dir(folder);
    }
    let output = run(&mut command).ok().filter(|output| output.status.success())?;
    MetadataCommand::parse(String::from_utf8_lossy(&output.stdout)).ok()
}

impl WorkspaceFacts {
    /// Reads the workspace of `manifest`, or the one at or above `cwd`.
    ///
    /// # Errors
    /// When there is none, or cargo cannot make sense of it; cargo's own words are the cause.
    pub fn read(cargo: &OsStr, env: &Env, cwd: &Utf8Path, manifest: Option<&Utf8Path>) -> Result<Self, CommandError> {
        Self::ask(cargo, env, cwd, manifest, &output)
    }

    /// The same, with cargo run by `run`.
    ///
    /// # Errors
    /// As [`WorkspaceFacts::read`].
    pub fn ask(
        cargo: &OsStr,
        env: &Env,
        cwd: &Utf8Path,
        manifest: Option<&Utf8Path>,
        run: Run<'_>,
    ) -> Result<Self, CommandError> {
        // In a folder that is not there nothing can be started; from here cargo says that the manifest is missing.
        let folder = manifest.and_then(Utf8Path::parent).filter(|folder| folder.is_dir()).unwrap_or(cwd);
        let failed = || {
            let place = manifest.map_or_else(|| format!("at or above `{cwd}`"), |file| format!("for `{file}`"));
            CommandError::new(exit_code::BUILD, format!("no cargo workspace can be read {place}"))
        };
        let mut command = MetadataCommand::new();
        command.cargo_path(cargo).no_deps();
        if let Some(manifest) = manifest {
            command.manifest_path(manifest);
        }
        let mut command = command.cargo_command();
        command.env_clear().envs(env).current_dir(folder).stdin(std::process::Stdio::null());
        let output = run(&mut command).map_err(|error| {
            failed().because(error).hint(format!("is `{}` an installed cargo?", cargo.to_string_lossy()))
        })?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.trim().trim_start_matches("error: ").to_owned();
            return Err(failed().because(words).hint("run it inside a cargo project, or give `--manifest-path`"));
        }
        let metadata = MetadataCommand::parse(String::from_utf8_lossy(&output.stdout))
            .map_err(|error| failed().because(error).hint(format!("is `{}` really cargo?", cargo.to_string_lossy())))?;
        let lock = LockFacts::read(&metadata.workspace_root.join("Cargo.lock"))?;
        Ok(Self::from_metadata(&metadata, lock))
    }

    /// The folder that gets a target folder per build: the given one, relative to `cwd`, else one in cargo's own.
    pub fn builds_dir(&self, given: Option<&Utf8Path>, cwd: &Utf8Path) -> Utf8PathBuf {
        given.map_or_else(|| self.target_directory.join("torchlift/builds"), |folder| cwd.join(folder))
    }

    fn from_metadata(metadata: &cargo_metadata::Metadata, lock: Option<LockFacts>) -> Self {
        let names = |package: &cargo_metadata::Package, kind: TargetKind| {
            package
                .targets
                .iter()
                .filter(|target| target.is_kind(kind.clone()))
                .map(|target| target.name.clone())
                .collect()
        };
        let packages: Vec<_> = metadata
            .workspace_packages()
            .into_iter()
            .map(|package| PackageFacts {
                name: package.name.to_string(),
                folder: package.manifest_path.parent().unwrap_or(&metadata.workspace_root).to_owned(),
                bins: names(package, TargetKind::Bin),
                examples: names(package, TargetKind::Example),
                default_run: package.default_run.clone(),
                features: package.features.keys().cloned().collect(),
            })
            .collect();
        let defaults: Vec<String> = if metadata.workspace_default_members.is_available() {
            metadata.workspace_default_packages().into_iter().map(|package| package.name.to_string()).collect()
        } else {
            packages.iter().map(|package| package.name.clone()).collect()
        };
        Self {
            root: metadata.workspace_root.clone(),
            target_directory: metadata.target_directory.clone(),
            packages,
            default_packages: defaults,
            profiles: profiles(&metadata.workspace_root.join("Cargo.toml")),
            lock,
        }
    }
}

/// The profiles of a workspace's manifest. One that is no TOML is left to cargo, which has read it already.
fn profiles(manifest: &Utf8Path) -> Vec<String> {
    let table = file::read_to_string(manifest).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let profiles = table.as_ref().and_then(|table| table.get("profile")).and_then(toml::Value::as_table);
    profiles.into_iter().flat_map(|profiles| profiles.keys().cloned()).collect()
}

impl LockFacts {
    /// Reads `Cargo.lock`; none when there is no such file.
    pub(crate) fn read(path: &Utf8Path) -> Result<Option<Self>, CommandError> {
        let text = match file::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(CommandError::new(exit_code::BUILD, "`Cargo.lock` cannot be read")
                    .because(error)
                    .hint("move away what lies there: cargo writes a new one"));
            }
        };
        // A lock file that cargo will refuse is left to cargo, which says where it is wrong.
        Ok(Some(Self::parse(&text).unwrap_or_default()))
    }

    fn parse(text: &str) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Lock {
            #[serde(default)]
            package: Vec<Locked>,
        }
        #[derive(serde::Deserialize)]
        struct Locked {
            name: String,
            version: semver::Version,
        }
        let lock: Lock = toml::from_str(text).ok()?;
        let is_cxx = |package: &&Locked| CXX.contains(&package.name.as_str());
        Some(Self {
            packages: lock.package.len(),
            cxx: lock.package.iter().filter(is_cxx).map(|package| package.name.clone()).collect(),
            torch_sys: lock
                .package
                .into_iter()
                .filter(|package| package.name == "torch-sys")
                .map(|package| package.version)
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_tells_the_torch_sys_that_it_pins() {
        let text = "version = 4\n[[package]]\nname = \"tch\"\nversion = \"0.22.0\"\n\
                    [[package]]\nname = \"torch-sys\"\nversion = \"0.22.0\"\nsource = \"registry+x\"\n\
                    [[package]]\nname = \"cxx\"\nversion = \"1.0.0\"\n";
        let lock = LockFacts::parse(text).unwrap();
        assert_eq!((lock.packages, lock.torch_sys), (3, vec![semver::Version::new(0, 22, 0)]));
        assert_eq!(lock.cxx, ["cxx"]);
    }

    #[test]
    fn a_damaged_lock_file_is_left_to_cargo() {
        let temp = tempfile::tempdir().unwrap();
        let file = Utf8Path::from_path(temp.path()).unwrap().join("Cargo.lock");
        fs_err::write(&file, "<<<<<<< HEAD").unwrap();
        assert_eq!(LockFacts::read(&file).unwrap(), Some(LockFacts::default()));
    }
}
