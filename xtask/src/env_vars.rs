//! The environment variables that a build sets or unsets for cargo, `torch-sys` and other build scripts: their names
//! stand nowhere else.
//!
//! Torchlift's own, torchrun's and the system's are in [`torchlift::env_vars`].

/// The libtorch to build against, by its folder.
pub const LIBTORCH: &str = "LIBTORCH";
/// The same, for build scripts of other crates than `torch-sys`.
pub const LIBTORCH_PATH: &str = "LIBTORCH_PATH";
/// Another folder for the libraries alone.
pub const LIBTORCH_LIB: &str = "LIBTORCH_LIB";
/// Another folder for the headers alone.
pub const LIBTORCH_INCLUDE: &str = "LIBTORCH_INCLUDE";
/// Asks for static libraries.
pub const LIBTORCH_STATIC: &str = "LIBTORCH_STATIC";
/// Asks for the libtorch of whatever `python` is found.
pub const LIBTORCH_USE_PYTORCH: &str = "LIBTORCH_USE_PYTORCH";
/// Which C++ ABI the libtorch was built with: `1` or `0`.
pub const LIBTORCH_CXX11_ABI: &str = "LIBTORCH_CXX11_ABI";
/// Lets `torch-sys` build against another version than it pins; a person's to set.
pub const LIBTORCH_BYPASS_VERSION_CHECK: &str = "LIBTORCH_BYPASS_VERSION_CHECK";
/// The GPU that kernels are compiled for, without a dot: `61`.
pub const CUDA_COMPUTE_CAP: &str = "CUDA_COMPUTE_CAP";
/// The GPUs that extensions of torch are compiled for: `6.1;12.0`.
pub const TORCH_CUDA_ARCH_LIST: &str = "TORCH_CUDA_ARCH_LIST";
/// Flags for rustc, split at spaces.
pub const RUSTFLAGS: &str = "RUSTFLAGS";
/// Flags for rustc, split at U+001F; cargo takes it before [`RUSTFLAGS`].
pub const CARGO_ENCODED_RUSTFLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
/// Where cargo puts what it builds.
pub const CARGO_TARGET_DIR: &str = "CARGO_TARGET_DIR";

/// Those that name the libtorch; each build sets all of them.
pub const LIBTORCH_PATHS: [&str; 2] = [LIBTORCH, LIBTORCH_PATH];
/// Those that would lead a build script past the libtorch that it is given; each build unsets all of them.
pub const MISLEADING: [&str; 4] = [LIBTORCH_INCLUDE, LIBTORCH_LIB, LIBTORCH_STATIC, LIBTORCH_USE_PYTORCH];
