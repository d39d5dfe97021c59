//! Which files of the archives make a variant, and putting them into its folder.
//!
//! The layout is flat: every library in `lib`, NVIDIA's too. The wheels carry a DT_RPATH, which the loader searches
//! before `LD_LIBRARY_PATH`; its last element is `$ORIGIN` and the others leave the variant, so that what lies beside
//! a library is what it gets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::elf;

use super::archive::{Archive, ArchiveError};
use super::event::{FetchEvent, Listener};
use super::stub;
use super::wheel::{Requirement, Wheel};

/// How much of a wheel is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What a program needs on a CPU; a CUDA wheel is cut.
    Cpu,
    /// All that a program needs, with the GPU libraries that the wheel has.
    Whole,
}

/// Libraries of NVIDIA by the beginning of their file names, and the wheel that has them, less `nvidia-` and `-cu12`.
const NVIDIA: [(&str, &str); 14] = [
    ("libcudart.", "cuda-runtime"),
    ("libcupti.", "cuda-cupti"),
    ("libcublas", "cublas"),
    ("libcudnn", "cudnn"),
    ("libcufft", "cufft"),
    ("libcufile", "cufile"),
    ("libcurand", "curand"),
    ("libcusolver", "cusolver"),
    ("libcusparse.", "cusparse"),
    ("libcusparseLt", "cusparselt"),
    ("libnccl", "nccl"),
    ("libnvJitLink", "nvjitlink"),
    ("libnvshmem", "nvshmem"),
    ("libnvrtc", "cuda-nvrtc"),
];

/// Libraries of the wheel that only a Python can use.
const PYTHON_ONLY: [&str; 2] = ["libtorch_python.so", "libshm.so"];

/// A torch wheel on its way into a variant's folder.
pub(super) struct Cut<'a> {
    pub wheel: &'a mut Wheel,
    pub extent: Extent,
    /// The folder that becomes the variant; it is there and empty.
    pub root: &'a Utf8Path,
    pub cpu_arch: &'a str,
}

/// What a cut needs from elsewhere.
pub(super) struct Missing {
    /// Wheels to get, in the order of the metadata.
    pub requirements: Vec<Requirement>,
    /// Libraries wanted of them; all, when the whole is wanted.
    pub libraries: BTreeSet<String>,
}

impl Cut<'_> {
    /// Whether GPU libraries are left out.
    pub(super) fn is_cut(&self) -> bool {
        self.extent == Extent::Cpu && self.wheel.archive.has("torch/lib/libtorch_cuda.so")
    }

    /// Bytes that the files of the wheel will take, at most.
    pub(super) fn size(&self) -> u64 {
        self.wheel.archive.files().filter(|(name, _)| self.may_want(name)).map(|(_, size)| size).sum()
    }

    /// Unpacks what the wheel itself has, and says what it needs from elsewhere.
    pub(super) fn unpack(&mut self, listen: Listener<'_>) -> Result<Missing, ArchiveError> {
        let what = format!("unpacking {}", self.wheel.archive.path().file_name().unwrap_or_default());
        let total = self.size();
        let mut done = 0;
        listen(FetchEvent::Begin { what, total: Some(total) });
        let result = self.unpack_counted(&mut |count| {
            done += count;
            listen(FetchEvent::Done(done));
        });
        listen(FetchEvent::End);
        result
    }

    fn unpack_counted(&mut self, on_bytes: &mut dyn FnMut(u64)) -> Result<Missing, ArchiveError> {
        let root = self.root;
        let trees: Vec<String> =
            self.wheel.archive.files().map(|(name, _)| name.to_owned()).filter(|name| self.is_tree(name)).collect();
        for name in trees {
            let below = name.trim_start_matches("torch/");
            self.wheel.archive.extract(&name, root, &root.join(below), on_bytes)?;
        }
        let own: BTreeMap<String, String> = self
            .wheel
            .archive
            .files()
            .filter(|(name, _)| is_library(name))
            .map(|(name, _)| (file_name(name).to_owned(), name.to_owned()))
            .collect();
        let is_cut = self.is_cut();
        let mut queue: VecDeque<String> = match self.extent {
            Extent::Cpu => ["libtorch_cpu.so", "libc10.so"].map(str::to_owned).into(),
            Extent::Whole => own.keys().filter(|name| !is_python_only(name)).cloned().collect(),
        };
        if self.extent == Extent::Cpu && !is_cut {
            queue.push_back("libtorch.so".to_owned());
        }
        let mut outside = BTreeSet::new();
        let mut seen: BTreeSet<String> = queue.iter().cloned().collect();
        while let Some(name) = queue.pop_front() {
            let Some(entry) = own.get(&name) else {
                outside.insert(name);
                continue;
            };
            let to = root.join("lib").join(&name);
            self.wheel.archive.extract(entry, root, &to, on_bytes)?;
            for needed in needs_of(&to)? {
                if seen.insert(needed.clone()) {
                    queue.push_back(needed);
                }
            }
        }
        if is_cut {
            let bytes = stub::libtorch_so(self.cpu_arch).ok_or_else(|| ArchiveError::Absent {
                archive: self.wheel.archive.path().to_owned(),
                entry: format!("a `libtorch.so` without CUDA for {}", self.cpu_arch),
            })?;
            write(&root.join("lib/libtorch.so"), &bytes)?;
        }
        licences(self.wheel, root)?;
        Ok(self.missing(outside))
    }

    fn missing(&self, outside: BTreeSet<String>) -> Missing {
        let applies = |requirement: &&Requirement| {
            requirement.version.is_some() && requirement.applies(self.cpu_arch) && is_nvidia(&requirement.name)
        };
        let nvidia = self.wheel.requires.iter().filter(applies);
        match self.extent {
            Extent::Whole => Missing { requirements: nvidia.cloned().collect(), libraries: BTreeSet::new() },
            Extent::Cpu => {
                let libraries: BTreeSet<String> = outside.into_iter().filter(|name| provider(name).is_some()).collect();
                let wanted: BTreeSet<&str> = libraries.iter().filter_map(|name| provider(name)).collect();
                let requirements = nvidia.filter(|req| wanted.contains(package(&req.name))).cloned().collect();
                Missing { requirements, libraries }
            }
        }
    }

    fn may_want(&self, name: &str) -> bool {
        self.is_tree(name)
            || (is_library(name)
                && match self.extent {
                    Extent::Whole => !is_python_only(file_name(name)),
                    Extent::Cpu => {
                        let file = file_name(name);
                        name.starts_with("torch.libs/")
                            || ["libtorch_cpu.so", "libtorch.so"].contains(&file)
                            || file.starts_with("libgomp")
                            || file == "libc10.so"
                    }
                })
    }

    /// Headers; CMake's files only with the whole, since those of a CUDA wheel ask for CUDA.
    fn is_tree(&self, name: &str) -> bool {
        name.starts_with("torch/include/")
            || (name.starts_with("torch/share/") && (self.extent == Extent::Whole || !self.is_cut()))
    }
}

