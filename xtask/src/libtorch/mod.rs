//! libtorch variants: where they lie, what they are, how to get one.
//!
//! [`find()`] says which of those that are there fits; [`fetch()`] gets one when none does, [`add`] takes one from this
//! machine, [`source`] builds one; [`inspect()`] and [`survey`] read what one is; [`wanted`] says which version a program
//! needs; [`auto`] says which of several suits the hosts of a kind. Must not print: a fetch tells what it does through
//! [`event`].

pub mod active;
pub mod add;
pub mod arch;
mod archive;
pub mod auto;
mod cut;
mod downloads;
pub mod event;
pub mod fetch;
pub mod find;
pub mod hold;
pub mod inspect;
pub mod listing;
pub mod obtain;
mod official;
mod pip;
mod places;
mod python;
pub mod record;
pub mod remove;
mod small;
pub mod source;
pub mod spec;
pub(crate) mod stage;
pub mod store;
mod stub;
pub mod survey;
mod tool;
mod tree;
pub mod verify;
pub mod wanted;
mod wheel;

use camino::Utf8PathBuf;
use torchlift_schema::VariantId;

pub use cut::Extent;
pub use event::FetchEvent;
pub use fetch::{FetchError, fetch};
pub use find::{FindError, Outcome, Search, find};
pub use hold::{Hold, HoldError};
pub use inspect::{InspectError, VariantFacts, inspect};
pub use obtain::{Obtain, ObtainError, obtain};
pub use places::{Places, PlacesError};
pub use python::with_pip_within as pip_python;
pub use store::{Stored, Stores};
pub(crate) use tool::free_space;
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

impl Variant {
    /// How it is called: its id, or its folder.
    pub fn name(&self) -> &str {
        self.id.as_ref().map_or(self.root.as_str(), VariantId::as_str)
    }

    /// The same for choosing among several.
    pub fn candidate(&self) -> auto::Candidate {
        let facts = &self.facts;
        auto::Candidate {
            name: self.name().to_owned(),
            version: facts.version.clone(),
            accelerator: facts.accelerator.clone(),
            cpu_arch: facts.cpu_arch.clone(),
            gpu_code: facts.gpu_code.iter().map(|(name, content)| (name.clone(), content.clone())).collect(),
            glibc: facts.glibc.as_ref().and_then(|version| version.parse().ok()),
            size: facts.size,
        }
    }
}
