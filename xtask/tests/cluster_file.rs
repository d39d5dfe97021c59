//! The cluster files of `fixtures/clusters`, each against the expected result beside it.
//!
//! `valid/NAME.toml` (with `NAME.local.toml` over it) resolves to the cluster and the warnings of `NAME.json`; `broken/NAME.toml` gives the findings of
//! `NAME.expected`: one a line, `file:line:column severity code key`. `UPDATE_EXPECT=1` writes what came out; read it
//! before you keep it.

#![expect(clippy::unwrap_used, reason = "a fault of a fixture ends its test")]

use std::fmt::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::Finding;
use torchlift_xtask::cluster::{self, Reading, Source};

fn folder(name: &str) -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/clusters").join(name)
}

/// The environment that the fixtures are written for.
fn variable(name: &str) -> Option<String> {
    let value = match name {
        "HOME" => "/home/me",
        "DATA" => "/data/größe",
        "USER" => "me",
        "EMPTY" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

fn parse(file: &Utf8Path) -> Reading {
    let text = fs_err::read_to_string(file).unwrap();
    let over = cluster::overlay_path(file);
    let over_text = fs_err::read_to_string(&over).ok();
    let over_name = over.file_name().unwrap().to_owned();
    cluster::parse(
        &Utf8Path::new("/project").join(file.file_name().unwrap()),
        Source { name: file.file_name().unwrap(), text: &text },
        over_text.as_deref().map(|text| Source { name: &over_name, text }),
        &variable,
    )
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = if finding.is_error() { "error" } else { "warning" };
        let place = &finding.place;
        let key = place.key.as_deref().unwrap_or("-");
        let (file, line, column) =
            (place.file.as_deref().unwrap(), place.line.unwrap_or_default(), place.column.unwrap_or_default());
        writeln!(text, "{file}:{line}:{column} {severity} {} {key}", finding.code).unwrap();
    }
    text
}

fn files(name: &str) -> Vec<Utf8PathBuf> {
    let mut files: Vec<Utf8PathBuf> = folder(name)
        .read_dir_utf8()
        .unwrap()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension() == Some("toml") && !path.as_str().ends_with(".local.toml"))
        .collect();
    files.sort();
    files
}

/// Each file whose result is not the expected one, with both.
fn differences(name: &str, extension: &str, result: impl Fn(&Utf8Path) -> String) -> Vec<String> {
    let mut differences = Vec::new();
    for file in files(name) {
        let actual = result(&file);
        let beside = file.with_extension(extension);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs_err::write(&beside, &actual).unwrap();
        }
        let expected = fs_err::read_to_string(&beside).unwrap_or_default();
        if expected != actual {
            differences.push(format!("{file}\nexpected:\n{expected}\nfound:\n{actual}"));
        }
    }
    differences
}

#[test]
fn every_valid_file_resolves_to_the_json_beside_it() {
    let differences = differences("valid", "json", |file| {
        let reading = parse(file);
        let errors: Vec<Finding> = reading.findings.iter().filter(|finding| finding.is_error()).cloned().collect();
        assert!(errors.is_empty(), "{file}: {errors:#?}");
        let warnings = lines(&reading.findings);
        let result = serde_json::json!({
            "cluster": reading.cluster,
            "warnings": warnings.lines().collect::<Vec<_>>(),
        });
        serde_json::to_string_pretty(&result).unwrap() + "\n"
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(files("valid").len() >= 12);
}

#[test]
fn every_broken_file_gives_the_findings_beside_it() {
    let differences = differences("broken", "expected", |file| {
        let reading = parse(file);
        assert!(reading.findings.iter().any(Finding::is_error), "{file} has no error");
        lines(&reading.findings)
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(files("broken").len() >= 40);
}

#[test]
fn every_finding_says_what_is_wrong_and_what_to_do() {
    for file in files("broken") {
        for finding in parse(&file).findings {
            let place = &finding.place;
            assert!(place.file.is_some() && place.line.is_some() && place.column.is_some(), "{file}: {finding:?}");
            let remedy = finding.remedy.as_deref().unwrap_or_default();
            for words in [finding.message.as_str(), remedy] {
                assert!(!words.is_empty() && !words.ends_with('.'), "{file}: {finding:?}");
                assert!(!words.starts_with(|c: char| c.is_uppercase()), "{file}: {finding:?}");
            }
            assert!(cluster::code::TABLE.iter().any(|(code, _)| *code == finding.code), "{file}: {finding:?}");
        }
    }
}
