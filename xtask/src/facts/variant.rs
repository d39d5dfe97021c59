//! Which libtorch each kind means, and what its files say.

use std::collections::BTreeMap;

use camino::Utf8Path;
use torchlift_schema::{Finding, Place, VariantId};

use super::{Variants, kind_place, stores};
use crate::cluster::{Cluster, LibtorchChoice};
use crate::libtorch::arch::{self, ArchFile};
use crate::libtorch::auto::{self, Candidate, Chosen, Machine, Wish, choose};
use crate::libtorch::{Extent, Hold, InspectError, Outcome, Places, Search, Stores, Variant, Wanted, find, inspect};
use crate::toolchain::{Env, RustcFacts};
use crate::workspace::{WorkspaceFacts, offer};

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) machines: &'a BTreeMap<usize, Vec<Machine>>,
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
    let mut variants = Variants::default();
    // Kinds often share a libtorch, and reading one takes a stat a file.
    let mut seen: BTreeMap<String, Result<Variant, Unusable>> = BTreeMap::new();
    for (&kind, machines) in question.machines {
        let Some(kind_of) = question.cluster.kinds.get(kind) else { continue };
        let choice = &kind_of.libtorch;
        let target = kind_of.target.as_ref().unwrap_or(&question.rustc.host);
        let cpu_arch = target.split('-').next().unwrap_or_default();
        let place = || kind_place(question.cluster, kind, "libtorch");
        let found = match choice {
            LibtorchChoice::None => continue,
            LibtorchChoice::Auto => {
                let Auto { variant, chosen, told } = auto(question, cpu_arch, machines, &stores);
                let skipped = told.into_iter().map(|text| {
                    Finding::warning("libtorch-skipped", place(), text)
                        .remedy("name the libtorch that you mean by its variant or path, and none is looked for")
                });
                variants.notes.extend(skipped);
                variants.choices.extend(chosen.map(|chosen| (kind, chosen)));
                variant
            }
            LibtorchChoice::Variant(id) => {
                let look = || match stores.resolve(id) {
                    Some(root) => read(question, &root, Some(id)),
                    None => Err(missing(question, id, &stores)),
                };
                seen.entry(id.to_string()).or_insert_with(look).clone()
            }
            LibtorchChoice::Path(root) => {
                seen.entry(root.to_string()).or_insert_with(|| read(question, root, None)).clone()
            }
        };
        let found = found.and_then(|variant| match Hold::shared(&variant.root) {
            Ok(hold) => {
                variants.notes.extend(said_otherwise(&variant));
                variants.holds.push(hold);
                Ok(variant)
            }
            Err(error) => {
                let remedy = format!("get it again: `{} libtorch fetch`", question.invocation);
                Err(Unusable { code: "libtorch-unusable", message: error.to_string(), remedy })
            }
        });
        let found = found.map_err(|unusable| unusable.into_finding(place()));
        variants.by_kind.insert(kind, found);
    }
    variants
}

/// What a variant's own `.arch` says and its libraries do not.
fn said_otherwise(variant: &Variant) -> Vec<Finding> {
    let Ok(Some(said)) = ArchFile::read(&variant.root) else { return Vec::new() };
    let codes = arch::gpu_codes(&variant.facts);
    said.disagreements(&variant.root, variant.id.as_ref(), &variant.facts, codes.as_ref())
}

/// Why a kind has no libtorch.
#[derive(Clone)]
struct Unusable {
    code: &'static str,
    message: String,
    remedy: String,
}

impl Unusable {
    fn not_here(question: &Question<'_>, message: &str) -> Self {
        let remedy = format!("run `{} libtorch fetch`, or name one by its path", question.invocation);
        Self { code: "libtorch-not-found", message: message.to_owned(), remedy }
    }

    fn into_finding(self, place: Place) -> Finding {
        Finding::error(self.code, place, self.message).remedy(self.remedy)
    }
}

