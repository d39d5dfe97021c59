//! Every fixture, read and validated.

use serde_json::{Value, json};
use torchlift_schema::read::{self, Reading};
use torchlift_schema::{EnvelopeError, PerHostEnvelope};

use crate::fixture::{self, Expected, Fixture, Reader, Verdict, difference};
use crate::schema::Validators;

/// What was read, in the form of the expected results.
fn read_as(reader: Reader, bytes: &[u8]) -> Result<Reading, EnvelopeError> {
    match reader {
        Reader::Envelope => read::envelope(bytes).map(|envelope| Reading::Envelope(Box::new(envelope))),
        Reader::PerHost => read::per_host(bytes).map(Reading::PerHost),
        Reader::Map => read::per_host_map(bytes).map(Reading::Map),
    }
}

fn holds(reading: &Reading) -> Value {
    let three = |run: &PerHostEnvelope| json!({ "bin": run.bin, "ld_library_path": run.ld_library_path, "cwd_subpath": run.cwd_subpath });
    match reading {
        Reading::Envelope(envelope) => {
            let mut value = three(&envelope.per_host());
            value["host"] = envelope.host.clone().into();
            value
        }
        Reading::PerHost(run) => three(run),
        Reading::Map(map) => map.iter().map(|(host, run)| (host.clone(), three(run))).collect(),
    }
}

fn form(reading: &Reading) -> &'static str {
    match reading {
        Reading::Envelope(_) => "envelope",
        Reading::PerHost(_) => "per_host",
        Reading::Map(_) => "map",
    }
}

/// What of `expected` does not hold for `result`, one a line.
fn differences(expected: &Expected, result: &Result<Reading, EnvelopeError>) -> Vec<String> {
    match (&expected.holds, &expected.error, result) {
        (Some(wanted), None, Ok(reading)) => {
            difference("holds", wanted.to_string(), holds(reading).to_string()).into_iter().collect()
        }
        (None, Some(wanted), Err(error)) => {
            let found = match error {
                EnvelopeError::Values { findings } => findings.as_slice(),
                _ => &[],
            };
            wanted.differences(&expected.findings, (error.code(), error.path(), error.to_string()), found)
        }
        (_, _, result) => difference("result", "the other one".to_owned(), format!("{result:?}")).into_iter().collect(),
    }
}

#[test]
fn every_fixture_reads_as_it_says() {
    let mut wrong = Vec::new();
    for fixture in fixture::all() {
        let Fixture { name, expected, .. } = &fixture;
        let bytes = fixture.bytes();
        let mut lines = differences(expected, &read_as(expected.reader, &bytes));
        let any = read::any(&bytes);
        match &expected.any_reads {
            Some(wanted) => {
                let found = any.as_ref().map_or_else(EnvelopeError::code, form);
                if found != wanted {
                    lines.push(format!("any: wanted {wanted}, found {found}"));
                }
            }
            None => lines.extend(differences(expected, &any).iter().map(|line| format!("any: {line}"))),
        }
        wrong.extend(lines.iter().map(|line| format!("{name}: {line}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_folders_hold_what_their_names_say() {
    let fixtures = fixture::all();
    let count = |folder: &str| fixtures.iter().filter(|fixture| fixture.is_in(folder)).count();
    assert!(count("valid") >= 12 && count("broken") >= 30 && count("future") >= 4);
    for Fixture { name, expected, .. } in &fixtures {
        let is_good = expected.holds.is_some() && expected.error.is_none() && expected.findings.is_empty();
        let is_bad = expected.holds.is_none() && expected.error.is_some();
        assert!(is_good || is_bad, "{name} is neither good nor bad");
        assert!(!name.starts_with("valid/") || is_good, "{name}");
        assert!(!name.starts_with("broken/") || is_bad, "{name}");
    }
}

#[test]
fn a_newer_revision_is_known_to_be_newer() {
    for fixture in fixture::all() {
        let Fixture { name, expected, .. } = &fixture;
        if expected.reader == Reader::Envelope && expected.holds.is_some() {
            let envelope = read::envelope(&fixture.bytes()).expect("a good one");
            assert_eq!(envelope.has_newer_revision(), *name == "future/newer-revision", "{name}");
        }
    }
}

#[test]
fn an_independent_validator_agrees_wherever_a_schema_can_say_it() {
    let validators = Validators::new();
    let mut wrong = Vec::new();
    for fixture in fixture::all() {
        let Fixture { name, expected, .. } = &fixture;
        let found = match &expected.schema {
            Verdict::Word(word) if word == "not asked" => continue,
            _ => match serde_json::from_slice::<Value>(&fixture.bytes()) {
                Ok(value) => validators.rejections(expected.reader, &value),
                Err(_) => {
                    if !matches!(&expected.schema, Verdict::Word(word) if word == "unparsable") {
                        wrong.push(format!("{name}: is no JSON"));
                    }
                    continue;
                }
            },
        };
        let (is_refused, because) = (expected.error.is_some(), expected.schema_because.as_deref());
        let wanted = expected.schema.rejections(name, is_refused, because);
        if wanted != found {
            wrong.push(format!("{name}: wanted {wanted:?}\n      found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_error_has_a_hint_and_becomes_findings_with_their_place() {
    let place = torchlift_schema::Place::file("envelope.json").on("node-a");
    for fixture in fixture::all() {
        let Fixture { name, expected, .. } = &fixture;
        let Err(error) = read_as(expected.reader, &fixture.bytes()) else { continue };
        let (hint, path, count) = (error.hint(), error.path().map(str::to_owned), expected.findings.len().max(1));
        assert!(!hint.is_empty() && !hint.ends_with('.'), "{name}: {hint}");
        let findings = error.into_findings(&place);
        assert_eq!(findings.len(), count, "{name}");
        for finding in findings {
            assert!(finding.is_error(), "{name}");
            assert_eq!(finding.remedy.as_deref(), Some(hint), "{name}");
            assert_eq!(finding.place.file.as_deref(), Some("envelope.json"), "{name}");
            assert_eq!(finding.place.host.as_deref(), Some("node-a"), "{name}");
            if let Some(path) = &path {
                assert_eq!(finding.place.key.as_ref(), Some(path), "{name}");
            }
        }
    }
}
