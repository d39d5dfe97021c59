//! Would this program start on that host?
//!
//! Purpose, by module: [`elf`], [`symbols`] and [`fatbin`] say what a file is, [`loader`] repeats the dynamic loader's
//! search on the facts of a host, [`digest`] says whether bytes are the expected ones, and [`verify`] turns all of it into
//! findings with the codes of [`code`]. [`nccl`] says which collectives a library has, [`runner`] which system a program
//! finds behind the words before it. `map` is the one place that maps files. [`host`] and [`gpu`] say what the host
//! itself is. Must not start a process (but for the one tool of [`gpu`]), print, or read the environment.

pub mod code;
pub mod digest;
pub mod elf;
pub mod fatbin;
pub mod fit;
pub mod gpu;
pub mod host;
pub mod isa;
pub mod loader;
pub(crate) mod map;
pub mod nccl;
pub mod runner;
pub mod symbols;
pub mod verify;

pub use digest::{DigestCache, DigestError, FileDigest};
pub use elf::{ElfError, ElfFacts};
pub use loader::{Closure, HostLibraries, LibraryPath};
pub use runner::Runner;
