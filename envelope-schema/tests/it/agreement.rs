//! Hostile input: the reader never panics, and an independent validator never disagrees unexplained.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use torchlift_schema::read;
use torchlift_schema::{Envelope, EnvelopeError, write};

use crate::fixture::{self, Reader};
use crate::schema::Validators;
use crate::strategy;

/// One edit of a text.
#[derive(Clone, Debug)]
enum Edit {
    Put(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\0-.e \n\x00\xc3".to_vec())];
    prop_oneof![
        4 => (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Put(at, byte)),
        2 => (any::<Index>(), 1..40_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        2 => (any::<Index>(), 1..200_usize).prop_map(|(at, length)| Edit::Repeat(at, length)),
        1 => any::<Index>().prop_map(Edit::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    if bytes.is_empty() {
        return;
    }
    match edit {
        Edit::Put(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Edit::Remove(at, length) => {
            let at = at.index(bytes.len());
            bytes.drain(at..(at + length).min(bytes.len()));
        }
        Edit::Repeat(at, length) => {
            let at = at.index(bytes.len());
            let piece = bytes[at..(at + length).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        Edit::Cut(at) => bytes.truncate(at.index(bytes.len())),
    }
}

/// Reads with every reader; each result is either good or an error that can be shown.
fn read_all(bytes: &[u8]) -> bool {
    let errors = [
        read::envelope(bytes).map(|envelope| envelope.validate().is_empty()),
        read::per_host(bytes).map(|run| run.validate().is_empty()),
        read::per_host_map(bytes).map(|_| true),
        read::any(bytes).map(|_| true),
    ];
    errors.into_iter().all(|result| match result {
        Ok(is_valid) => is_valid,
        Err(error) => !error.to_string().is_empty() && !error.to_string().contains('\n'),
    })
}

/// Values that readers stumble over.
fn odd_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "error", "warning", "/", "..", ".", "a/../b", "a//b", "/a:", "/a;b", "$x", "a\u{0}", "A-", "-a", "2.",
            "x/y", "cpu", "1"
        ])
        .prop_map(str::to_owned),
        "[0-9a-fA-F]{63,65}",
        ".{0,12}",
    ];
    let number = prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            json!(0),
            json!(-1),
            json!(1.0),
            json!(4_294_967_296_u64),
            json!(9_007_199_254_740_992_u64)
        ]),
    ];
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, text.prop_map(Value::from)];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}|cpu|cuda|warning", inner, 0..3)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// JSON pointers to every value below the top.
fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, out: &mut Vec<String>) {
        let members: Vec<(String, &Value)> = match value {
            Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
            _ => Vec::new(),
        };
        for (key, value) in members {
            let at = format!("{at}/{key}");
            out.push(at.clone());
            walk(value, &at, out);
        }
    }
    let mut out = Vec::new();
    walk(value, "", &mut out);
    out
}

/// Puts `new` at a place of `value`, or takes the member away.
fn change(value: &mut Value, at: &str, new: Option<Value>) {
    let (parent, key) = at.rsplit_once('/').expect("a pointer below the top");
    match (value.pointer_mut(parent).expect("the place is there"), new) {
        (Value::Object(members), Some(new)) => {
            members.insert(key.to_owned(), new);
        }
        (Value::Object(members), None) => {
            members.remove(key);
        }
        (Value::Array(list), Some(new)) => list[key.parse::<usize>().expect("an index")] = new,
        (Value::Array(list), None) => {
            list.remove(key.parse::<usize>().expect("an index"));
        }
        _ => unreachable!("only objects and arrays have members"),
    }
}

/// The digest as another implementation computes it; serde_json sorts its keys in this build, which a unit test of the
/// reader does not rely on.
fn reseal(value: &mut Value) {
    let Value::Object(members) = &mut *value else { return };
    if !members.get("self_sha256").is_some_and(Value::is_string) {
        return;
    }
    members.remove("self_sha256");
    let digest = Sha256::digest(value.to_string().as_bytes());
    value["self_sha256"] = digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
}

/// What the reader refuses and no schema can say; each has a fixture.
fn is_beyond_a_schema(error: &EnvelopeError) -> bool {
    match error {
        EnvelopeError::NotWhole { .. } | EnvelopeError::DuplicateKey { .. } => true,
        // `1.0` is an integer to a schema.
        EnvelopeError::WrongType { found, .. } => found.starts_with("the number `") && found.ends_with(".0`"),
        EnvelopeError::Values { findings } => findings.iter().all(|finding| finding.code == "envelope-library-twice"),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn an_edited_text_is_read_or_refused_and_never_panics(
        which in any::<Index>(),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        let small: Vec<_> = fixture_texts();
        let mut bytes = small[which.index(small.len())].clone();
        for edit in &edits {
            apply(&mut bytes, edit);
        }
        prop_assert!(read_all(&bytes));
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_all(&bytes));
    }

    #[test]
    fn the_validator_and_the_reader_agree_on_changed_envelopes(
        envelope in strategy::envelope(),
        changes in prop::collection::vec((any::<Index>(), prop::option::of(odd_value())), 0..3),
    ) {
        let sealed: Envelope = write::seal(envelope);
        let mut value = serde_json::to_value(&sealed).expect("an envelope is JSON");
        for (which, new) in changes {
            let places = places(&value);
            if !places.is_empty() {
                change(&mut value, &places[which.index(places.len())], new);
            }
        }
        reseal(&mut value);
        let accepts = VALIDATORS.with(|validators| validators.accepts(Reader::Envelope, &value));
        match read::envelope(value.to_string().as_bytes()) {
            Ok(_) => prop_assert!(accepts, "only the validator refuses {value}"),
            Err(error) => prop_assert!(!accepts || is_beyond_a_schema(&error), "only the reader refuses: {error}: {value}"),
        }
    }

    #[test]
    fn the_validator_and_the_reader_agree_on_changed_maps(
        map in strategy::map(),
        changes in prop::collection::vec((any::<Index>(), prop::option::of(odd_value())), 0..3),
    ) {
        let mut value = serde_json::to_value(&map).expect("a map is JSON");
        for (which, new) in changes {
            let places = places(&value);
            if !places.is_empty() {
                change(&mut value, &places[which.index(places.len())], new);
            }
        }
        let accepts = VALIDATORS.with(|validators| validators.accepts(Reader::Map, &value));
        prop_assert_eq!(read::per_host_map(value.to_string().as_bytes()).is_ok(), accepts, "{}", value);
    }
}

thread_local! {
    /// Compiled once a test, not once a case.
    static VALIDATORS: Validators = Validators::new();
    static TEXTS: Vec<Vec<u8>> = fixture::all()
        .iter()
        .filter(|fixture| fixture.size() < 10_000)
        .map(|fixture| fixture.bytes().into_owned())
        .collect();
}

fn fixture_texts() -> Vec<Vec<u8>> {
    TEXTS.with(Clone::clone)
}
