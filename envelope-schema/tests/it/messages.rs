//! Control messages against their fixtures and schemas: `fixtures/messages`.
//!
//! `NAME.json` has the bytes, `NAME.expected.json` is an [`Expected`].

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use torchlift_schema::control::{self, MessageError, RemoteProcessAllocatorMessage};
use torchlift_schema::state::RemoteProcessProcStateMessage;
use torchlift_schema::{Finding, Named as _};

use crate::fixture::{self, ExpectedFinding, Refusal, Verdict, difference};
use crate::schema::{rejections_of, validator};

/// What a reader makes of a message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(rename = "why")]
    _why: String,
    /// Who reads it.
    reader: Reader,
    /// The variant of a good one.
    arm: Option<String>,
    /// The global ranks of a good one's view.
    ranks: Option<Vec<usize>>,
    /// How a good one is written again, where that is not as it was read.
    written: Option<Value>,
    /// How a bad one is refused.
    error: Option<Refusal>,
    /// Every value finding of a bad one.
    #[serde(default)]
    findings: Vec<ExpectedFinding>,
    /// What an independent validator says.
    schema: Verdict,
    /// Why a schema takes what the reader refuses: required then.
    schema_because: Option<String>,
}

/// Who reads a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reader {
    /// An allocator, from its client.
    Allocator,
    /// A client, from its allocator.
    Client,
}

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    expected: Expected,
}

/// A message that was read.
#[derive(Debug)]
struct Message {
    arm: Option<&'static str>,
    ranks: Option<Vec<usize>>,
    written: Value,
}

fn read(reader: Reader, bytes: &[u8]) -> Result<Message, MessageError> {
    let ranks = |view: &torchlift_schema::View| Some(view.iter().map(|(_, rank)| rank).collect());
    match reader {
        Reader::Allocator => control::allocator_message(bytes).map(|message| Message {
            arm: message.arm(),
            ranks: match &message {
                RemoteProcessAllocatorMessage::Allocate { view, .. } => ranks(view),
                _ => None,
            },
            written: serde_json::to_value(&message).expect("messages are JSON"),
        }),
        Reader::Client => control::state_message(bytes).map(|message| Message {
            arm: message.arm(),
            ranks: match &message {
                RemoteProcessProcStateMessage::Allocated { view, .. } => ranks(view),
                _ => None,
            },
            written: serde_json::to_value(&message).expect("messages are JSON"),
        }),
    }
}

fn all() -> Vec<Fixture> {
    let pairs = fixture::pairs("messages").into_iter();
    pairs.map(|(name, bytes, expected)| Fixture { name, bytes, expected }).collect()
}

fn findings(error: &MessageError) -> &[Finding] {
    match error {
        MessageError::Values { findings } => findings,
        _ => &[],
    }
}

#[test]
fn every_fixture_reads_as_it_says() {
    let mut wrong = Vec::new();
    for Fixture { name, bytes, expected } in all() {
        let lines: Vec<String> = match (&expected.arm, &expected.error, read(expected.reader, &bytes)) {
            (Some(arm), None, Ok(message)) => {
                let as_read = serde_json::from_slice(&bytes).expect("a good one is JSON");
                let written = expected.written.as_ref().unwrap_or(&as_read);
                [
                    difference("arm", arm.clone(), message.arm.unwrap_or("none").to_owned()),
                    difference("ranks", format!("{:?}", expected.ranks), format!("{:?}", message.ranks)),
                    difference("written", written.to_string(), message.written.to_string()),
                ]
                .into_iter()
                .flatten()
                .collect()
            }
            (None, Some(wanted), Err(error)) => {
                let told = (error.code(), error.path(), error.to_string());
                wanted.differences(&expected.findings, told, findings(&error))
            }
            (_, _, result) => {
                difference("result", "the other one".to_owned(), format!("{result:?}")).into_iter().collect()
            }
        };
        wrong.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_is_a_good_and_a_broken_fixture_of_every_variant() {
    let fixtures = all();
    let arms = |reader| {
        let good = fixtures.iter().filter(|fixture| fixture.expected.reader == reader);
        good.filter_map(|fixture| fixture.expected.arm.clone()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(arms(Reader::Allocator), ["Allocate", "HeartBeat", "Stop", "StopWith"]);
    assert_eq!(arms(Reader::Client), ["Allocated", "Done", "HeartBeat", "Update"]);
    for arm in ["Allocate", "HeartBeat", "Stop", "StopWith", "Allocated", "Done", "Update"] {
        let is_of = |fixture: &&Fixture| {
            fixture.name.starts_with("broken/")
                && String::from_utf8_lossy(&fixture.bytes).contains(&format!("\"{arm}\""))
        };
        assert!(fixtures.iter().any(|fixture| is_of(&fixture)), "no broken {arm}");
    }
    let is_bad = |fixture: &Fixture| fixture.expected.error.is_some();
    assert!(fixtures.iter().all(|fixture| is_bad(fixture) == fixture.name.starts_with("broken/")));
}

#[test]
fn an_independent_validator_agrees_wherever_a_schema_can_say_it() {
    let (allocator, client) = (validator("allocator-message.schema.json"), validator("state-message.schema.json"));
    let mut wrong = Vec::new();
    for Fixture { name, bytes, expected } in all() {
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            assert!(matches!(&expected.schema, Verdict::Word(word) if word == "unparsable"), "{name}: is no JSON");
            continue;
        };
        let (is_refused, because) = (expected.error.is_some(), expected.schema_because.as_deref());
        let wanted = expected.schema.rejections(&name, is_refused, because);
        let found = match expected.reader {
            Reader::Allocator => rejections_of(&allocator, &value),
            Reader::Client => rejections_of(&client, &value),
        };
        if wanted != found {
            wrong.push(format!("{name}: wanted {wanted:?}\n      found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_larger_than_any_message_is_not_parsed() {
    let error = control::allocator_message(&vec![b' '; control::MAX_BYTES + 1]).expect_err("too large");
    assert_eq!((error.code(), error.path()), ("message-too-large", None));
    assert!(!error.hint().is_empty());
}

#[test]
fn changed_bytes_are_read_or_refused_and_never_panic() {
    for Fixture { name, bytes, expected } in all() {
        if !name.starts_with("valid/") {
            continue;
        }
        for at in 0..bytes.len() {
            for byte in *b"\"9{-" {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                let _ = read(expected.reader, &bytes);
            }
        }
    }
}
