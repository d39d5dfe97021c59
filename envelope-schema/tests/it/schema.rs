//! The checked-in schemas, and the independent validator that reads them.

use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;
use torchlift_schema::schema;

use crate::fixture::{Reader, Rejection};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schema")
}

/// The validator of a checked-in schema.
pub(crate) fn validator(name: &str) -> Validator {
    let text = fs_err::read(folder().join(name)).expect("the schema is checked in");
    let schema: Value = serde_json::from_slice(&text).expect("a schema is JSON");
    jsonschema::draft202012::new(&schema).expect("a valid schema")
}

/// Where and why a validator rejects a value, sorted, each once.
pub(crate) fn rejections_of(validator: &Validator, value: &Value) -> Vec<Rejection> {
    let rejection = |error: jsonschema::ValidationError<'_>| Rejection {
        at: error.instance_path().to_string(),
        keyword: error.kind().keyword().to_owned(),
    };
    let mut rejections: Vec<_> = validator.iter_errors(value).map(rejection).collect();
    rejections.sort();
    rejections.dedup();
    rejections
}

/// One validator a schema, from the checked-in files and not from the types.
pub(crate) struct Validators {
    envelope: Validator,
    per_host: Validator,
    map: Validator,
}

impl Validators {
    pub(crate) fn new() -> Self {
        Self {
            envelope: validator("envelope.schema.json"),
            per_host: validator("per-host-envelope.schema.json"),
            map: validator("per-host-map.schema.json"),
        }
    }

    fn of(&self, reader: Reader) -> &Validator {
        match reader {
            Reader::Envelope => &self.envelope,
            Reader::PerHost => &self.per_host,
            Reader::Map => &self.map,
        }
    }

    pub(crate) fn accepts(&self, reader: Reader, value: &Value) -> bool {
        self.of(reader).is_valid(value)
    }

    /// Where and why it rejects, sorted, each once.
    pub(crate) fn rejections(&self, reader: Reader, value: &Value) -> Vec<Rejection> {
        rejections_of(self.of(reader), value)
    }
}

#[test]
fn the_checked_in_schemas_are_what_the_types_say() {
    let mut wanted = Vec::new();
    for (name, text) in schema::files() {
        let there = fs_err::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(there == text, "{name} is stale: run `cargo xtask schema` and commit what it writes");
        wanted.push(name.to_owned());
    }
    let mut found: Vec<String> = folder()
        .read_dir()
        .expect("the folder is there")
        .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("names are UTF-8"))
        .collect();
    found.sort();
    assert_eq!(found, wanted);
}

#[test]
fn a_schema_is_valid_against_the_schema_of_schemas() {
    for (name, text) in schema::files() {
        let value: Value = serde_json::from_str(&text).expect("a schema is JSON");
        assert!(jsonschema::meta::is_valid(&value), "{name}");
        assert!(name.ends_with(schema::SUFFIX), "{name}");
    }
}
