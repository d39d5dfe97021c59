//! libtorch variants: where they lie, what they are, how to get one.

mod archive;
pub mod inspect;
mod library;
mod places;
pub mod store;

use camino::Utf8PathBuf;
use torchlift_schema::VariantId;

pub use inspect::{InspectError, VariantFacts, inspect};
pub use places::{Places, PlacesError};
pub use store::{Stored, Stores};

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
