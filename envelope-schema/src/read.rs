//! Reading envelopes: bounded, path-aware, and without trust in who wrote the file.
//!
//! The order is: size, byte order mark, UTF-8 and depth ([`MAX_BYTES`], [`MAX_DEPTH`]) before anything is parsed; then the
//! header, so that a file of a newer version is called newer, whatever else is in it; then the raw value, with a key twice at
//! any level an error; then the types; then `self_sha256`; then the rules for values, all of them at once.
//! Unknown keys are tolerated. Must not open a file: a caller reads at most [`MAX_BYTES`] and one byte.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::digest;
use crate::envelope::{Envelope, PerHostEnvelope};
use crate::error::EnvelopeError;
use crate::finding::Finding;
use crate::limit;
use crate::shape;
use crate::tree::Node;
use crate::validity;
use crate::version::VERSION;

pub use crate::limit::{MAX_BYTES, MAX_DEPTH};

/// What `--envelopes` was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// One envelope, its digest checked.
    Envelope(Box<Envelope>),
    /// One bare per-host envelope, without a host's name.
    PerHost(PerHostEnvelope),
    /// The plain map of hosts' labels to per-host envelopes; may be empty.
    Map(BTreeMap<String, PerHostEnvelope>),
}

/// Reads the published three fields, of a per-host envelope or of any [`Envelope`], whatever its version.
///
/// `self_sha256` is not looked at: the published type has none.
pub fn per_host(bytes: &[u8]) -> Result<PerHostEnvelope, EnvelopeError> {
    per_host_of(&Node::parse(limit::check(bytes)?)?)
}

/// Reads an envelope of this version, of any revision, and checks its `self_sha256`.
pub fn envelope(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
    let text = limit::check(bytes)?;
    probe(text)?;
    envelope_of(&Node::parse(text)?)
}

/// Reads the plain map `{host: PerHostEnvelope}`.
pub fn per_host_map(bytes: &[u8]) -> Result<BTreeMap<String, PerHostEnvelope>, EnvelopeError> {
    map_of(&Node::parse(limit::check(bytes)?)?)
}

/// Reads what it is: an [`Envelope`], a bare [`PerHostEnvelope`], or the plain map of them.
///
/// The rule looks at the top-level keys whose value is *not* an object, since every value of the map is one:
/// with `version` or `self_sha256` it is an envelope; else with `bin`, `ld_library_path` or `cwd_subpath` a per-host envelope;
/// else the map. So a host may be called `bin`, a broken file is judged as what it was meant to be, and an envelope that lost
/// its `version` does not pass as something that has no digest.
pub fn any(bytes: &[u8]) -> Result<Reading, EnvelopeError> {
    let text = limit::check(bytes)?;
    probe(text)?;
    let node = Node::parse(text)?;
    let has = |key: &str| node.get(key).is_some_and(|value| !value.is_object());
    if has("version") || has("self_sha256") {
        Ok(Reading::Envelope(Box::new(envelope_of(&node)?)))
    } else if ["bin", "ld_library_path", "cwd_subpath"].into_iter().any(has) {
        Ok(Reading::PerHost(per_host_of(&node)?))
    } else {
        Ok(Reading::Map(map_of(&node)?))
    }
}

/// The two fields that a reader looks at before all others.
#[derive(Deserialize)]
struct Header {
    version: u64,
    /// Informs only: nothing is refused for it.
    #[serde(default, rename = "revision")]
    _revision: serde::de::IgnoredAny,
}

/// Refuses a newer version. A text that has no readable header passes: the reader behind says what is wrong with it.
fn probe(text: &str) -> Result<(), EnvelopeError> {
    match version_of(text) {
        Some(version) if version > u64::from(VERSION) => Err(EnvelopeError::Newer { version, supported: VERSION }),
        _ => Ok(()),
    }
}

/// The version that a text's header states, where it has a readable one.
pub(crate) fn version_of(text: &str) -> Option<u64> {
    // serde_json would read an array as the struct.
    let is_object = text.trim_start().starts_with('{');
    is_object.then(|| serde_json::from_str::<Header>(text).ok()).flatten().map(|header| header.version)
}

fn envelope_of(node: &Node) -> Result<Envelope, EnvelopeError> {
    let envelope: Envelope = shape::read(node)?;
    let computed = digest::of(node)?;
    if computed != envelope.self_sha256 {
        return Err(EnvelopeError::Digest { stated: crate::tree::shown(&envelope.self_sha256), computed });
    }
    hold(envelope.validate())?;
    Ok(envelope)
}

fn per_host_of(node: &Node) -> Result<PerHostEnvelope, EnvelopeError> {
    let envelope: PerHostEnvelope = shape::read(node)?;
    hold(envelope.validate())?;
    Ok(envelope)
}

fn map_of(node: &Node) -> Result<BTreeMap<String, PerHostEnvelope>, EnvelopeError> {
    let map = shape::read(node)?;
    hold(validity::validate_map(&map))?;
    Ok(map)
}

fn hold(findings: Vec<Finding>) -> Result<(), EnvelopeError> {
    if findings.is_empty() { Ok(()) } else { Err(EnvelopeError::Values { findings }) }
}
