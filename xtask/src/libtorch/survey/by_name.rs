//! Libraries that others load by their name while a program runs.
//!
//! No NEEDED tells of them, and a tree without one starts and dies at the first call that wants it. The table is kept by
//! version: read from the sources of torch, and from the names in the libraries of the wheels (a test holds it against
//! those).

use std::collections::BTreeSet;

/// One library that another one loads by its name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LoadedByName {
    /// Who loads it.
    pub loader: String,
    /// What it loads: a file name, or how one begins where a version follows.
    pub loads: String,
    /// The file in the tree that it is; none when it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What for.
    pub purpose: &'static str,
    /// Whether usual programs need it.
    pub is_required: bool,
}

struct Row {
    /// How the loader's file name begins.
    loader: &'static str,
    /// The file name, or its beginning when it ends with a dot.
    loads: &'static str,
    /// The first torch version that does so, as (major, minor); none for NVIDIA's libraries, which have versions of their own.
    torch: Option<(u32, u32)>,
    purpose: &'static str,
    is_required: bool,
}

const fn torch(loader: &'static str, loads: &'static str, since: (u32, u32), purpose: &'static str) -> Row {
    Row { loader, loads, torch: Some(since), purpose, is_required: true }
}

const fn nvidia(loader: &'static str, loads: &'static str, purpose: &'static str) -> Row {
    Row { loader, loads, torch: None, purpose, is_required: true }
}

const fn optional(loader: &'static str, loads: &'static str, purpose: &'static str) -> Row {
    Row { loader, loads, torch: None, purpose, is_required: false }
}

/// The table. cuDNN 9 is cut into parts by what they compute, cuDNN 8 by inference and training.
const TABLE: [Row; 22] = [
    torch("libtorch_cuda.so", "libtorch_cuda_linalg.so", (1, 13), "linear algebra on the GPU"),
    // Torch has named the compiler itself since 1.9, and `libcaffe2_nvrtc` only where it was built to link it.
    optional("libtorch_cuda.so", "libnvrtc.so.", "kernels that are compiled while the program runs"),
    optional("libtorch_cuda.so", "libcaffe2_nvrtc.so", "kernels that are compiled while the program runs"),
    optional("libtorch_hip.so", "libcaffe2_nvrtc.so", "kernels that are compiled while the program runs"),
    nvidia("libcudnn.so.9", "libcudnn_graph.so.9", "every call of cuDNN"),
    nvidia("libcudnn.so.9", "libcudnn_ops.so.9", "normalisation and other operations of cuDNN"),
    nvidia("libcudnn.so.9", "libcudnn_cnn.so.9", "convolutions"),
    nvidia("libcudnn.so.9", "libcudnn_adv.so.9", "recurrent networks and attention"),
    nvidia("libcudnn_graph.so.9", "libcudnn_heuristic.so.9", "the choice of a cuDNN engine"),
    nvidia("libcudnn_graph.so.9", "libcudnn_engines_precompiled.so.9", "cuDNN's own kernels"),
    nvidia("libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9", "cuDNN kernels compiled at run time"),
    nvidia("libcudnn.so.8", "libcudnn_ops_infer.so.8", "every call of cuDNN"),
    nvidia("libcudnn.so.8", "libcudnn_ops_train.so.8", "normalisation in training"),
    nvidia("libcudnn.so.8", "libcudnn_cnn_infer.so.8", "convolutions"),
    nvidia("libcudnn.so.8", "libcudnn_cnn_train.so.8", "convolutions in training"),
    nvidia("libcudnn.so.8", "libcudnn_adv_infer.so.8", "recurrent networks and attention"),
    nvidia("libcudnn.so.8", "libcudnn_adv_train.so.8", "recurrent networks in training"),
    nvidia("libnvrtc.so.12", "libnvrtc-builtins.so.12.", "kernels that are compiled while the program runs"),
    nvidia("libnvrtc.so.13", "libnvrtc-builtins.so.13.", "kernels that are compiled while the program runs"),
    optional("libnvshmem_host.so.3", "nvshmem_bootstrap_uid.so.3", "memory shared between the GPUs of several hosts"),
    optional("libcupti.so.", "libnvperf_host.so", "hardware counters of the profiler"),
    optional("libcufile.so.0", "libcufile_rdma.so.1", "reading files straight into GPU memory over RDMA"),
];

/// What the libraries of a tree load by name; `version` is torch's, without a local part.
pub fn loaded_by_name(version: &str, files: &BTreeSet<&str>) -> Vec<LoadedByName> {
    let version = major_minor(version);
    let mut loaded = Vec::new();
    for row in &TABLE {
        let applies = match (row.torch, version) {
            (Some(since), Some(version)) => version >= since,
            // A version that cannot be read is that of a new torch rather than of one from before the table.
            (Some(_), None) | (None, _) => true,
        };
        let Some(loader) = first(files, row.loader).filter(|_| applies) else { continue };
        loaded.push(LoadedByName {
            loader: loader.to_owned(),
            loads: row.loads.to_owned(),
            found: first(files, row.loads).map(str::to_owned),
            purpose: row.purpose,
            is_required: row.is_required,
        });
    }
    loaded
}

/// The file of this name, or the first whose name begins so where `name` ends with a dot.
fn first<'a>(files: &BTreeSet<&'a str>, name: &str) -> Option<&'a str> {
    let is_it = |file: &str| file == name || name.ends_with('.') && file.starts_with(name);
    files.iter().copied().find(|file| is_it(file))
}

/// The files among `files` that get loaded by name once those of `loaded` are, one behind the other; without `loaded`
/// themselves.
pub fn followers(version: &str, files: &BTreeSet<&str>, loaded: &BTreeSet<&str>) -> BTreeSet<String> {
    let rows = loaded_by_name(version, files);
    let mut followers = BTreeSet::new();
    loop {
        let is_there = |file: &str| loaded.contains(file) || followers.contains(file);
        let next = rows.iter().filter(|row| is_there(&row.loader)).filter_map(|row| row.found.as_deref());
        let Some(next) = next.filter(|file| !is_there(file)).map(str::to_owned).next() else { return followers };
        followers.insert(next);
    }
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
