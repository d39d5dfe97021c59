//! Every key of the cluster file: what unknown keys are held against, and what the docs must name.

/// The file's own keys.
pub const ROOT: &[&str] = &["schema", "job", "kind", "host", "toolchain", "slurm", "accept"];
/// `[job.NAME]`.
pub const JOB: &[&str] = &["package", "bin", "example", "profile", "cwd", "env", "env_pass", "push", "require"];
/// `[kind.NAME]`.
pub const KIND: &[&str] = &[
    "target",
    "libtorch",
    "features",
    "default_features",
    "rustflags",
    "build_env",
    "gpus",
    "library_path",
    "container",
    "build_on",
];
/// `library_path` of a kind.
pub const LIBRARY_PATH: &[&str] = &["before", "after"];
/// `container` of a kind.
pub const CONTAINER: &[&str] = &["engine", "image", "args"];
/// `[[host]]`.
pub const HOST: &[&str] = &["name", "kind", "path", "reach", "files", "slots", "devices", "env", "runner"];
/// `reach` of a host, when it is a table.
pub const REACH: &[&str] = &["ssh", "agent"];
/// `[toolchain."TRIPLE"]`.
pub const TOOLCHAIN: &[&str] = &["cargo", "rustc", "linker", "cc", "cxx", "ar", "sysroot", "glibc", "runner"];
/// `[slurm]`.
pub const SLURM: &[&str] = &["sbatch", "srun"];
/// `[[accept]]`.
pub const ACCEPT: &[&str] = &["code", "host", "reason"];

/// Every table with its keys, for the docs' test.
pub const TABLES: &[(&str, &[&str])] = &[
    ("schema", ROOT),
    ("job", JOB),
    ("kind", KIND),
    ("library_path", LIBRARY_PATH),
    ("container", CONTAINER),
    ("host", HOST),
    ("reach", REACH),
    ("toolchain", TOOLCHAIN),
    ("slurm", SLURM),
    ("accept", ACCEPT),
];