impl Missing {
    /// Nothing is missed: further wheels are taken whole.
    pub(super) fn nothing() -> Self {
        Self { requirements: Vec::new(), libraries: BTreeSet::new() }
    }

    /// Takes the wanted libraries out of one of the other wheels; those that are in none remain in `libraries`.
    pub(super) fn take_from(
        &mut self,
        wheel: &mut Wheel,
        extent: Extent,
        root: &Utf8Path,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let found: Vec<String> = wheel
            .archive
            .files()
            .map(|(name, _)| name)
            .filter(|name| {
                let file = file_name(name);
                // Some load plugins by names that begin otherwise; a folder of stubs is for linkers.
                let is_of_lib = name.split('/').rev().nth(1) == Some("lib") && is_shared(file);
                (extent == Extent::Whole && is_of_lib) || self.libraries.contains(file)
            })
            .map(str::to_owned)
            .collect();
        for name in found {
            let file = file_name(&name).to_owned();
            let to = root.join("lib").join(&file);
            // Of two wheels that have a library of one name, the first of the list has it: theirs is the same.
            if !to.exists() {
                wheel.archive.extract(&name, root, &to, on_bytes)?;
            }
            self.libraries.remove(&file);
            if extent == Extent::Cpu {
                // A library of another wheel may need one of a third.
                let further = needs_of(&to)?.into_iter().filter(|name| provider(name).is_some());
                self.libraries.extend(further.filter(|name| !root.join("lib").join(name).exists()));
            }
        }
        licences(wheel, root)
    }

    /// The first wanted library that is in no wheel of the list.
    pub(super) fn first(&self) -> Option<&String> {
        self.libraries.first()
    }
}

/// Unpacks an official archive, whose one top folder is `libtorch`.
pub(super) fn unpack_official(
    archive: &mut Archive,
    root: &Utf8Path,
    listen: Listener<'_>,
) -> Result<(), ArchiveError> {
    unpack_below(archive, "libtorch/", root, listen)
}

/// Unpacks an archive whole, under the names that it has.
pub(super) fn unpack_all(archive: &mut Archive, root: &Utf8Path, listen: Listener<'_>) -> Result<(), ArchiveError> {
    unpack_below(archive, "", root, listen)
}

