//! The README's own example and recipe.

use std::io::Write as _;
use std::process::{Command, Stdio};

use torchlift_schema::read;

use crate::fixture::{self, Reader};

const README: &str = include_str!("../../README.md");

/// The text of the README's first fenced block of a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("```{language}\n")).expect("the README has such a block");
    rest.split_once("```").expect("the block ends").0
}

/// Runs the README's Python on an envelope's bytes.
fn python_digest(bytes: &[u8]) -> String {
    let mut python = Command::new("python3")
        .args(["-c", block("python")])
        .env("PYTHONUTF8", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tests need python3");
    python.stdin.take().expect("a pipe").write_all(bytes).expect("python reads its input");
    let output = python.wait_with_output().expect("python ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("hex").trim().to_owned()
}

#[test]
fn the_example_is_a_valid_envelope() {
    let envelope = read::envelope(block("json").as_bytes()).expect("the example is valid");
    assert_eq!(torchlift_schema::write::to_text(&envelope), block("json"), "it is written as this crate writes");
}

#[test]
fn the_recipe_in_python_gives_the_digest_of_every_good_envelope() {
    let mut count = 0;
    for fixture in fixture::all() {
        if fixture.expected.reader == Reader::Envelope && fixture.expected.holds.is_some() {
            let envelope = read::envelope(&fixture.bytes()).expect("a good one");
            assert_eq!(python_digest(&fixture.bytes()), envelope.self_sha256, "{}", fixture.name);
            count += 1;
        }
    }
    assert!(count >= 12);
}

#[test]
fn every_rule_of_the_schema_is_in_the_readme() {
    let files = torchlift_schema::schema::files();
    let (_, schema) = files.into_iter().find(|(name, _)| *name == "envelope.schema.json").expect("it has a schema");
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    let keys = |pointer: &str| {
        let members =
            schema.pointer(pointer).and_then(serde_json::Value::as_object).expect("the schema has properties");
        members.keys().cloned().collect::<Vec<_>>()
    };
    for pointer in ["/properties", "/$defs/Artifact/properties", "/$defs/LibtorchRecord/properties"] {
        for key in keys(pointer) {
            assert!(README.contains(&format!("`{key}`")), "the README does not name `{key}`");
        }
    }
}
