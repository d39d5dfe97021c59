//! The environment variables of Torchlift itself, of torchrun, of GPU drivers, and of the user's system: their names stand
//! nowhere else.
//!
//! What cargo, rustup, compilers and `torch-sys` read is named where a build's environment is made.

/// Where stores and settings lie; default `$XDG_DATA_HOME/torchlift`, then `~/.local/share/torchlift`.
pub const TORCHLIFT_HOME: &str = "TORCHLIFT_HOME";
/// Where downloads and facts are kept, deletable at any time; default `$XDG_CACHE_HOME/torchlift`, then `~/.cache/torchlift`.
pub const TORCHLIFT_CACHE: &str = "TORCHLIFT_CACHE";
/// Where cards are claimed, for a machine without `/run/lock`: the same folder for every user; default `/run/lock/torchlift-cards`.
pub const TORCHLIFT_CLAIMS: &str = "TORCHLIFT_CLAIMS";
/// Where the official libtorch archives lie, for a mirror; default `https://download.pytorch.org/libtorch`.
pub const TORCHLIFT_LIBTORCH_URL: &str = "TORCHLIFT_LIBTORCH_URL";
/// Which pointer of a libtorch store counts: `x` selects `.active.x` in place of `.active`. Named as other tools that keep
/// such stores name it.
pub const FDL_LIBTORCH_CASE: &str = "FDL_LIBTORCH_CASE";
/// Set for every rank: the run's folder, the same over attempts.
pub const TORCHLIFT_RUN_DIR: &str = "TORCHLIFT_RUN_DIR";
/// Set for every rank: the run's id. Also the marker by which a run's processes are known in /proc.
pub const TORCHLIFT_RUN_ID: &str = "TORCHLIFT_RUN_ID";
/// Set for every rank: the name of its host in the cluster file.
pub const TORCHLIFT_HOST: &str = "TORCHLIFT_HOST";
/// Set for every rank: the attempt, from 0.
pub const TORCHLIFT_ATTEMPT: &str = "TORCHLIFT_ATTEMPT";
/// Tells a program that it is a guard, and on which descriptor its socket is. Never given to a rank.
pub const TORCHLIFT_INTERNAL_GUARD: &str = "TORCHLIFT_INTERNAL_GUARD";
/// Tells a launcher that it is the one that goes on by itself. Never given to a rank.
pub const TORCHLIFT_INTERNAL_DETACHED: &str = "TORCHLIFT_INTERNAL_DETACHED";
/// What begins with this is between our own processes. Never given to a rank.
pub const TORCHLIFT_INTERNAL_PREFIX: &str = "TORCHLIFT_INTERNAL";
/// Tells what a build starts which lock file it holds, so that a build inside of it does not wait for its own parent.
pub const TORCHLIFT_INTERNAL_BUILD_LOCK: &str = "TORCHLIFT_INTERNAL_BUILD_LOCK";
/// Names the file to which a test that cannot run appends why; set by `cargo xtask test`.
pub const TORCHLIFT_TEST_SKIPS: &str = "TORCHLIFT_TEST_SKIPS";
/// Names the `torchlift` that was built for old systems to its tests; set by `.ci/run`.
pub const TORCHLIFT_TEST_OLD_HOSTS_BINARY: &str = "TORCHLIFT_TEST_OLD_HOSTS_BINARY";
/// Names the file that an allocator writes the list of an allocation's hosts to; named as the published allocator names it.
pub const TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE: &str = "TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE";
/// Set for the ranks of an allocation whose client named a trace; named as the published allocator names it.
pub const MONARCH_CLIENT_TRACE_ID: &str = "MONARCH_CLIENT_TRACE_ID";
/// Where a user's sockets lie; a folder of that user alone.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Where what should outlive a restart is kept; default `~/.local/state`.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// The loader's search path.
pub const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Libraries that the loader puts before all others, into every process.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
/// The folder in which QEMU's user emulation looks for each file first, where `-L` does not say it.
pub const QEMU_LD_PREFIX: &str = "QEMU_LD_PREFIX";
/// Where what can be made again is kept; default `~/.cache`. Digests are remembered below it.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Where a user's own settings lie; default `~/.config`. Keys are kept below it.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where a user's own data lies; default `~/.local/share`.
pub const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// Where temporary files go; default `/tmp`.
pub const TMPDIR: &str = "TMPDIR";
/// The user's home.
pub const HOME: &str = "HOME";
/// Folders in which a program that is named without one is looked for.
pub const PATH: &str = "PATH";
/// When set and not empty, nothing of ours is coloured.
pub const NO_COLOR: &str = "NO_COLOR";
/// What kind of terminal it is; `dumb` knows no colours.
pub const TERM: &str = "TERM";
/// Which NVIDIA cards a process sees, by index or UUID.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Which AMD cards a process sees, by index or UUID.
pub const HIP_VISIBLE_DEVICES: &str = "HIP_VISIBLE_DEVICES";
/// The same for AMD's runtime below HIP, which looks at it first.
pub const ROCR_VISIBLE_DEVICES: &str = "ROCR_VISIBLE_DEVICES";
/// The same for AMD's OpenCL, which HIP follows too.
pub const GPU_DEVICE_ORDINAL: &str = "GPU_DEVICE_ORDINAL";
/// In which order NVIDIA's driver counts cards.
pub const CUDA_DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";
/// Which processor AMD's runtime takes every card for, such as `10.3.0`.
pub const HSA_OVERRIDE_GFX_VERSION: &str = "HSA_OVERRIDE_GFX_VERSION";
/// Variables that narrow or order the cards that a process sees; a cluster file has `devices` for that.
pub const CARDS: [&str; 5] =
    [CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL, CUDA_DEVICE_ORDER];
/// The 17 variables that torchrun sets for every worker, in its order; none may stand in a file's `env`.
pub const TORCHRUN: [&str; 17] = [
    "LOCAL_RANK",
    "RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_NAME",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCHELASTIC_ERROR_FILE",
];

/// Whether a variable that a person writes down can have this name.
///
/// A kernel carries every name but an empty one and one with `=` or NUL in it. Shells do not: POSIX knows names of ASCII
/// letters, digits and `_` without a digit first, and a `dash` between the launcher and the program drops all others. So only
/// these can be set or passed on by name; what is merely inherited is left as it is.
pub fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// What [`is_name`] wants, as a remedy.
pub const NAME_REMEDY: &str = "use letters, digits and `_`, and no digit first: shells pass on no other name";

/// Whether `name` is set by us for each rank, or kept between our own processes: none may stand in a file's `env`.
pub fn is_rank_variable(name: &str) -> bool {
    TORCHRUN.contains(&name)
        || [TORCHLIFT_RUN_DIR, TORCHLIFT_RUN_ID, TORCHLIFT_HOST, TORCHLIFT_ATTEMPT].contains(&name)
        || name.starts_with(TORCHLIFT_INTERNAL_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_every_shell_passes_on() {
        for name in ["A", "_", "a1_B", "WANDB_API_KEY"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1A", "A=B", "A\0", "A\n", "A\u{1b}[31m", "A B", "A.B", "A-B", "Ä", "A\u{202e}"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(TORCHRUN.iter().all(|name| is_name(name)));
    }
}
