//! What may be a name, and which names would meet on disk.

use std::collections::BTreeMap;

use torchlift_schema::Place;

use super::code;
use super::fields::Text;
use super::findings::Findings;

/// The longest DNS label (RFC 1123), and the longest name that we use as a folder.
const MOST_LETTERS: usize = 63;

/// What keeps a text from being a DNS label; none: it is one.
pub(super) fn label_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.len() > MOST_LETTERS {
        return Some(format!("it has {} characters, and a label at most {MOST_LETTERS}", name.chars().count()));
    }
    if let Some(other) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '-')) {
        return Some(format!("`{}` is no letter, digit or hyphen", other.escape_debug()));
    }
    (name.starts_with('-') || name.ends_with('-')).then(|| "a hyphen may not be at its ends".to_owned())
}

/// What keeps a text from being a name that is also a folder; none: it is one.
pub(super) fn folder_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.len() > MOST_LETTERS {
        return Some(format!("it has {} characters, and a name at most {MOST_LETTERS}", name.chars().count()));
    }
    if let Some(other) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
        return Some(format!("`{}` is no letter, digit, `.`, `_` or `-`", other.escape_debug()));
    }
    name.starts_with(['.', '-']).then(|| "it may not begin with `.` or `-`".to_owned())
}

/// A finding when a job's or kind's name cannot be a folder.
pub(super) fn check_table(name: Text<'_>, what: &str, findings: &Findings) -> bool {
    let Some(fault) = folder_fault(name.value) else { return true };
    findings.error(
        code::BAD_NAME,
        name.place,
        format!("`{}` cannot be a {what}'s name: {fault}", shown(name.value)),
        "use letters, digits, `.`, `_` and `-`",
    );
    false
}

/// A name in a message; the empty one as TOML writes it.
pub(super) fn shown(name: &str) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { name.escape_debug().to_string() }
}

/// A finding when a text cannot be the name of a cargo package, target or profile.
pub(super) fn check_cargo(text: Text<'_>, what: &str, findings: &Findings) -> bool {
    let is_name =
        text.value.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') && !text.value.starts_with('-');
    if !is_name {
        findings.error(
            code::BAD_NAME,
            text.place,
            format!("`{}` cannot be the name of a cargo {what}", text.value),
            "use letters, digits, `_` and `-`",
        );
    }
    is_name
}

/// Names that differ in case only: one folder where the file system does not tell them apart.
#[derive(Debug, Default)]
pub(super) struct Collisions {
    seen: BTreeMap<String, (String, Place)>,
}

impl Collisions {
    /// A finding when another name like this one was there before.
    pub(super) fn check(&mut self, name: &str, place: &Place, what: &str, findings: &Findings) {
        let folded = name.to_lowercase();
        match self.seen.get(&folded) {
            Some((other, at)) if other != name => findings.error(
                code::NAME_COLLISION,
                place,
                format!(
                    "{what} `{name}` and {what} `{other}` in line {} differ in upper and lower case only",
                    at.line.unwrap_or_default()
                ),
                "give one of them another name",
            ),
            Some(_) => {}
            None => {
                self.seen.insert(folded, (name.to_owned(), place.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_rfc_1123() {
        for good in ["a", "1", "node-1", "Node", &"a".repeat(63)] {
            assert_eq!(label_fault(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "a.b", "ä", "a b", &"a".repeat(64)] {
            assert!(label_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn folders_cannot_be_hidden_or_leave() {
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a\0b"] {
            assert!(folder_fault(bad).is_some(), "{bad:?}");
        }
    }
}
