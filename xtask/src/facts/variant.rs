//! Which libtorch each kind means, and what its files say.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8Path;
use torchlift_schema::{Finding, VariantId};

use super::{Variants, kind_place, stores};
use crate::cluster::{Cluster, Host, LibtorchChoice};
use crate::libtorch::{InspectError, Places, Stores, Variant, inspect};
use crate::workspace::{WorkspaceFacts, offer};

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) hosts: &'a [&'a Host],
    pub(super) workspace: &'a WorkspaceFacts,
    pub(super) places: Option<&'a Places>,
    pub(super) invocation: &'a str,
}

/// Finds the libtorch of every kind that a chosen host is of.
pub(super) fn resolve(question: &Question<'_>) -> Variants {
    let stores = stores(question.workspace, question.places);
    let kinds: BTreeSet<usize> = question.hosts.iter().map(|host| host.kind).collect();
    let mut variants = Variants::default();
    // Kinds often share a libtorch, and reading one takes a stat a file.
    let mut seen: BTreeMap<String, Result<Variant, Unusable>> = BTreeMap::new();
    for kind in kinds {
        let Some(choice) = question.cluster.kinds.get(kind).map(|kind| &kind.libtorch) else { continue };
        let key = match choice {
            LibtorchChoice::None => continue,
            LibtorchChoice::Auto => "auto".to_owned(),
            LibtorchChoice::Variant(id) => id.to_string(),
            LibtorchChoice::Path(path) => path.to_string(),
        };
        let found = seen.entry(key).or_insert_with(|| one(question, choice, &stores));
        let place = || kind_place(question.cluster, kind, "libtorch");
        let found = found
            .clone()
            .map_err(|unusable| Finding::error(unusable.code, place(), unusable.message).remedy(unusable.remedy));
        variants.by_kind.insert(kind, found);
    }
    variants
}

/// Why a kind has no libtorch.
#[derive(Clone)]
struct Unusable {
    code: &'static str,
    message: String,
    remedy: String,
}

fn one(question: &Question<'_>, choice: &LibtorchChoice, stores: &Stores) -> Result<Variant, Unusable> {
    match choice {
        LibtorchChoice::Variant(id) => match stores.resolve(id) {
            Some(root) => read(question, &root, Some(id)),
            None => Err(missing(question, id, stores)),
        },
        LibtorchChoice::Path(root) => read(question, root, None),
        LibtorchChoice::Auto | LibtorchChoice::None => Err(Unusable {
            code: "libtorch-not-found",
            message: "no libtorch for it is on this machine".to_owned(),
            remedy: format!("run `{} libtorch fetch`, or name one by its path", question.invocation),
        }),
    }
}

fn read(question: &Question<'_>, root: &Utf8Path, id: Option<&VariantId>) -> Result<Variant, Unusable> {
    let cache = question.places.map(Places::facts);
    match inspect(root, cache.as_deref()) {
        Ok(facts) => Ok(Variant { id: id.cloned(), root: root.to_owned(), facts }),
        Err(error) => {
            let remedy = match &error {
                InspectError::Inside { parent, .. } => format!("write `{parent}`"),
                InspectError::Missing { .. } => {
                    format!(
                        "name the folder that has `lib` and `include`, or run `{} libtorch fetch`",
                        question.invocation
                    )
                }
                _ => format!("get it again: `{} libtorch fetch`", question.invocation),
            };
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Err(Unusable { code: "libtorch-unusable", message: format!("{error}{cause}"), remedy })
        }
    }
}

fn missing(question: &Question<'_>, id: &VariantId, stores: &Stores) -> Unusable {
    let stored: Vec<String> = stores.list().into_iter().map(|stored| stored.id.to_string()).collect();
    let names: Vec<&str> = stored.iter().map(String::as_str).collect();
    let roots: Vec<String> = stores.roots.iter().map(|root| format!("`{root}`")).collect();
    let fetch = format!("run `{} libtorch fetch`", question.invocation);
    let remedy =
        if names.is_empty() { fetch } else { format!("{}; or {fetch}", offer("variants", id.as_str(), &names)) };
    Unusable {
        code: "libtorch-not-found",
        message: format!("the variant `{id}` is in none of the stores {}", roots.join(" and ")),
        remedy,
    }
}
