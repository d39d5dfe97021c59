//! Small wheels with real (tiny) libraries in them, made as the usual tools make them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;

/// One file of an archive.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
    /// What `RECORD` says its content is; the content itself unless the test lies.
    pub(crate) recorded: Vec<u8>,
}

impl Member {
    pub(crate) fn new(name: &str, content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        Self { name: name.to_owned(), recorded: content.clone(), content, mode: 0o644 }
    }
}

/// A shared library, compiled once for all tests, that needs others by name.
pub(crate) fn library(scratch: &Utf8Path, name: &str, needed: &[&str]) -> Vec<u8> {
    /// By name and needs.
    type Compiled = BTreeMap<(String, Vec<String>), Vec<u8>>;
    static COMPILED: Mutex<Compiled> = Mutex::new(BTreeMap::new());
    let key = (name.to_owned(), needed.iter().map(|needed| (*needed).to_owned()).collect());
    let mut compiled = COMPILED.lock().unwrap();
    compiled.entry(key).or_insert_with(|| compile(scratch, name, needed)).clone()
}

fn compile(scratch: &Utf8Path, name: &str, needed: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir_in(scratch).unwrap();
    let folder = Utf8Path::from_path(folder.path()).unwrap();
    let build = |name: &str, needed: &[&str]| {
        let mut args = vec!["-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed", "-L.", "-o", name];
        let soname = format!("-Wl,-soname,{name}");
        let libraries: Vec<String> = needed.iter().map(|needed| format!("-l:{needed}")).collect();
        args.push(&soname);
        args.extend(libraries.iter().map(String::as_str));
        duct::cmd("cc", args).dir(folder).stdin_bytes("int exported_here;").run().unwrap();
    };
    for other in needed {
        build(other, &[]);
    }
    build(name, needed);
    fs_err::read(folder.join(name)).unwrap()
}

/// Writes a wheel with `METADATA` and `RECORD`.
pub(crate) fn write(folder: &Utf8Path, file: &str, requires: &[&str], mut members: Vec<Member>) -> Utf8PathBuf {
    let mut parts = file.split('-');
    let (name, version) = (parts.next().unwrap(), parts.next().unwrap());
    let info = format!("{name}-{version}.dist-info");
    let requires: String = requires.iter().map(|text| format!("Requires-Dist: {text}\n")).collect();
    let metadata = format!("Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{requires}\nprose\n");
    members.push(Member::new(&format!("{info}/METADATA"), metadata));
    members.push(Member::new(&format!("{info}/licenses/LICENSE"), format!("licence of {name}\n")));
    let mut record = String::new();
    for member in &members {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(&member.recorded));
        record.push_str(&format!("{},sha256={digest},{}\n", member.name, member.recorded.len()));
    }
    record.push_str(&format!("{info}/RECORD,,\n"));
    members.push(Member::new(&format!("{info}/RECORD"), record));
    let path = folder.join(file);
    archive(&path, &members);
    path
}

/// Writes a zip archive.
pub(crate) fn archive(path: &Utf8Path, members: &[Member]) {
    let mut zip = zip::ZipWriter::new(fs_err::File::create(path).unwrap());
    for member in members {
        zip.start_file(&member.name, SimpleFileOptions::default().unix_permissions(member.mode)).unwrap();
        zip.write_all(&member.content).unwrap();
    }
    zip.finish().unwrap();
}

/// The name of the torch wheel that [`torch`] writes.
pub(crate) const TORCH: &str = "torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl";

/// The members of a torch wheel for CUDA: what a cut keeps, and what it must leave out.
pub(crate) fn torch_members(scratch: &Utf8Path) -> Vec<Member> {
    let mut members: Vec<Member> = [
        ("libtorch_cpu.so", vec!["libc10.so", "libgomp.so.1", "libcudart.so.12", "libcupti.so.12"]),
        ("libc10.so", vec![]),
        ("libgomp.so.1", vec![]),
        ("libtorch.so", vec!["libtorch_cpu.so", "libtorch_cuda.so"]),
        ("libtorch_cuda.so", vec!["libtorch_cpu.so", "libcublas.so.12"]),
        ("libtorch_python.so", vec!["libtorch.so"]),
    ]
    .into_iter()
    .map(|(name, needed)| Member {
        mode: 0o755,
        ..Member::new(&format!("torch/lib/{name}"), library(scratch, name, &needed))
    })
    .collect();
    members.push(Member::new("torch/include/torch/torch.h", "#pragma once\n"));
    members.push(Member::new("torch/include/ATen/ü b.h", "#pragma once\n"));
    members.push(Member::new("torch/version.py", "__version__ = '2.9.0+cu128'\n"));
    members.push(Member::new("torch/__init__.py", "import nothing\n"));
    members
}

/// What the torch wheel requires.
pub(crate) const REQUIRES: [&str; 4] = [
    "filelock",
    "nvidia-cuda-runtime-cu12==12.8.90; platform_system == \"Linux\" and platform_machine == \"x86_64\"",
    "nvidia-cuda-cupti-cu12==12.8.90; platform_system == \"Linux\" and platform_machine == \"x86_64\"",
    "nvidia-cublas-cu12==12.8.4.1; platform_system == \"Linux\" and platform_machine == \"x86_64\"",
];

/// The wheels of the two NVIDIA packages that a CPU needs.
pub(crate) fn nvidia(folder: &Utf8Path) {
    for (name, library_name, below) in [
        ("nvidia_cuda_runtime_cu12", "libcudart.so.12", "cuda_runtime"),
        ("nvidia_cuda_cupti_cu12", "libcupti.so.12", "cuda_cupti"),
    ] {
        let file = format!("{name}-12.8.90-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl");
        let content = library(folder, library_name, &[]);
        let other_name = format!("libother_{below}.so");
        let other = library(folder, &other_name, &[]);
        let members = vec![
            Member::new(&format!("nvidia/{below}/lib/{library_name}"), content),
            Member::new(&format!("nvidia/{below}/lib/{other_name}"), other),
        ];
        write(folder, &file, &[], members);
    }
}
