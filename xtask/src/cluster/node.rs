//! A TOML document as a tree in which every key and value knows its place.
//!
//! Owned and in file order, so that two documents can be merged and still say where each value came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use torchlift_schema::Place;

use super::model::Places;
use super::position::Lines;

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    String(String),
    /// None: outside of 64 bits.
    Integer(Option<i64>),
    /// As written.
    Float(String),
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Table),
}

/// A table's entries in file order.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The place of the key itself.
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    /// What people call this type.
    pub(super) fn type_name(&self) -> &'static str {
        match self.value {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Boolean(_) => "a boolean",
            Value::Datetime => "a date",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    /// A node of a whole document.
    pub(super) fn document(file: &str, text: &str, table: &DeTable<'_>) -> Self {
        let lines = Lines::new(text);
        let reader = Reader { file, lines: &lines };
        Self { value: Value::Table(reader.table("", table).0), place: Place::file(file).at(1, 1) }
    }

    /// Where the node and everything below it stand, by key relative to the node.
    pub(super) fn places(&self) -> Places {
        let mut all = BTreeMap::new();
        self.collect("", &mut all);
        Places(Arc::new(all))
    }

    /// The places of every key of this name, at any depth.
    pub(super) fn entries_named(&self, key: &str) -> Vec<&Place> {
        match &self.value {
            Value::Table(table) => {
                let here = table.entries.iter().filter(|entry| entry.key == key).map(|entry| &entry.place);
                here.chain(table.entries.iter().flat_map(|entry| entry.node.entries_named(key))).collect()
            }
            Value::Array(items) => items.iter().flat_map(|item| item.entries_named(key)).collect(),
            _ => Vec::new(),
        }
    }

    fn collect(&self, key: &str, all: &mut BTreeMap<String, Place>) {
        all.insert(key.to_owned(), self.place.clone());
        match &self.value {
            Value::Table(table) => {
                for entry in &table.entries {
                    entry.node.collect(&join(key, &entry.key), all);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.collect(&format!("{key}[{index}]"), all);
                }
            }
            _ => {}
        }
    }
}

impl Table {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index).node)
    }
}

/// A key below another, quoted where TOML would want it.
pub(super) fn join(parent: &str, key: &str) -> String {
    let is_bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let key = if is_bare { key.to_owned() } else { format!("{key:?}") };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

struct Reader<'a> {
    file: &'a str,
    lines: &'a Lines<'a>,
}

impl Reader<'_> {
    fn place(&self, offset: usize, key: &str) -> Place {
        let (line, column) = self.lines.position(offset);
        Place::file(self.file).at(line, column).key(key)
    }

    /// The table, and the offset of its first key: headers may come in any order, and the first one counts.
    fn table(&self, parent: &str, table: &DeTable<'_>) -> (Table, usize) {
        let mut entries: Vec<(usize, Entry)> = Vec::new();
        for (key, value) in table.iter() {
            let path = join(parent, key.get_ref());
            let (node, first) = self.node(&path, value);
            let first = first.min(key.span().start);
            let place = self.place(key.span().start, &path);
            entries.push((first, Entry { key: key.get_ref().to_string(), place, node }));
        }
        entries.sort_by_key(|(first, _)| *first);
        let first = entries.first().map_or(usize::MAX, |(first, _)| *first);
        (Table { entries: entries.into_iter().map(|(_, entry)| entry).collect() }, first)
    }

    fn node(&self, path: &str, value: &Spanned<DeValue<'_>>) -> (Node, usize) {
        let start = value.span().start;
        let mut first = start;
        let read = match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => Value::Integer(i64::from_str_radix(number.as_str(), number.radix()).ok()),
            DeValue::Float(number) => Value::Float(number.as_str().to_owned()),
            DeValue::Boolean(is) => Value::Boolean(*is),
            DeValue::Datetime(_) => Value::Datetime,
            DeValue::Array(items) => Value::Array(
                items.iter().enumerate().map(|(index, item)| self.node(&format!("{path}[{index}]"), item).0).collect(),
            ),
            DeValue::Table(table) => {
                let (table, inner) = self.table(path, table);
                first = first.min(inner);
                Value::Table(table)
            }
        };
        (Node { value: read, place: self.place(start, path) }, first)
    }
}
