//! Writing envelopes.
//!
//! The file is for people too: indented, keys in the order of the types, a newline at the end. `self_sha256` is over another
//! text, the canonical one, so that the layout of the file is free: keys sorted by their UTF-8 bytes, no white space, whole
//! numbers in decimal, each character escaped in one way only, and `self_sha256` itself left out. The README of this crate
//! states it for other languages.
//! Must not write a file: a caller renames it in.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest;
use crate::envelope::{Envelope, PerHostEnvelope};
use crate::tree::Node;
use crate::version::{REVISION, VERSION};

/// Why serialising cannot fail: serde_json refuses only map keys that are no strings.
const ALWAYS_JSON: &str = "strings, whole numbers and lists and objects of them are always JSON";

/// The envelope with this crate's version and revision and its `self_sha256`, ready to be written.
///
/// What a newer revision had beyond this one was not read, so what is written is of this one.
#[must_use]
pub fn seal(mut envelope: Envelope) -> Envelope {
    envelope.version = VERSION;
    envelope.revision = REVISION;
    let node = Node::from(serde_json::to_value(&envelope).expect(ALWAYS_JSON));
    envelope.self_sha256 = digest::of(&node).expect("the types have whole numbers only");
    envelope
}

/// The text of the file, with its final newline.
pub fn to_text(envelope: &Envelope) -> String {
    pretty(envelope)
}

/// A text for people: indented, with a final newline.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect(ALWAYS_JSON);
    text.push('\n');
    text
}

/// A bare per-host envelope: one line without a newline, as the published type is written.
pub fn per_host(envelope: &PerHostEnvelope) -> String {
    compact(envelope)
}

/// The plain map: one line without a newline and with sorted hosts, as the published producer writes it.
pub fn per_host_map(map: &BTreeMap<String, PerHostEnvelope>) -> String {
    compact(map)
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect(ALWAYS_JSON)
}
