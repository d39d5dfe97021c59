//! What crosses a process or a machine in Torchlift: types only, no I/O.
//!
//! Owns the per-host envelope, its reader and canonical writer, the messages between a client and its allocators, the shape of
//! their ranks, the JSON Schemas of all of these, findings, exit codes, the names of GPUs and of versions.
//! Must not open a file, print, or read the environment.

// The first of the three packages that is compiled: elsewhere cargo ends here, before crates that only Linux has fail with
// words of their own.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "Torchlift builds for 64-bit Linux on x86_64 and aarch64 and for nothing else: it needs pidfds, subreapers, memfds and /proc"
);

pub mod addr;
pub mod control;
mod digest;
pub mod envelope;
pub mod error;
pub mod exit_code;
pub mod extent;
pub mod facts;
pub mod finding;
pub mod gpu;
pub mod host;
pub mod launch;
pub mod libtorch;
mod limit;
pub mod named;
pub mod read;
mod rule;
pub mod schema;
mod shape;
pub mod state;
mod tree;
pub mod validity;
pub mod version;
pub mod write;

pub use addr::ChannelAddr;
pub use control::{ClientContext, RemoteProcessAllocatorMessage};
pub use envelope::{Artifact, Envelope, PerHostEnvelope};
pub use error::EnvelopeError;
pub use extent::{Extent, Point, View};
pub use facts::{ClusterFacts, FactsError};
pub use finding::{Finding, Place, Severity};
pub use gpu::{Capability, CudaArch, GfxTarget, GpuCode, Specificity, ToolkitVersion};
pub use host::HostFacts;
pub use libtorch::{Accelerator, LibraryFile, LibtorchRecord, VariantId};
pub use named::Named;
pub use rule::is_host as is_host_name;
pub use state::{ProcState, ProcStopReason, RemoteProcessProcStateMessage};
