//! `cluster.facts.json` against its fixtures and its schema: `fixtures/facts`.
//!
//! `NAME.json` has the bytes, `NAME.expected.json` is an [`Expected`].

use serde::Deserialize;
use serde_json::Value;
use torchlift_schema::facts::{self, FactsError};
use torchlift_schema::{ClusterFacts, Place};

use crate::fixture::{self, ExpectedFinding, Refusal, Verdict, difference};
use crate::schema::{rejections_of, validator};

/// What a reader makes of a file of facts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(rename = "why")]
    _why: String,
    /// Names of the hosts of a good one.
    hosts: Option<Vec<String>>,
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

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    expected: Expected,
}

fn all() -> Vec<Fixture> {
    let pairs = fixture::pairs("facts").into_iter();
    pairs.map(|(name, bytes, expected)| Fixture { name, bytes, expected }).collect()
}

#[test]
fn every_fixture_reads_as_it_says() {
    let mut wrong = Vec::new();
    for Fixture { name, bytes, expected } in all() {
        let result = facts::read(&bytes);
        let lines: Vec<String> = match (&expected.hosts, &expected.error, &result) {
            (Some(hosts), None, Ok(facts)) => {
                let found = format!("{:?}", facts.hosts.keys().collect::<Vec<_>>());
                difference("hosts", format!("{hosts:?}"), found).into_iter().collect()
            }
            (None, Some(wanted), Err(error)) => {
                let found = match error {
                    FactsError::Values { findings } => findings.as_slice(),
                    _ => &[],
                };
                wanted.differences(&expected.findings, (error.code(), error.path(), error.to_string()), found)
            }
            _ => {
                let found = format!("{:?}", result.map(|facts| facts.hosts.len()));
                difference("result", "the other one".to_owned(), found).into_iter().collect()
            }
        };
        wrong.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_folders_hold_what_their_names_say() {
    let fixtures = all();
    let of = |folder: &str| fixtures.iter().filter(|fixture| fixture.name.starts_with(folder)).collect::<Vec<_>>();
    assert!(of("valid").len() >= 6 && of("broken").len() >= 15 && of("future").len() >= 3);
    assert!(of("valid").iter().all(|fixture| fixture.expected.hosts.is_some()));
    assert!(of("broken").iter().all(|fixture| fixture.expected.error.is_some()));
}

#[test]
fn a_good_file_of_this_revision_is_written_as_it_was_read() {
    for Fixture { name, bytes, .. } in all() {
        if name.starts_with("valid/") {
            let text = facts::to_text(&facts::read(&bytes).expect("a good one"));
            assert!(text.as_bytes() == bytes, "{name} is not in canonical order; it should be\n{text}");
        }
    }
}

#[test]
fn an_independent_validator_agrees_wherever_a_schema_can_say_it() {
    let validator = validator("cluster-facts.schema.json");
    let mut wrong = Vec::new();
    for Fixture { name, bytes, expected } in all() {
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
            assert!(matches!(&expected.schema, Verdict::Word(word) if word == "unparsable"), "{name}: is no JSON");
            continue;
        };
        let (is_refused, because) = (expected.error.is_some(), expected.schema_because.as_deref());
        let wanted = expected.schema.rejections(&name, is_refused, because);
        let found = rejections_of(&validator, &value);
        if wanted != found {
            wrong.push(format!("{name}: wanted {wanted:?}\n      found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_error_has_a_hint_and_becomes_findings_with_their_place() {
    for Fixture { name, bytes, expected } in all() {
        let Err(error) = facts::read(&bytes) else { continue };
        let (hint, count) = (error.hint(), expected.findings.len().max(1));
        assert!(!hint.is_empty() && !hint.ends_with('.'), "{name}: {hint}");
        let findings = error.into_findings(&Place::file("cluster.facts.json"));
        assert_eq!(findings.len(), count, "{name}");
        let is_placed = |finding: &torchlift_schema::Finding| {
            finding.is_error() && finding.remedy.as_deref() == Some(hint) && finding.place.file.is_some()
        };
        assert!(findings.iter().all(is_placed), "{name}: {findings:?}");
    }
}

#[test]
fn what_is_larger_than_any_file_of_facts_is_not_parsed() {
    let error = facts::read(&vec![b' '; facts::MAX_BYTES + 1]).expect_err("too large");
    assert_eq!(error.code(), "facts-too-large");
}

#[test]
fn changed_bytes_are_read_or_refused_and_never_panic() {
    let fixture = all().into_iter().find(|fixture| fixture.name == "valid/full").expect("it is there");
    // Every byte once, by something that JSON knows and something that it does not.
    for at in (0..fixture.bytes.len()).step_by(3) {
        for byte in [b'"', b'9', b'{', 0] {
            let mut bytes = fixture.bytes.clone();
            bytes[at] = byte;
            if let Ok(facts) = facts::read(&bytes) {
                assert_eq!(facts.validate(), []);
            }
        }
    }
    assert_eq!(ClusterFacts::default().validate(), []);
}
