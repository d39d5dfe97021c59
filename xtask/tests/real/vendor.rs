//! NVIDIA's tools, from Python packages that run without a GPU, and what is made with them.
//!
//! Owns where they come from and where they are kept: below `TORCHLIFT_CACHE` as a user's downloads are, so that only the
//! first run on a machine downloads. Whoever tests with real GPU code takes it from here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use torchlift::preflight::fatbin::toolkit_of_ptx;
use torchlift_xtask::libtorch::Places;

use crate::{skip, stand_in};

/// A Python package, the version that the tests were written with, and programs in it.
const PACKAGES: [(&str, &str); 3] = [
    ("nvidia-cuda-cuobjdump", "13.5.37"),
    ("nvidia-cuda-nvcc", "13.5.37"),
    // The last toolkit that compiles for cards before 7.5.
    ("nvidia-cuda-nvcc-cu12", "12.9.86"),
];

/// What a person does when the packages cannot be had.
const REMEDY: &str = "make `python3 -m pip` able to reach a package index";

/// The tools.
#[derive(Debug)]
pub(crate) struct Vendor {
    cuobjdump: PathBuf,
    fatbinary: PathBuf,
    /// `ptxas` of CUDA 12.9.
    pub(crate) ptxas_12_9: PathBuf,
    /// `ptxas` of CUDA 13.5.
    pub(crate) ptxas_13_5: PathBuf,
}

/// One image of a fatbin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Image<'a> {
    /// Machine code for an architecture, such as `90a`.
    Sass(&'a str),
    /// PTX for an architecture, in a version of its language, such as `8.0`.
    Ptx(&'a str, &'a str),
}

impl Vendor {
    /// Finds or downloads them; none, and said so, where that is not possible.
    pub(crate) fn get(test: &str) -> Option<Self> {
        if std::env::consts::ARCH != "x86_64" {
            skip::skip(test, "NVIDIA's tools are taken for x86_64 only", "run it on x86_64");
            return None;
        }
        let mut folders = Vec::new();
        for (package, version) in PACKAGES {
            match package_folder(package, version) {
                Ok(folder) => folders.push(folder),
                Err(reason) => {
                    skip::skip(test, &reason, REMEDY);
                    return None;
                }
            }
        }
        let tool = |package: usize, path: &str| {
            let file = folders[package].join(path);
            assert!(file.is_file(), "`{}` has no {path}", PACKAGES[package].0);
            file
        };
        Some(Self {
            cuobjdump: tool(0, "nvidia/cu13/bin/cuobjdump"),
            fatbinary: tool(1, "nvidia/cu13/bin/fatbinary"),
            ptxas_13_5: tool(1, "nvidia/cu13/bin/ptxas"),
            ptxas_12_9: tool(2, "nvidia/cuda_nvcc/bin/ptxas"),
        })
    }

