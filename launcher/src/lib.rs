//! Starts, watches and ends the ranks of a libtorch program.
//!
//! Purpose, by room: [`plan`] says what would run where; [`preflight`] says whether it would start;
//! [`reach`] brings an allocator up; `channel` is how one is talked to, and [`keys`] says who may; `client` asks many of them for ranks and hears what becomes of those; [`allocator`] and [`process`]
//! start ranks and leave nothing behind; [`claim`] keeps two runs off one card; `state` decides and [`dispatcher`] acts; `output` and [`report`] write and print.
//! Must not exit, print (outside `report` and `commands`) or read the environment (outside `env_vars`' callers in `commands`).

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "Torchlift builds for 64-bit Linux on x86_64 and aarch64 and for nothing else: it needs pidfds, subreapers, memfds and /proc"
);

#[cfg_attr(
    not(feature = "net"),
    expect(dead_code, reason = "without a network a run has allocators of its own process only")
)]
pub mod allocator;
#[cfg(feature = "net")]
pub(crate) mod channel;
pub mod claim;
pub mod cli;
#[cfg_attr(
    not(feature = "net"),
    expect(dead_code, reason = "without a network a run has allocators of its own process only")
)]
pub mod client;
pub mod clock;
pub mod commands;
pub mod dispatcher;
pub mod env_vars;
pub mod error;
pub mod event;
pub(crate) mod folder;
pub mod keys;
pub(crate) mod live;
pub(crate) mod lock;
pub(crate) mod output;
pub mod plan;
pub mod preflight;
pub mod process;
pub mod reach;
pub mod report;
pub(crate) mod state;
