//! The raw JSON value of an envelope: what `self_sha256` is over, and what the types are read from.
//!
//! Owns that a key is in an object once, at every level: serde alone sees duplicates only among the fields that it knows.
//! Must not know what an envelope is.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::error::EnvelopeError;

/// A JSON value with sorted keys, each there once.
///
/// Not `serde_json::Value`, whose map takes the last of two equal keys and whose order depends on a feature that any crate in
/// the build may turn on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

impl Node {
    /// Parses a text that [`crate::limit`] let through.
    pub(crate) fn parse(text: &str) -> Result<Self, EnvelopeError> {
        let mut trail = Trail::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let node = match (Seed { trail: &mut trail }).deserialize(&mut deserializer) {
            Ok(node) => node,
            Err(error) => {
                return Err(match trail.duplicate {
                    Some(path) => EnvelopeError::DuplicateKey { path },
                    None => syntax(&error),
                });
            }
        };
        match deserializer.end() {
            Ok(()) => Ok(node),
            Err(error) => Err(EnvelopeError::TrailingData { line: error.line(), column: error.column() }),
        }
    }

    /// The object's member, when this is an object that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// What it is, for a message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => format!("`{value}`"),
            Self::Number(value) => format!("the number `{value}`"),
            Self::Text(text) => format!("the string `{}`", shown(text)),
            Self::List(_) => "an array".to_owned(),
            Self::Object(_) => "an object".to_owned(),
        }
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(value) => Self::Number(value),
            Value::String(value) => Self::Text(value),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            Value::Object(members) => {
                Self::Object(members.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

/// serde_json puts the place behind its reason; ours has it in fields of its own.
fn syntax(error: &serde_json::Error) -> EnvelopeError {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        return EnvelopeError::CutShort { line, column };
    }
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text).to_owned();
    EnvelopeError::Syntax { line, column, reason }
}

/// Where the parser is, and what it refused there.
#[derive(Default)]
struct Trail {
    steps: Vec<Step>,
    duplicate: Option<String>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Trail {
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Key(key) => push_key(&mut path, key),
                Step::Index(index) => push_index(&mut path, *index),
            }
        }
        path
    }
}

/// Adds a key to a path such as `libtorch.libraries[2]`.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(&shown(key));
}

/// Adds an index to a path.
pub(crate) fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

/// A text of the file as it is shown in a message: on one line, at most 80 characters of it.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut out: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

struct Seed<'a> {
    trail: &'a mut Trail,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        Number::from_f64(value).map(Node::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        loop {
            self.trail.steps.push(Step::Index(list.len()));
            let element = elements.next_element_seed(Seed { trail: &mut *self.trail })?;
            self.trail.steps.pop();
            match element {
                Some(node) => list.push(node),
                None => return Ok(Node::List(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut object = BTreeMap::new();
        while let Some(key) = members.next_key::<String>()? {
            self.trail.steps.push(Step::Key(key.clone()));
            if object.contains_key(&key) {
                self.trail.duplicate = Some(self.trail.path());
                return Err(A::Error::custom("duplicate key"));
            }
            let value = members.next_value_seed(Seed { trail: &mut *self.trail })?;
            self.trail.steps.pop();
            object.insert(key, value);
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> EnvelopeError {
        Node::parse(text).expect_err("this text is wrong")
    }

    #[test]
    fn a_duplicate_of_an_unknown_key_is_found_below_arrays() {
        let error = refusal(r#"{"a": [0, {"b": {"c": 1, "c": 1}}]}"#);
        assert_eq!(error, EnvelopeError::DuplicateKey { path: "a[1].b.c".to_owned() });
    }

    #[test]
    fn keys_that_differ_only_in_their_escapes_are_the_same_key() {
        assert_eq!(refusal(r#"{"bin": 1, "b\u0069n": 2}"#), EnvelopeError::DuplicateKey { path: "bin".to_owned() });
    }

    #[test]
    fn keys_of_different_objects_are_no_duplicates() {
        assert!(Node::parse(r#"{"a": {"x": 1}, "b": {"x": 1}, "c": [{"x": 1}, {"x": 1}]}"#).is_ok());
    }

    #[test]
    fn a_text_in_a_message_stays_on_one_line_and_short() {
        assert_eq!(shown("a\u{0}\n\u{1b}[31m"), r"a\0\n\u{1b}[31m");
        assert_eq!(shown(&"é".repeat(100)).chars().count(), 81);
    }
}
