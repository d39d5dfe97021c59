//! Reads the types of this crate from a raw value, strictly: an object is an object, a unit variant a string.
//!
//! serde_json would also take an array for a struct and `{"cpu": null}` for a plain variant, which no schema allows.
//! Owns what a wrong shape is called. Must not know the fields of any type.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, Unexpected,
    VariantAccess, Visitor, value::MapDeserializer, value::SeqDeserializer,
};
use serde::forward_to_deserialize_any;

use crate::error::EnvelopeError;
use crate::tree::{self, Node};

/// Reads a `T` from the raw value; an error names the path of the key.
pub(crate) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, EnvelopeError> {
    serde_path_to_error::deserialize(Shape(node)).map_err(|error| {
        let path = path_text(error.path());
        let root_or = |path: String| if path.is_empty() { ".".to_owned() } else { path };
        match error.into_inner() {
            Fault::Missing(key) => {
                let mut path = path;
                tree::push_key(&mut path, key);
                EnvelopeError::MissingKey { path }
            }
            Fault::Type { found, wanted } => EnvelopeError::WrongType { path: root_or(path), found, wanted },
            Fault::Value(reason) => EnvelopeError::WrongValue { path: root_or(path), reason },
        }
    })
}

fn path_text(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => tree::push_index(&mut text, *index),
            Segment::Map { key } => tree::push_key(&mut text, key),
            // The name of a variant is a key of the JSON too.
            Segment::Enum { variant } => tree::push_key(&mut text, variant),
            Segment::Unknown => tree::push_key(&mut text, "?"),
        }
    }
    text
}

/// What is wrong with the shape of one value; [`read`] turns it into an [`EnvelopeError`] with the path.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("{found} where {wanted} belongs")]
    Type { found: String, wanted: String },
    #[error("{0}")]
    Value(String),
}

impl serde::de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Type { found: found(&unexpected), wanted: wanted(expected) }
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Type { found: found(&unexpected), wanted: wanted(expected) }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let known: Vec<_> = expected.iter().map(|name| format!("`{name}`")).collect();
        Self::Value(format!("`{}` is none of {}", tree::shown(variant), known.join(", ")))
    }
}

fn found(unexpected: &Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Str(text) => format!("the string `{}`", tree::shown(text)),
        Unexpected::Unit => "null".to_owned(),
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("the number `{value}`"),
        Unexpected::Signed(value) => format!("the number `{value}`"),
        // `{:?}` keeps the point of `1.0`, which is what is wrong with it.
        Unexpected::Float(value) => format!("the number `{value:?}`"),
        Unexpected::Seq => "an array".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// serde names Rust's types; the file has JSON's.
fn wanted(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i32" => "a whole number from -2147483648 to 2147483647".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        _ if text.starts_with("struct ") => "an object".to_owned(),
        _ => text,
    }
}

/// A raw value as something that types are read from.
#[derive(Clone, Copy)]
struct Shape<'de>(&'de Node);

impl<'de> Shape<'de> {
    fn refuse<T>(self, wanted: &str) -> Result<T, Fault> {
        Err(Fault::Type { found: self.0.describe(), wanted: wanted.to_owned() })
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Shape<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Shape<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Node::Null => visitor.visit_unit(),
            Node::Bool(value) => visitor.visit_bool(*value),
            Node::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(Fault::custom("number out of range")),
            },
            Node::Text(text) => visitor.visit_borrowed_str(text),
            Node::List(list) => visitor.visit_seq(SeqDeserializer::new(list.iter().map(Shape))),
            Node::Object(members) => {
                visitor.visit_map(MapDeserializer::new(members.iter().map(|(key, value)| (key.as_str(), Shape(value)))))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0 {
            Node::Object(_) => self.deserialize_any(visitor),
            _ => self.refuse("an object"),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0 {
            Node::Text(name) => visitor.visit_enum(Variant { name, content: None }),
            Node::Object(members) => {
                let mut members = members.iter();
                match (members.next(), members.next()) {
                    (Some((name, content)), None) => visitor.visit_enum(Variant { name, content: Some(content) }),
                    _ => Err(Fault::custom("an object with exactly one key belongs here")),
                }
            }
            _ => self.refuse("a string or an object with one key"),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// A variant's name and, where it is the key of an object, what it holds.
struct Variant<'de> {
    name: &'de str,
    content: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        let name: serde::de::value::BorrowedStrDeserializer<'de, Fault> =
            serde::de::value::BorrowedStrDeserializer::new(self.name);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(Fault::custom(format!("`{}` is a plain string and holds nothing", tree::shown(self.name)))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        match self.content {
            Some(content) => seed.deserialize(Shape(content)),
            None => Err(Fault::custom(format!("`{0}` has to be an object `{{\"{0}\": …}}`", tree::shown(self.name)))),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.content {
            Some(content @ Node::List(_)) => Shape(content).deserialize_any(visitor),
            _ => Err(Fault::custom(format!("`{}` holds an array", tree::shown(self.name)))),
        }
    }

    fn struct_variant<V: Visitor<'de>>(self, _fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        match self.content {
            Some(content @ Node::Object(_)) => Shape(content).deserialize_any(visitor),
            _ => Err(Fault::custom(format!("`{}` holds an object", tree::shown(self.name)))),
        }
    }
}
