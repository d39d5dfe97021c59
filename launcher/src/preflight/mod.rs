//! Would this program start on that host?
//!
//! Purpose, by module: [`elf`], [`symbols`] and [`fatbin`] say what a file is, [`loader`] repeats the dynamic loader's
//! search on the facts of a host, [`digest`] says whether bytes are the expected ones, and [`verify`] turns all of it into
//! findings with the codes of [`code`]. `map` is the one place that maps files.
//! Must not start a process, print, or read the environment.

pub mod code;
pub mod digest;
pub mod elf;
pub mod fatbin;
pub mod fit;
pub mod loader;
pub(crate) mod map;
pub mod symbols;
pub mod verify;

pub use digest::{DigestCache, DigestError, FileDigest};
pub use elf::{ElfError, ElfFacts};
pub use loader::{Closure, HostLibraries, LibraryPath};
