//! Builds a libtorch program once per kind of host, proves that each host can run it, and launches it.
//!
//! Rooms: [`cluster`] reads the cluster file; [`workspace`] the user's cargo workspace; [`libtorch`] the variants;
//! [`facts`] gathers what a plan is made of; [`plan`] says what would be built; [`doctor`] looks at all of it and changes nothing; [`execute`] and [`cargo`] do it; [`verify`] holds what was built against its hosts; [`commands`] has one verb a file.
//! Steps go one way, and a later one never reaches back.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "Torchlift builds for 64-bit Linux on x86_64 and aarch64 and for nothing else: it needs pidfds, subreapers, memfds and /proc"
);

pub mod bench;
pub mod bounded;
pub mod cargo;
pub mod checkout;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod container;
pub mod doctor;
pub mod env_vars;
pub mod error;
pub mod execute;
pub mod facts;
pub mod file;
pub mod libtorch;
pub mod plan;
pub mod report;
pub mod toolchain;
pub mod verify;
pub mod workspace;
