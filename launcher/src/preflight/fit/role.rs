//! How much depends on a library's GPU code.

/// Why a library is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Nothing works without its code: `libtorch_cuda`, `libtorch_hip`, the program itself, and what the program needs
    /// that neither torch nor a vendor made.
    Decisive,
    /// Part of torch or of a vendor's toolkit: loaded with it, and called for some of what can be computed.
    Further,
}

/// torch's libraries that have its kernels; of two parts in the releases that split it.
const KERNELS: [&str; 4] = ["libtorch_cuda.so", "libtorch_hip.so", "libtorch_cuda_cu.so", "libtorch_cuda_cpp.so"];

/// How the names of torch's other libraries begin, and of those that come with NVIDIA's and AMD's toolkits.
const PUBLISHED: &[&str] = &[
    // torch
    "libtorch",
    "libc10",
    "libcaffe2",
    "libshm",
    "libnnapi",
    "libmagma",
    // NVIDIA
    "libcublas",
    "libcuda",
    "libcudart",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnpp",
    "libnvblas",
    "libnvfatbin",
    "libnvidia-",
    "libnvJitLink",
    "libnvjpeg",
    "libnvperf",
    "libnvrtc",
    "libnvshmem",
    "libnvToolsExt",
    "libnvtx",
    // AMD
    "libamd",
    "libaotriton",
    "libhip",
    "libhsa",
    "libMIOpen",
    "libmiopen",
    "librccl",
    "libroc",
    "libroctx",
];

impl Role {
    /// The role of a library of the loaded closure, by the name that the loader was asked for; `is_in_variant` when it lies
    /// in the libtorch, and so came with it. A program's own code is decisive whatever its name: ask for a library only.
    pub fn of_library(name: &str, is_in_variant: bool) -> Self {
        let is_kernels = KERNELS.iter().any(|kernels| name == *kernels || is_numbered(name, kernels));
        let is_published = is_in_variant || PUBLISHED.iter().any(|start| name.starts_with(start));
        if is_kernels || !is_published { Self::Decisive } else { Self::Further }
    }
}

/// `libtorch_cuda.so.2` for `libtorch_cuda.so`.
fn is_numbered(name: &str, file: &str) -> bool {
    name.strip_prefix(file).is_some_and(|rest| rest.starts_with('.'))
}
