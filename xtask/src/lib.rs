//! Builds a libtorch program once per kind of host, proves that each host can run it, and launches it.
//!
//! Rooms: [`cluster`] reads the cluster file; [`workspace`] the user's cargo workspace; [`libtorch`] the variants;
//! [`facts`] gathers what a plan is made of; [`plan`] says what would be built; [`execute`] and [`cargo`] do it; [`commands`] has one verb a file.
//! Steps go one way, and a later one never reaches back.

pub mod bench;
pub mod cargo;
pub mod checkout;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod error;
pub mod execute;
pub mod facts;
pub mod libtorch;
pub mod plan;
pub mod report;
pub mod toolchain;
pub mod workspace;
