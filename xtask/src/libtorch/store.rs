//! The stores of variants: which ids they hold and which folder an id means.
//!
//! A store is a folder with `<family>/<name>` below it. The workspace's own comes first, so that a project can pin a
//! tree of its own; the user's follows, shared by all projects. Must not read what is inside a variant: that is
//! [`super::inspect()`].

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::gpu::CudaArch;
use torchlift_schema::{Accelerator, VariantId};

use super::Places;

/// The stores of one workspace, in the order in which they are searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stores {
    /// Absolute; a folder that is not there is an empty store.
    pub roots: Vec<Utf8PathBuf>,
}

/// A variant that lies in a store, by its folder only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stored {
    /// Its id.
    pub id: VariantId,
    /// Its folder, absolute.
    pub root: Utf8PathBuf,
}

impl Stores {
    /// `<workspace>/libtorch`, then `$TORCHLIFT_HOME/libtorch`.
    pub fn new(workspace: Option<&Utf8Path>, places: &Places) -> Self {
        let own = workspace.map(|root| root.join("libtorch"));
        Self { roots: own.into_iter().chain([places.store()]).collect() }
    }

    /// The folder of `id` in the first store that has it with a `lib` folder.
    pub fn resolve(&self, id: &VariantId) -> Option<Utf8PathBuf> {
        self.roots.iter().map(|root| root.join(id.as_str())).find(|folder| folder.join("lib").is_dir())
    }

    /// The first store that has a folder of this id, whole or not, or a link of its name.
    pub fn holding(&self, id: &VariantId) -> Option<&Utf8Path> {
        let has = |root: &&Utf8PathBuf| fs_err::symlink_metadata(root.join(id.as_str())).is_ok();
        self.roots.iter().find(has).map(Utf8PathBuf::as_path)
    }

    /// Everything that the stores hold, store by store, sorted by id in each.
    ///
    /// Folders whose names are no variant id (half unpacked ones begin with a dot) are not variants.
    pub fn list(&self) -> Vec<Stored> {
        let mut found = Vec::new();
        for root in &self.roots {
            let mut here = Vec::new();
            for (family, folder) in folders(root) {
                for (name, root) in folders(&folder) {
                    if let Ok(id) = format!("{family}/{name}").parse::<VariantId>()
                        && root.join("lib").is_dir()
                    {
                        here.push(Stored { id, root });
                    }
                }
            }
            here.sort();
            found.append(&mut here);
        }
        found
    }
}

/// Something in a store that is no variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stray {
    /// Where it lies.
    pub path: Utf8PathBuf,
    /// What it is, as a fragment.
    pub what: &'static str,
    /// Whether the next command that changes the store takes it away.
    pub is_swept: bool,
}

/// What lies in a store and is no variant: half ones, what killed processes left, and what somebody put there. Pointers, the
/// store's lock and other hidden files are none of these.
pub fn strays(root: &Utf8Path) -> Vec<Stray> {
    let mut found = Vec::new();
    let entries = |folder: &Utf8Path| folder.read_dir_utf8().into_iter().flatten().flatten();
    for family in entries(root) {
        let name = family.file_name();
        if super::stage::is_left_over(name) {
            let what = "is what a process that is gone was putting in or taking away";
            found.push(Stray { path: family.into_path(), what, is_swept: true });
            continue;
        }
        if name.starts_with('.') {
            continue;
        }
        if !family.path().is_dir() {
            found.push(Stray { path: family.into_path(), what: "is no folder of variants", is_swept: false });
            continue;
        }
        for variant in entries(family.path()).filter(|variant| !variant.file_name().starts_with('.')) {
            let is_named = format!("{name}/{}", variant.file_name()).parse::<VariantId>().is_ok();
            let what = match (is_named, variant.path().join("lib").is_dir()) {
                (true, true) => continue,
                (true, false) => "has no `lib`, so that it is no variant: half of one, or none at all",
                (false, _) => "has a name that no variant has (letters, digits, `_`, `-`, `.` and `+`)",
            };
            found.push(Stray { path: variant.into_path(), what, is_swept: false });
        }
    }
    found.sort();
    found
}

