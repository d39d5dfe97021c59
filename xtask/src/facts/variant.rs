//! Which libtorch each kind means, and what its files say.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8Path;
use torchlift_schema::{Finding, VariantId};

use super::{Variants, kind_place, stores};
use crate::cluster::{Cluster, Host, LibtorchChoice};
use crate::libtorch::{Extent, InspectError, Outcome, Places, Search, Stores, Variant, Wanted, find, inspect};
use crate::toolchain::{Env, RustcFacts};
use crate::workspace::{WorkspaceFacts, offer};

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) hosts: &'a [&'a Host],
    pub(super) workspace: &'a WorkspaceFacts,
    pub(super) rustc: &'a RustcFacts,
    pub(super) wanted: Option<&'a Wanted>,
    pub(super) env: &'a Env,
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
        let Some(kind_of) = question.cluster.kinds.get(kind) else { continue };
        let choice = &kind_of.libtorch;
        let target = kind_of.target.as_ref().unwrap_or(&question.rustc.host);
        let cpu_arch = target.split('-').next().unwrap_or_default();
        let key = match choice {
            LibtorchChoice::None => continue,
            LibtorchChoice::Auto => format!("auto {cpu_arch}"),
            LibtorchChoice::Variant(id) => id.to_string(),
            LibtorchChoice::Path(path) => path.to_string(),
        };
        let found = seen.entry(key).or_insert_with(|| match choice {
            LibtorchChoice::Variant(id) => match stores.resolve(id) {
                Some(root) => read(question, &root, Some(id)),
                None => Err(missing(question, id, &stores)),
            },
            LibtorchChoice::Path(root) => read(question, root, None),
            LibtorchChoice::Auto | LibtorchChoice::None => {
                let (found, skipped) = auto(question, cpu_arch, &stores);
                let place = || kind_place(question.cluster, kind, "libtorch");
                variants.notes.extend(skipped.into_iter().map(|text| {
                    Finding::warning("libtorch-skipped", place(), text)
                        .remedy("name the libtorch that you mean by its variant or path, and none is looked for")
                }));
                found
            }
        });
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

/// `libtorch = "auto"`: the first that fits of those that are on this machine, and what was passed over before it.
fn auto(question: &Question<'_>, cpu_arch: &str, stores: &Stores) -> (Result<Variant, Unusable>, Vec<String>) {
    let none = |message: &str| {
        let remedy = format!("run `{} libtorch fetch`, or name one by its path", question.invocation);
        Err(Unusable { code: "libtorch-not-found", message: message.to_owned(), remedy })
    };
    let Some(places) = question.places else {
        return (
            none("no folder for libtorch variants is known: neither `TORCHLIFT_HOME` nor `HOME` is set"),
            Vec::new(),
        );
    };
    let search = Search {
        version: question.wanted.map(|wanted| wanted.version.as_str()),
        cpu_arch,
        extent: if find::has_cuda() { Extent::Whole } else { Extent::Cpu },
        given: None,
        env: question.env,
        stores,
        places,
    };
    match find::find(&search) {
        Ok(Outcome { found, skipped, notes }) => {
            let told = skipped.iter().map(ToString::to_string).chain(notes).collect();
            let wanted = question.wanted.map(|wanted| format!(" of torch {} ({})", wanted.version, wanted.origin));
            let message = format!("no libtorch{} for {cpu_arch} is on this machine", wanted.unwrap_or_default());
            (found.map_or_else(|| none(&message), |(variant, _)| Ok(variant)), told)
        }
        Err(error) => (none(&error.to_string()), Vec::new()),
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
