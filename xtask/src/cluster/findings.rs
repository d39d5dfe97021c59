//! Where the checks put what they find, and how a near miss is found.

use std::cell::RefCell;
use std::collections::BTreeSet;

use torchlift_schema::{Finding, Place};

/// The findings of one reading, in the order of their places once [`Findings::into_sorted`] is asked.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: RefCell<Vec<Finding>>,
    /// Keys that stand in lines which are no TOML: they are not missing, only unreadable.
    lost: BTreeSet<String>,
}

impl Findings {
    /// A collector that never calls one of `lost` missing.
    pub(super) fn new(lost: BTreeSet<String>) -> Self {
        Self { list: RefCell::default(), lost }
    }

    /// Adds a finding.
    pub(super) fn push(&self, finding: Finding) {
        self.list.borrow_mut().push(finding);
    }

    /// Adds an error with its remedy.
    pub(super) fn error(&self, code: &str, place: &Place, message: impl Into<String>, remedy: impl Into<String>) {
        self.push(Finding::error(code, place.clone(), message).remedy(remedy));
    }

    /// Adds a warning with its remedy.
    pub(super) fn warning(&self, code: &str, place: &Place, message: impl Into<String>, remedy: impl Into<String>) {
        self.push(Finding::warning(code, place.clone(), message).remedy(remedy));
    }

    /// Whether a line that is no TOML seems to have had this key.
    pub(super) fn is_lost(&self, key: &str) -> bool {
        self.lost.contains(key)
    }

    /// Every finding once, in the order of [`sorted`].
    pub(super) fn into_sorted(self, files: &[&str]) -> Vec<Finding> {
        sorted(self.list.into_inner(), files)
    }
}

/// Every finding once, by file in the order given, then by line and column.
pub(super) fn sorted(mut list: Vec<Finding>, files: &[&str]) -> Vec<Finding> {
    let rank = |place: &Place| files.iter().position(|file| Some(*file) == place.file.as_deref());
    list.sort_by_key(|finding| (rank(&finding.place), finding.place.line, finding.place.column));
    let mut unique: Vec<Finding> = Vec::with_capacity(list.len());
    for finding in list {
        // Hosts of one table share its faults, and the sort is stable: twins are at the same line.
        let mut near = unique.iter().rev().take_while(|other| other.place.line == finding.place.line);
        if !near.any(|other| *other == finding) {
            unique.push(finding);
        }
    }
    unique
}

/// The candidate that a person may have meant; none when nothing is close.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        // One slip in three letters is a slip; more is another word.
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().max(word.chars().count()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What to do about a name that is none of `candidates`: the near miss, else what there is.
pub(super) fn meant<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str> + Clone, what: &str) -> String {
    if let Some(near) = nearest(word, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let all: Vec<&str> = candidates.into_iter().collect();
    match all.len() {
        0 => format!("there are no {what}"),
        count if count <= 12 => format!("{what}: {}", quoted(&all)),
        count => format!("{what}: {} and {} more", quoted(&all[..8]), count - 8),
    }
}

/// Words in backticks, with commas.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_a_slip_and_not_another_word() {
        assert_eq!(nearest("featurs", ["features", "target"]), Some("features"));
        assert_eq!(nearest("Pascal", ["pascal"]), Some("pascal"));
        assert_eq!(nearest("gpu", ["gpus", "cpu"]), Some("gpus"));
        assert_eq!(nearest("colour", ["features", "target"]), None);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..40).map(|n| format!("name{n:02}")).collect();
        let text = meant("zzzzzz", names.iter().map(String::as_str), "hosts");
        assert!(text.ends_with("and 32 more"), "{text}");
    }
}