/// The id under which a fetched variant is stored: `precompiled/<accelerator>-<version>`, with the CPU architecture
/// behind it when that is not x86_64: `precompiled/cpu-2.9.0`, `precompiled/cu128-2.9.0`, `precompiled/cpu-2.9.0-aarch64`.
///
/// The version is part of it so that two programs which pin different versions can share one store. `version` may carry
/// a local part (`2.9.0+cu128`), which is dropped: the accelerator already says it.
pub fn fetched_id(accelerator: &Accelerator, version: &str, cpu_arch: &str) -> Option<VariantId> {
    let toolkit = super::spec::label(accelerator).replace('.', "");
    let public = super::inspect::public_version(version);
    let arch = if cpu_arch == "x86_64" { String::new() } else { format!("-{cpu_arch}") };
    format!("precompiled/{toolkit}-{public}{arch}").parse().ok()
}

/// The id under which a variant that was built here is stored: `builds/<archs>-<version>`, such as
/// `builds/sm61-sm120-2.9.0`.
pub fn built_id(archs: impl Iterator<Item = CudaArch>, version: &str, cpu_arch: &str) -> Option<VariantId> {
    let names: Vec<String> = archs.map(|arch| arch.to_string().replace('_', "")).collect();
    let public = super::inspect::public_version(version);
    let arch = if cpu_arch == "x86_64" { String::new() } else { format!("-{cpu_arch}") };
    format!("builds/{}-{public}{arch}", names.join("-")).parse().ok()
}

fn folders(root: &Utf8Path) -> Vec<(String, Utf8PathBuf)> {
    let Ok(entries) = root.read_dir_utf8() else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name().to_owned(), entry.into_path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> VariantId {
        text.parse().unwrap()
    }

    #[test]
    fn the_workspace_store_comes_before_the_users() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        let places = Places { home: base.join("héim"), cache: base.join("c") };
        let stores = Stores::new(Some(&base.join("my project")), &places);
        for root in ["héim/libtorch/precompiled/cpu-2.9.0/lib", "héim/libtorch/precompiled/.unpack-x/lib"] {
            fs_err::create_dir_all(base.join(root)).unwrap();
        }
        assert_eq!(
            stores.resolve(&id("precompiled/cpu-2.9.0")).unwrap(),
            base.join("héim/libtorch/precompiled/cpu-2.9.0")
        );
        fs_err::create_dir_all(base.join("my project/libtorch/precompiled/cpu-2.9.0/lib")).unwrap();
        assert_eq!(
            stores.resolve(&id("precompiled/cpu-2.9.0")).unwrap(),
            base.join("my project/libtorch/precompiled/cpu-2.9.0")
        );
        let ids: Vec<_> = stores.list().into_iter().map(|stored| stored.id.to_string()).collect();
        assert_eq!(ids, ["precompiled/cpu-2.9.0", "precompiled/cpu-2.9.0"], "a half unpacked folder is no variant");
    }

    #[test]
    fn versions_and_architectures_lie_side_by_side() {
        let name = |accelerator, version, arch| fetched_id(&accelerator, version, arch).unwrap().to_string();
        assert_eq!(name(Accelerator::Cpu, "2.9.0+cu128", "x86_64"), "precompiled/cpu-2.9.0");
        assert_eq!(name(Accelerator::Cpu, "2.9.0+cpu", "aarch64"), "precompiled/cpu-2.9.0-aarch64");
        assert_eq!(name(Accelerator::Cuda("12.8".into()), "2.9.0", "x86_64"), "precompiled/cu128-2.9.0");
        assert_eq!(name(Accelerator::Rocm("6.3".into()), "2.8.0", "x86_64"), "precompiled/rocm63-2.8.0");
    }
}
