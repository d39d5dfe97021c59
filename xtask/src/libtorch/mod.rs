//! libtorch variants: where they lie, what they are, how to get one.
//!
//! [`find()`] says which of those that are there fits; [`fetch()`] gets one when none does; [`inspect()`] reads what one is;
//! [`wanted`] says which version a program needs. Must not print: a fetch tells what it does through [`event`].

mod archive;
mod cut;
mod downloads;
pub mod event;
pub mod fetch;
pub mod find;
pub mod inspect;
pub mod obtain;
mod official;
mod pip;
mod places;
mod python;
pub mod record;
pub mod store;
mod stub;
pub mod survey;
mod tool;
pub mod wanted;
mod wheel;

use camino::Utf8PathBuf;
use torchlift_schema::VariantId;

pub use cut::Extent;
pub use event::FetchEvent;
pub use fetch::{FetchError, fetch};
pub use find::{Outcome, Search, find};
pub use inspect::{InspectError, VariantFacts, inspect};
pub use obtain::{Obtain, ObtainError, obtain};
pub use places::{Places, PlacesError};
pub use store::{Stored, Stores};
pub use wanted::Wanted;

/// A variant that was found, with its facts.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its id; none for a tree outside a store.
    pub id: Option<VariantId>,
    /// The folder that has `lib` and `include`, absolute.
    pub root: Utf8PathBuf,
    /// What was read from its files.
    pub facts: VariantFacts,
}
