//! Which folders of this machine a build in a container sees, each at the path that it has here.
//!
//! Owns where a workspace's sources, cargo's own files and a libtorch lie. Reads them with the caller's cargo and without
//! writing anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::Metadata;

use crate::cargo::{cargo_home, config_files};
use crate::libtorch::Variant;
use crate::toolchain::{Env, Run};
use crate::workspace::metadata;

/// Files and folders of cargo's home that a build has no reason to write, and that may hold secrets or programs.
const READ_ONLY_OF_HOME: [&str; 6] = ["bin", "config", "config.toml", "credentials", "credentials.toml", "env"];

/// A folder or a file that is seen inside at its own path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Mount {
    /// Absolute, here and inside.
    pub path: Utf8PathBuf,
    /// Whether it can only be read inside.
    pub is_read_only: bool,
}

impl Mount {
    /// One that is written too.
    pub fn writable(path: impl Into<Utf8PathBuf>) -> Self {
        Self { path: path.into(), is_read_only: false }
    }

    /// One that is only read.
    pub fn read_only(path: impl Into<Utf8PathBuf>) -> Self {
        Self { path: path.into(), is_read_only: true }
    }

    /// The value of the engine's `--volume`; none for a path that its syntax cannot say.
    pub fn volume(&self) -> Option<String> {
        let path = &self.path;
        let mode = if self.is_read_only { "ro" } else { "rw" };
        (!path.as_str().contains(':')).then(|| format!("{path}:{path}:{mode}"))
    }
}

/// Adds a mount, unless what is there shows it already.
pub(super) fn add(mounts: &mut Vec<Mount>, mount: Mount) {
    let is_shown = |there: &Mount| mount.path.starts_with(&there.path) && (mount.is_read_only || !there.is_read_only);
    if !mounts.iter().any(is_shown) {
        mounts.push(mount);
    }
}

/// What all builds of a workspace need.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Workspace, sources outside of it, cargo's home and configuration.
    pub mounts: Vec<Mount>,
    /// `CARGO_HOME`.
    pub cargo_home: Utf8PathBuf,
    /// Whether cargo has named, and got, every source of the lock file.
    pub is_whole: bool,
}

impl Sources {
    /// Looks for them; none where no folder can be cargo's home.
    pub fn read(cargo: &OsStr, root: &Utf8Path, env: &Env, run: Run<'_>) -> Option<Self> {
        let cargo_home = cargo_home(env)?;
        let mut mounts = vec![Mount::writable(root)];
        let (folders, is_whole) = match metadata(cargo, &root.join("Cargo.toml"), "--locked", env, run) {
            Some(metadata) => (folders_of(&metadata), true),
            // Without a lock file that fits, cargo would write one: what the manifests say by themselves has to do.
            None => (by_manifests(cargo, root, env, run), false),
        };
        let outside =
            folders.into_iter().filter(|folder| !folder.starts_with(root) && !folder.starts_with(&cargo_home));
        outside.for_each(|folder| add(&mut mounts, Mount::read_only(folder)));
        add(&mut mounts, Mount::writable(&cargo_home));
        let kept = READ_ONLY_OF_HOME.iter().map(|name| cargo_home.join(name)).filter(|path| path.exists());
        mounts.extend(kept.map(Mount::read_only));
        let above = config_files(root, env).into_iter().filter(|file| !file.starts_with(&cargo_home));
        above.for_each(|file| add(&mut mounts, Mount::read_only(file)));
        Some(Self { mounts, cargo_home, is_whole })
    }
}

/// The folders of all packages; of those that a folder of sources replaces a registry with, that folder.
fn folders_of(metadata: &Metadata) -> BTreeSet<Utf8PathBuf> {
    let packages = metadata.packages.iter().filter_map(|package| {
        let folder = package.manifest_path.parent()?;
        let is_path = package.source.is_none();
        if is_path { Some(folder) } else { folder.parent() }
    });
    packages.map(Utf8Path::to_owned).collect()
}

/// The folders of path dependencies, from manifest to manifest.
fn by_manifests(cargo: &OsStr, root: &Utf8Path, env: &Env, run: Run<'_>) -> BTreeSet<Utf8PathBuf> {
    let mut folders = BTreeSet::new();
    let mut next = vec![root.to_owned()];
    while let Some(folder) = next.pop() {
        let manifest = folder.join("Cargo.toml");
        let Some(metadata) = metadata(cargo, &manifest, "--no-deps", env, run) else { continue };
        let paths = metadata.packages.iter().flat_map(|package| &package.dependencies);
        for path in paths.filter_map(|dependency| dependency.path.clone()) {
            if folders.insert(path.clone()) {
                next.push(path);
            }
        }
    }
    folders
}

/// What a build against a libtorch sees of it: the tree, by whatever links it is reached, and the libraries beside it.
pub(super) fn of_variant(variant: &Variant) -> Vec<Mount> {
    let root = &variant.root;
    let neighbours = root.parent().map(|folder| folder.join("torch.libs")).filter(|folder| folder.is_dir());
    let mut folders: Vec<Utf8PathBuf> = std::iter::once(root.clone()).chain(neighbours).collect();
    folders.extend(folders.clone().iter().filter_map(|folder| folder.canonicalize_utf8().ok()));
    // Libraries may be links into another tree.
    let libraries = root.join("lib").read_dir_utf8().into_iter().flatten().flatten();
    let targets = libraries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let targets = targets.filter_map(|entry| Some(entry.path().canonicalize_utf8().ok()?.parent()?.to_owned()));
    let targets: BTreeSet<Utf8PathBuf> = targets.collect();
    let mut mounts = Vec::new();
    folders.into_iter().chain(targets).for_each(|folder| add(&mut mounts, Mount::read_only(folder)));
    mounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_seen_already_is_not_mounted_again_but_to_be_written() {
        let mut mounts = vec![Mount::writable("/w")];
        add(&mut mounts, Mount::read_only("/w/libtorch/a"));
        add(&mut mounts, Mount::writable("/w/target/x"));
        add(&mut mounts, Mount::read_only("/store"));
        add(&mut mounts, Mount::writable("/store/builds/k"));
        add(&mut mounts, Mount::read_only("/wider"));
        let paths: Vec<_> = mounts.iter().map(|mount| mount.path.as_str()).collect();
        assert_eq!(paths, ["/w", "/store", "/store/builds/k", "/wider"]);
    }

    #[test]
    fn spaces_and_letters_can_be_mounted_and_a_colon_cannot() {
        assert_eq!(Mount::read_only("/a b/ü,x").volume().as_deref(), Some("/a b/ü,x:/a b/ü,x:ro"));
        assert_eq!(Mount::writable("/a:b").volume(), None);
    }
}