fn unpack_below(archive: &mut Archive, top: &str, root: &Utf8Path, listen: Listener<'_>) -> Result<(), ArchiveError> {
    let files: Vec<(String, u64)> =
        archive.files().filter(|(name, _)| name.starts_with(top)).map(|(name, size)| (name.to_owned(), size)).collect();
    let what = format!("unpacking {}", archive.path().file_name().unwrap_or_default());
    listen(FetchEvent::Begin { what, total: Some(files.iter().map(|(_, size)| size).sum()) });
    let mut done = 0;
    let mut result = Ok(());
    for (name, _) in &files {
        let to = root.join(name.strip_prefix(top).unwrap_or(name));
        let extracted = archive.extract(name, root, &to, &mut |count| {
            done += count;
            listen(FetchEvent::Done(done));
        });
        if let Err(error) = extracted {
            result = Err(error);
            break;
        }
    }
    listen(FetchEvent::End);
    result
}

/// Writes a small file of the variant.
pub(super) fn write(file: &Utf8Path, content: &[u8]) -> Result<(), ArchiveError> {
    let in_file = |source| ArchiveError::File { file: file.to_owned(), source };
    if let Some(parent) = file.parent() {
        fs_err::create_dir_all(parent).map_err(in_file)?;
    }
    fs_err::write(file, content).map_err(in_file)
}

fn licences(wheel: &mut Wheel, root: &Utf8Path) -> Result<(), ArchiveError> {
    let folder = root.join("licenses").join(wheel.dist_info.trim_end_matches(".dist-info"));
    for name in wheel.licences() {
        let below =
            Utf8PathBuf::from(name.split_once('/').map_or("", |(_, rest)| rest).trim_start_matches("licenses/"));
        wheel.archive.extract(&name, root, &folder.join(below), &mut |_| {})?;
    }
    Ok(())
}

fn needs_of(library: &Utf8Path) -> Result<Vec<String>, ArchiveError> {
    let damaged = |error| ArchiveError::File { file: library.to_owned(), source: std::io::Error::other(error) };
    Ok(elf::read(library.as_std_path()).map_err(damaged)?.needed)
}

/// The libraries that a library needs by name; none of what is no library.
pub(super) fn needs(library: &Utf8Path) -> Vec<String> {
    elf::read(library.as_std_path()).map(|facts| facts.needed).unwrap_or_default()
}

/// NVIDIA's libraries that the variant's own need and that it does not have; the driver's come with the driver.
pub(super) fn lacking(root: &Utf8Path) -> BTreeSet<String> {
    let folder = root.join("lib");
    let files: Vec<Utf8PathBuf> =
        folder.read_dir_utf8().into_iter().flatten().flatten().map(camino::Utf8DirEntry::into_path).collect();
    let libraries = files.iter().filter(|path| is_shared(path.as_str()) && path.is_file());
    libraries
        .flat_map(|path| needs(path))
        .filter(|name| provider(name).is_some() && !folder.join(name).exists())
        .collect()
}

/// Whether only a Python can use a library of a torch package.
pub(super) fn is_python_only(file: &str) -> bool {
    PYTHON_ONLY.contains(&file) || file.starts_with("libtorch_global_deps")
}

/// The package that a library of NVIDIA comes in; libraries of one package load each other by name.
pub(super) fn provider(library: &str) -> Option<&'static str> {
    NVIDIA.iter().find(|(prefix, _)| library.starts_with(prefix)).map(|(_, package)| *package)
}

fn is_nvidia(name: &str) -> bool {
    name.starts_with("nvidia-")
}

/// `cuda-runtime` of `nvidia-cuda-runtime-cu12`, and of `nvidia-cuda-runtime` as CUDA 13 names it.
fn package(name: &str) -> &str {
    let name = name.trim_start_matches("nvidia-");
    match name.rsplit_once('-') {
        Some((package, last))
            if last.strip_prefix("cu").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit())) =>
        {
            package
        }
        _ => name,
    }
}

fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Whether an entry is a library that lies where a torch wheel keeps them.
fn is_library(name: &str) -> bool {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    ["torch/lib", "torch.libs"].contains(&folder) && is_shared(file_name(name))
}

/// Whether a file's name is that of a shared library.
pub(super) fn is_shared(file: &str) -> bool {
    file.ends_with(".so") || file.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_of_a_library_is_known_with_and_without_the_cuda_suffix() {
        for (library, name) in [
            ("libcudart.so.12", "nvidia-cuda-runtime-cu12"),
            ("libcudart.so.13", "nvidia-cuda-runtime"),
            ("libcupti.so.12", "nvidia-cuda-cupti-cu12"),
            ("libcusparseLt.so.0", "nvidia-cusparselt-cu12"),
        ] {
            assert_eq!(provider(library), Some(package(name)), "{library}");
        }
        assert_eq!(provider("libm.so.6"), None);
        assert_eq!(provider("libcuda.so.1"), None, "the driver's library comes with the driver");
    }
}
