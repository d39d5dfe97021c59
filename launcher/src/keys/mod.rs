//! Who may control whom: certificates of hosts and clients, the authority that issues them, and TLS by them.
//!
//! Purpose, by file: [`role`] says what a certificate may do; [`place`] where keys lie; [`index`] what there is; [`check`] what
//! is wrong with it. With the feature `net`, `authority` signs, [`change`] does what `torchlift keys` asks for, [`identity`] is
//! what one side of a connection presents and trusts, [`credentials`] follows its files, and [`tls`] makes connections of it.
//! What the doctor reads needs no `net`: nothing of an index, a mode or a date is cryptography.
//! Must not print or read the environment.

#[cfg(feature = "net")]
mod authority;
#[cfg(feature = "net")]
pub mod change;
pub mod check;
#[cfg(feature = "net")]
pub mod credentials;
mod disk;
pub mod error;
#[cfg(feature = "net")]
pub mod identity;
pub mod index;
pub mod place;
pub mod role;
#[cfg(feature = "net")]
pub mod tls;

#[cfg(feature = "net")]
pub use credentials::Credentials;
pub use error::KeysError;
#[cfg(feature = "net")]
pub use identity::{Identity, Wanted};
pub use index::{Index, Issued};
pub use role::Role;
