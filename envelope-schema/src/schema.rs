//! The JSON Schemas of the formats, generated from the types.
//!
//! They are checked in below `schema/` and a test holds them against this; `cargo xtask schema` writes them.
//! What no schema can say (a key twice, `self_sha256`, a library listed twice, `1.0` for `1`) is the reader's alone.
//! Must not write a file.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::control::{ControlReply, RecordLine, RemoteProcessAllocatorMessage};
use crate::envelope::{Envelope, PerHostEnvelope};
use crate::facts::ClusterFacts;
use crate::rule;
use crate::state::RemoteProcessProcStateMessage;

/// How a schema's file name ends.
pub const SUFFIX: &str = ".schema.json";

/// Every schema: its file name below `schema/` and its text with a final newline, sorted by name.
pub fn files() -> Vec<(&'static str, String)> {
    vec![
        ("allocator-message.schema.json", text(root::<RemoteProcessAllocatorMessage>())),
        ("cluster-facts.schema.json", text(root::<ClusterFacts>())),
        ("control-reply.schema.json", text(root::<ControlReply>())),
        ("envelope.schema.json", text(envelope())),
        ("per-host-envelope.schema.json", text(per_host_envelope())),
        ("per-host-map.schema.json", text(per_host_map())),
        ("record-line.schema.json", text(root::<RecordLine>())),
        ("state-message.schema.json", text(root::<RemoteProcessProcStateMessage>())),
    ]
}

fn envelope() -> Schema {
    root::<Envelope>()
}

fn per_host_envelope() -> Schema {
    root::<PerHostEnvelope>()
}

fn per_host_map() -> Schema {
    let mut schema = root::<BTreeMap<String, PerHostEnvelope>>();
    schema.insert("title".to_owned(), json!("PerHostMap"));
    schema.insert("description".to_owned(), json!("The plain map of hosts' labels to per-host envelopes."));
    schema.insert("propertyNames".to_owned(), json!({ "pattern": rule::HOST_LABEL }));
    schema
}

fn root<T: JsonSchema>() -> Schema {
    SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<T>()
}

fn text(schema: Schema) -> String {
    // `{:#}` of a value is its indented text.
    format!("{:#}\n", sorted(schema.to_value()))
}

/// With sorted keys. serde_json's map keeps them sorted or as inserted, by a feature that any crate in the build may turn on;
/// the text must be the same in every build.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.into_iter().collect();
            members.into_iter().map(|(key, value)| (key, sorted(value))).collect()
        }
        other => other,
    }
}