/// What `libtorch = "auto"` found.
struct Auto {
    variant: Result<Variant, Unusable>,
    chosen: Option<Chosen>,
    /// What was passed over on the way, and why.
    told: Vec<String>,
}

/// `libtorch = "auto"`: the one that `LIBTORCH` or a store's pointer names if it does, else the best of the stores, else
/// a Python's.
fn auto(question: &Question<'_>, cpu_arch: &str, machines: &[Machine], stores: &Stores) -> Auto {
    let Some(places) = question.places else {
        let message = "no folder for libtorch variants is known: neither `TORCHLIFT_HOME` nor `HOME` is set";
        return Auto { variant: Err(Unusable::not_here(question, message)), chosen: None, told: Vec::new() };
    };
    let version = question.wanted.map(|wanted| wanted.version.as_str());
    let search = Search { version, cpu_arch, extent: Extent::Whole, given: None, env: question.env, stores, places };
    let wish = Wish { version, cpu_arch, machines };
    let mut told = Vec::new();
    let one = |outcome: Outcome, told: &mut Vec<String>| {
        told.extend(outcome.skipped.iter().map(ToString::to_string).chain(outcome.notes));
        let (variant, origin) = outcome.found?;
        match choose(&wish, &[variant.candidate()]) {
            Ok(chosen) => Some((variant, Chosen { reason: format!("{origin}: {}", chosen.reason), ..chosen })),
            Err(none) => {
                told.extend(none.refused.iter().map(ToString::to_string));
                None
            }
        }
    };
    if let Some((variant, chosen)) = one(find::of_variable(&search), &mut told) {
        return Auto { variant: Ok(variant), chosen: Some(chosen), told };
    }
    match find::of_pointer(&search) {
        Ok(outcome) => {
            if let Some((variant, chosen)) = one(outcome, &mut told) {
                return Auto { variant: Ok(variant), chosen: Some(chosen), told };
            }
        }
        Err(error) => {
            let remedy = error.hint(question.invocation);
            let unusable = Unusable { code: "libtorch-not-found", message: error.to_string(), remedy };
            return Auto { variant: Err(unusable), chosen: None, told };
        }
    }
    let (mut stored, skipped) = find::stored(&search);
    let candidates: Vec<Candidate> = stored.iter().map(Variant::candidate).collect();
    match choose(&wish, &candidates) {
        Ok(chosen) => {
            // Of another version or CPU, or half unpacked: told only where nothing else was found.
            return Auto { variant: Ok(stored.swap_remove(chosen.index)), chosen: Some(chosen), told };
        }
        Err(none) => {
            told.extend(skipped.iter().map(ToString::to_string));
            told.extend(none.refused.iter().map(ToString::to_string));
        }
    }
    if let Some((variant, chosen)) = one(find::of_python(&search), &mut told) {
        return Auto { variant: Ok(variant), chosen: Some(chosen), told };
    }
    Auto { variant: Err(none_fits(question, &wish)), chosen: None, told }
}

/// What the hosts have, and how to get what they need.
fn none_fits(question: &Question<'_>, wish: &Wish<'_>) -> Unusable {
    let wanted = question.wanted.map(|wanted| format!(" of torch {} ({})", wanted.version, wanted.origin));
    let hosts: Vec<String> = wish.machines.iter().map(ToString::to_string).collect();
    let message = format!(
        "no libtorch{} for {} that fits is on this machine; {}",
        wanted.unwrap_or_default(),
        wish.cpu_arch,
        hosts.join("; ")
    );
    let archs = auto::archs(wish.machines);
    let build = if archs.is_empty() {
        String::new()
    } else {
        format!(", or build torch for these cards: `{} libtorch build --archs \"{archs}\"`", question.invocation)
    };
    Unusable {
        code: "libtorch-not-found",
        message,
        remedy: format!("run `{} libtorch fetch` for a published one{build}", question.invocation),
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