    /// Makes the fatbin `folder/<name>.fatbin`, one region, of `images`; `options` are `fatbinary`'s own.
    pub(crate) fn fatbin(&self, folder: &Path, name: &str, images: &[Image<'_>], options: &[&str]) -> PathBuf {
        let fatbin = folder.join(format!("{name}.fatbin"));
        let mut command = Command::new(&self.fatbinary);
        // Relative names: the tool splits its arguments at commas, which a folder's name may have.
        command.current_dir(folder).args(["-64", "--create"]).arg(format!("{name}.fatbin")).args(options);
        for (index, image) in images.iter().enumerate() {
            let (kind, arch, file) = match image {
                Image::Sass(arch) => ("elf", arch, self.cubin(folder, &format!("{name}-{index}"), arch)),
                Image::Ptx(arch, isa) => ("ptx", arch, ptx(folder, &format!("{name}-{index}"), arch, isa)),
            };
            command.arg("--image3").arg(format!("kind={kind},sm={arch},file={file}"));
        }
        run(&mut command);
        fatbin
    }

    /// Compiles a kernel; gives the file's name in `folder`.
    fn cubin(&self, folder: &Path, name: &str, arch: &str) -> String {
        let source = ptx(folder, name, arch, "8.8");
        let cubin = format!("{name}.cubin");
        let arch = format!("-arch=sm_{arch}");
        run(Command::new(&self.ptxas_12_9).current_dir(folder).args([
            arch.as_str(),
            source.as_str(),
            "-o",
            cubin.as_str(),
        ]));
        cubin
    }

    /// What `cuobjdump` says of `file`, which is a fatbin or an ELF file: how many entries there are of each code,
    /// written as [`torchlift_schema::gpu::GpuCode`] is.
    pub(crate) fn listed(&self, file: &Path) -> BTreeMap<String, u64> {
        let output = Command::new(&self.cuobjdump).arg(file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        if said.contains("does not contain device code") {
            return BTreeMap::new();
        }
        assert!(output.status.success(), "{said}");
        let mut listed = BTreeMap::new();
        let (mut prefix, mut arch) = (None, String::new());
        for line in text.lines().map(str::trim) {
            match line {
                "Fatbin elf code:" => prefix = Some("sm_"),
                "Fatbin ptx code:" => prefix = Some("compute_"),
                _ if line.starts_with("Fatbin ") => prefix = None,
                _ => {}
            }
            if let Some(name) = line.strip_prefix("arch = sm_") {
                name.clone_into(&mut arch);
            }
            if let (Some(version), Some(prefix)) = (line.strip_prefix("code version = ["), prefix) {
                let (major, minor) = version.trim_end_matches(']').split_once(',').unwrap();
                let toolkit = toolkit_of_ptx(major.parse().unwrap(), minor.parse().unwrap());
                let toolkit = toolkit.filter(|_| prefix == "compute_").map(|version| format!("@{version}"));
                *listed.entry(format!("{prefix}{arch}{}", toolkit.unwrap_or_default())).or_insert(0) += 1;
            }
        }
        listed
    }

    /// Makes a stand-in libtorch in the existing folder `lib` whose `libtorch_cuda.so` carries a region for each of
    /// `regions`: that of a library which was built for other cards than the published ones.
    pub(crate) fn libtorch(&self, lib: &Path, regions: &[&[Image<'_>]]) {
        let scratch = tempfile::tempdir_in(lib).unwrap();
        let fatbins: Vec<PathBuf> = regions
            .iter()
            .enumerate()
            .map(|(index, images)| self.fatbin(scratch.path(), &format!("region-{index}"), images, &[]))
            .collect();
        stand_in::libtorch(lib, true);
        let search = stand_in::search(lib);
        let carrier = carrier(scratch.path(), ".nv_fatbin", &fatbins);
        let args = [carrier.to_str().unwrap(), search.as_str(), "-ltorch_cpu", "-lc10"];
        stand_in::library("torch_cuda.c", &lib.join("libtorch_cuda.so"), &args);
    }
}

/// Writes an assembler source that carries `fatbins` in `section` as compilers do, with the pointers that the runtime is
/// given; gives its file, which is an argument for `cc`.
pub(crate) fn carrier(folder: &Path, section: &str, fatbins: &[PathBuf]) -> PathBuf {
    let mut source = String::new();
    for (index, fatbin) in fatbins.iter().enumerate() {
        let file = fatbin.to_str().unwrap().replace('\\', "\\\\").replace('"', "\\\"");
        source.push_str(&format!(
            ".section {section}, \"a\"\n.balign 8\nregion{index}:\n.incbin \"{file}\"\n\
             .section .nvFatBinSegment, \"aw\"\n.balign 8\n.long 0x466243b1, 1\n.quad region{index}, 0\n"
        ));
    }
    source.push_str(".section .note.GNU-stack, \"\"\n");
    let file = folder.join("carrier.s");
    fs_err::write(&file, source).unwrap();
    file
}

/// A kernel in PTX; gives the file's name in `folder`.
pub(crate) fn ptx(folder: &Path, name: &str, arch: &str, isa: &str) -> String {
    let file = format!("{name}.ptx");
    let source = format!(
        ".version {isa}\n.target sm_{arch}\n.address_size 64\n.visible .entry fill(.param .u64 place)\n{{\n\
         .reg .b64 %rd<3>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [place];\ncvta.to.global.u64 %rd2, %rd1;\n\
         mov.u32 %r1, 7;\nst.global.u32 [%rd2], %r1;\nret;\n}}\n"
    );
    fs_err::write(folder.join(&file), source).unwrap();
    file
}

/// The folder of the unpacked wheel of torch 2.9.0 that has GPU code, with its libraries below `torch/lib`; none, and said
/// so, where it cannot be had.
pub(crate) fn wheel(test: &str) -> Option<PathBuf> {
    let places = places();
    let downloads = places.downloads().into_std_path_buf();
    let found = || {
        let entries = fs_err::read_dir(&downloads).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_wheel = |name: &String| {
            name.starts_with("torch-2.9.0-") && name.ends_with(&format!("{}.whl", std::env::consts::ARCH))
        };
        names.filter(is_wheel).min().map(|name| downloads.join(name))
    };
    let wheel = match found() {
        Some(wheel) => wheel,
        None => {
            fs_err::create_dir_all(&downloads).unwrap();
            if let Err(reason) = download("torch", "2.9.0", &downloads) {
                skip::skip(test, &reason, REMEDY);
                return None;
            }
            found().expect("pip said that it is there")
        }
    };
    let name = wheel.file_stem().unwrap().to_string_lossy().into_owned();
    let folder = unpacked(&wheel, &name);
    if !folder.join("torch/lib/libtorch_cuda.so").is_file() {
        skip::skip(test, "the index has torch 2.9.0 without GPU code", "let pip use an index with the CUDA wheel");
        return None;
    }
    Some(folder)
}

fn places() -> Places {
    Places::from_env(&std::env::vars_os().collect()).unwrap()
}

/// The folder of an unpacked package.
fn package_folder(package: &str, version: &str) -> Result<PathBuf, String> {
    let name = format!("{package}-{version}");
    let folder = places().cache.into_std_path_buf().join("tools").join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let scratch = tempfile::tempdir().unwrap();
    let wheel = download(package, version, scratch.path())?;
    Ok(unpacked(&wheel, &name))
}

/// Downloads a package into `folder`; gives its wheel, or why there is none.
fn download(package: &str, version: &str, folder: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet", "--dest"]);
    let output = command.arg(folder).arg(format!("{package}=={version}")).output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.starts_with("ERROR")).unwrap_or("pip failed");
        return Err(format!("`{package}` {version} cannot be downloaded: {line}"));
    }
    let start = format!("{}-{version}", package.replace('-', "_"));
    let mut names = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&start);
    Ok(names.find(is_it).expect("pip said that it is there"))
}

/// Unpacks a wheel into the cache under `name`, with what are programs in it made such; what is there is kept.
fn unpacked(wheel: &Path, name: &str) -> PathBuf {
    let tools = places().cache.into_std_path_buf().join("tools");
    let folder = tools.join(name);
    if folder.is_dir() {
        return folder;
    }
    fs_err::create_dir_all(&tools).unwrap();
    let scratch = tempfile::tempdir_in(&tools).unwrap();
    let inner = scratch.path().join("whole");
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&inner));
    // zipfile gives no file its mode.
    run(Command::new("chmod").args(["-R", "u+rwX,a+x"]).arg(&inner));
    // Another run may have been first; its files are the same.
    if let Err(error) = fs_err::rename(&inner, &folder) {
        assert!(folder.is_dir(), "{error}");
    }
    folder
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output
}
