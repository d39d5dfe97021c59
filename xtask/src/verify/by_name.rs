//! Libraries that loaded ones load by their names, of which no NEEDED tells.

use std::collections::BTreeSet;

use camino::Utf8Path;
use torchlift::preflight::{Closure, code};
use torchlift_schema::{Finding, Place};

use crate::libtorch::inspect::public_version;
use crate::libtorch::survey::{followers, loaded_by_name};

/// What was found of them.
#[derive(Debug, Default)]
pub(super) struct ByName {
    /// How many are asked for by usual programs.
    pub(super) count: usize,
    /// Those that are not there, sorted.
    pub(super) missing: BTreeSet<String>,
    /// One for each of those.
    pub(super) findings: Vec<Finding>,
}

/// Looks for all that the libraries of `closure` in the variant's folder `lib` ask for; `is_found` says whether the loader
/// would find a name elsewhere.
pub(super) fn check(
    closure: &Closure,
    lib: &Utf8Path,
    version: &str,
    place: &Place,
    is_found: impl Fn(&str) -> bool,
) -> ByName {
    let there: Vec<String> = fs_err::read_dir(lib.as_std_path())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    let loaded: Vec<&str> = closure
        .objects
        .iter()
        .filter_map(|object| object.path.file_name()?.to_str())
        .filter(|name| there.contains(name))
        .collect();
    let mut asking: BTreeSet<&str> = loaded.into_iter().collect();
    let further = followers(version, &there, &asking);
    asking.extend(further.iter().map(String::as_str));
    let mut found = ByName::default();
    let rows = loaded_by_name(public_version(version), &there);
    for row in rows.into_iter().filter(|row| row.is_required && asking.contains(row.loader.as_str())) {
        found.count += 1;
        // Of a name whose version is left open only the variant can say that it is there.
        if row.found.is_some() || (!row.loads.ends_with('.') && is_found(&row.loads)) {
            continue;
        }
        let message = format!(
            "`{}` loads `{}` by its name, for {}, and neither `{lib}` nor the loader's folders have it",
            row.loader, row.loads, row.purpose
        );
        // Whether torch has its linear algebra in a library of its own is up to whoever built it; NVIDIA's parts are always so.
        let is_torch = row.loader.starts_with("libtorch");
        let finding = if is_torch { Finding::warning } else { Finding::error };
        let finding = finding(code::LOADED_BY_NAME_MISSING, place.clone(), message);
        found
            .findings
            .push(finding.remedy("get the whole variant, or put the package that has it into the library path"));
        found.missing.insert(row.loads);
    }
    found
}
