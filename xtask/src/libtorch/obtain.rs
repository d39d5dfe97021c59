//! A libtorch by any means: one that is there, else one that is fetched.

use super::active::ActiveError;
use super::event::{FetchEvent, Listener};
use super::fetch::{FetchError, Request, fetch};
use super::find::{FindError, GivenError, Search, find};
use super::wanted::Wanted;
use super::{Extent, Places, Stores, Variant};
use crate::error::CommandError;
use crate::toolchain::Env;
use camino::Utf8Path;
use torchlift_schema::exit_code;

/// What is wanted, and of whom to ask it.
#[derive(Clone, Debug)]
pub struct Obtain<'a> {
    /// The version, and how it is known.
    pub wanted: &'a Wanted,
    /// As in a target triple.
    pub cpu_arch: &'a str,
    /// What to prefer, and how much to fetch.
    pub extent: Extent,
    /// `--libtorch DIR`.
    pub given: Option<&'a Utf8Path>,
    /// Where official archives lie, instead of their own host.
    pub mirror: Option<&'a str>,
    /// The environment, without what the outer cargo put there.
    pub env: &'a Env,
    /// The stores.
    pub stores: &'a Stores,
    /// The user's folders.
    pub places: &'a Places,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum ObtainError {
    /// The one that was named does not fit.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The case of the stores' pointer that was named is not there.
    #[error(transparent)]
    Case(#[from] ActiveError),
    /// None is there, and none could be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// Finds or fetches one. Candidates that were passed over are told to `listen`, each with its reason.
///
/// # Errors
/// As [`find`] and [`fetch`].
pub fn obtain(obtain: &Obtain<'_>, listen: Listener<'_>) -> Result<Variant, ObtainError> {
    let search = Search {
        version: Some(&obtain.wanted.version),
        cpu_arch: obtain.cpu_arch,
        extent: obtain.extent,
        given: obtain.given,
        env: obtain.env,
        stores: obtain.stores,
        places: obtain.places,
    };
    let outcome = find(&search)?;
    for note in outcome.notes {
        listen(FetchEvent::Note(note));
    }
    for skipped in outcome.skipped {
        listen(FetchEvent::Note(skipped.to_string()));
    }
    if let Some((variant, origin)) = outcome.found {
        listen(FetchEvent::Note(format!("libtorch {} from {origin}: `{}`", variant.facts.version, variant.root)));
        return Ok(variant);
    }
    listen(FetchEvent::Note(format!(
        "no libtorch {} is on this machine ({}), so one is fetched",
        obtain.wanted.version, obtain.wanted.origin
    )));
    let request = Request {
        version: obtain.wanted.version.clone(),
        cpu_arch: obtain.cpu_arch.to_owned(),
        extent: obtain.extent,
        accelerator: None,
        mirror: obtain.mirror.map(str::to_owned),
    };
    Ok(fetch(&request, obtain.places, obtain.env, listen)?)
}

impl From<FindError> for ObtainError {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Given(error) => error.into(),
            FindError::Case(error) => error.into(),
        }
    }
}

impl From<ObtainError> for CommandError {
    fn from(error: ObtainError) -> Self {
        match error {
            ObtainError::Fetch(error) => error.into(),
            ObtainError::Case(error) => {
                let hint = error.hint("cargo torchlift");
                Self::new(exit_code::BUILD, "no libtorch was looked for").because(error).hint(hint)
            }
            ObtainError::Given(error) => {
                let message = error.to_string();
                Self::new(exit_code::BUILD, message)
                    .because(error.source)
                    .hint("name another folder, or leave `--libtorch` out and let one be found or fetched")
            }
        }
    }
}
