//! Has a library code that a card can run?
//!
//! Pure: takes the code of libraries as [`super::fatbin`] read it and cards as a host's facts state them, and gives
//! levels and findings. Owns the rules of what runs where ([`cuda`], [`gfx`]) and of which driver serves what
//! ([`driver`]); each states its source. `docs/libtorch.md` has them for people.
//! Must not read a file, a variable or a driver, and must not choose a libtorch.

mod check;
pub mod cuda;
mod device;
pub mod driver;
pub mod gfx;
mod library;
mod role;
#[cfg(test)]
mod tests;

pub use check::{Question, Verdict, check};
pub use device::{Card, Device, Isa};
pub use driver::{Answer, Compat, Driver, DriverVersion, Need};
pub use gfx::Override;
pub use library::{ENOUGH, Level, LibraryCode, LibraryFit, fit};
pub use role::Role;
