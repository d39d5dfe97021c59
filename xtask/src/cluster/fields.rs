//! Typed access to a table's keys: what is there but wrong becomes a finding, and reads as if it were not there.

use torchlift_schema::Place;

use super::code;
use super::findings::{Findings, meant};
use super::node::{Node, Table, Value};

/// One table of the file, with the keys that it may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    table: &'a Table,
    /// The table's own place.
    pub(super) place: &'a Place,
    pub(super) findings: &'a Findings,
}

/// A string and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) value: &'a str,
    pub(super) place: &'a Place,
}

impl<'a> Fields<'a> {
    /// The fields of a table node; each key that is not one of `keys` is a finding. None: no table.
    pub(super) fn new(node: &'a Node, keys: &[&'static str], findings: &'a Findings) -> Option<Self> {
        let fields = Self::any(node, findings)?;
        for entry in &fields.table.entries {
            if !keys.contains(&entry.key.as_str()) {
                let message = match node.place.key.as_deref() {
                    Some(table) => format!("unknown key `{}` in `{table}`", entry.key),
                    None => format!("unknown key `{}`", entry.key),
                };
                findings.error(
                    code::UNKNOWN_KEY,
                    &entry.place,
                    message,
                    meant(&entry.key, keys.iter().copied(), "keys here"),
                );
            }
        }
        Some(fields)
    }

    /// The fields of a table whose keys are names that the user chose.
    pub(super) fn any(node: &'a Node, findings: &'a Findings) -> Option<Self> {
        match &node.value {
            Value::Table(table) => Some(Self { table, place: &node.place, findings }),
            _ => {
                wrong_type(node, "a table", findings);
                None
            }
        }
    }

    /// All keys with their values, in file order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Text<'a>, &'a Node)> + use<'a> {
        self.table.entries.iter().map(|entry| (Text { value: &entry.key, place: &entry.place }, &entry.node))
    }

    /// The value of a key, whatever it is.
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.table.get(key)
    }

    /// The place of a key's value, or of the table.
    pub(super) fn place_of(&self, key: &str) -> &'a Place {
        self.get(key).map_or(self.place, |node| &node.place)
    }

    /// A finding for a key that must be there, unless it was in a line that is no TOML.
    pub(super) fn missing(&self, key: &str, remedy: &str) {
        if self.findings.is_lost(key) {
            return;
        }
        let mut place = self.place.clone();
        let table = place.key.clone();
        place.key = Some(super::node::join(table.as_deref().unwrap_or_default(), key));
        let message = match table {
            Some(table) => format!("`{table}` has no `{key}`"),
            None => format!("there is no `{key}`"),
        };
        self.findings.error(code::MISSING_KEY, &place, message, remedy);
    }

    /// A string that is not empty and has no control characters.
    pub(super) fn text(&self, key: &str) -> Option<Text<'a>> {
        self.get(key).and_then(|node| text(node, self.findings))
    }

    /// An array of such strings; what is wrong in it is left out. None: not there.
    pub(super) fn texts(&self, key: &str) -> Option<Vec<Text<'a>>> {
        let items = self.array(key, "an array of strings")?;
        Some(items.iter().filter_map(|item| text(item, self.findings)).collect())
    }

    /// The words of an array of strings.
    pub(super) fn words(&self, key: &str) -> Vec<String> {
        self.texts(key).unwrap_or_default().into_iter().map(|word| word.value.to_owned()).collect()
    }

    /// An array; none: not there, or another type.
    pub(super) fn array(&self, key: &str, expected: &str) -> Option<&'a [Node]> {
        let node = self.get(key)?;
        match &node.value {
            Value::Array(items) => Some(items),
            _ => {
                wrong_type(node, expected, self.findings);
                None
            }
        }
    }

    /// A boolean.
    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let node = self.get(key)?;
        match node.value {
            Value::Boolean(is) => Some(is),
            _ => {
                wrong_type(node, "`true` or `false`", self.findings);
                None
            }
        }
    }

    /// A finding for each string that stands twice in a list.
    pub(super) fn unique(&self, list: &[Text<'_>]) {
        for (index, item) in list.iter().enumerate() {
            if list[..index].iter().any(|earlier| earlier.value == item.value) {
                self.findings.error(
                    code::DUPLICATE_VALUE,
                    item.place,
                    format!("`{}` stands twice in this list", item.value),
                    "leave one of them out",
                );
            }
        }
    }
}

/// A string that is not empty and has no control characters.
pub(super) fn text<'a>(node: &'a Node, findings: &Findings) -> Option<Text<'a>> {
    let Value::String(value) = &node.value else {
        wrong_type(node, "a string", findings);
        return None;
    };
    let key = node.place.key.as_deref().unwrap_or_default();
    if value.trim().is_empty() {
        findings.error(code::EMPTY_VALUE, &node.place, format!("`{key}` is empty"), "write a value, or leave it out");
        return None;
    }
    if let Some(control) = value.chars().find(|c| c.is_control()) {
        findings.error(
            code::BAD_VALUE,
            &node.place,
            format!("`{key}` has a control character (U+{:04X})", control as u32),
            "take it out",
        );
        return None;
    }
    Some(Text { value, place: &node.place })
}

/// A finding for a value of the wrong type, with what to write instead where that is plain.
pub(super) fn wrong_type(node: &Node, expected: &str, findings: &Findings) {
    let key = node.place.key.as_deref().unwrap_or("the file");
    let written = match &node.value {
        Value::String(text) => Some(format!("{text:?}")),
        Value::Integer(Some(number)) => Some(number.to_string()),
        Value::Float(number) => Some(number.clone()),
        Value::Boolean(is) => Some(is.to_string()),
        _ => None,
    };
    let remedy = match (&node.value, written) {
        (Value::String(_), Some(text)) if expected.starts_with("an array") => format!("write `[{text}]`"),
        (Value::Integer(_) | Value::Float(_) | Value::Boolean(_), Some(text)) if expected == "a string" => {
            format!("put it in quotes: `\"{text}\"`")
        }
        (Value::String(text), _) if expected.contains("`true`") && ["true", "false"].contains(&text.as_str()) => {
            format!("write {text} without quotes")
        }
        (Value::String(_), _) if expected == "a table" && key.ends_with("env") => {
            "write `{ NAME = \"value\" }`".to_owned()
        }
        _ if expected == "a table" && key.matches('.').count() == 1 && !key.contains('[') => {
            let (table, name) = key.split_once('.').unwrap_or((key, "NAME"));
            format!("put its keys below `[{table}.{name}]`, and keys of one {table} below `[{table}.NAME]`")
        }
        _ => format!("write {expected}"),
    };
    findings.error(
        code::WRONG_TYPE,
        &node.place,
        format!("`{key}` must be {expected}, not {}", node.type_name()),
        remedy,
    );
}
