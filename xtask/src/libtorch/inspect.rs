//! Facts of a variant, read from its files and never from its name.

use torchlift_schema::Accelerator;

/// What the files of a variant say.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VariantFacts {
    /// Torch version as `build-version` states it, such as `2.9.0+cu128`.
    pub version: String,
    /// `cpu` when no `libtorch_cuda` or `libtorch_hip` is there.
    pub accelerator: Accelerator,
    /// CPU architecture of `libtorch_cpu.so`, as in a target triple: `x86_64`, `aarch64`.
    pub cpu_arch: String,
    /// Whether its C++ ABI is the new one, from `std::__cxx11` symbols of `libc10.so`.
    pub is_cxx11_abi: bool,
    /// Digest of headers, exported symbols, version and C++ ABI, lower-case hex (the design's "Build").
    pub abi_digest: String,
    /// `lib*.so*` files of `lib/`, sorted.
    pub libraries: Vec<String>,
}
