//! The page of findings holds exactly the codes that the sources make.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::code;

fn root() -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What stands before the literal of a code.
const MARKERS: [&str; 5] = ["Finding::error(", "Finding::warning(", "refuse(", "code: ", "_MISSING: &str ="];

/// Whether it has a code's form, and not that of a path or a sentence.
fn is_code(literal: &str) -> bool {
    literal.contains('-')
        && literal.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The sources below a folder, tests left out.
fn sources(folder: &Utf8Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in walkdir::WalkDir::new(folder) {
        let path = entry.unwrap().into_path();
        // The cluster file has its own page and test; `schema` is about this checkout.
        let is_elsewhere =
            ["/cluster/", "/tests", "commands/schema.rs"].iter().any(|part| path.to_string_lossy().contains(part));
        if path.extension().is_none_or(|extension| extension != "rs") || is_elsewhere {
            continue;
        }
        let text = fs_err::read_to_string(&path).unwrap();
        texts.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
    }
    texts
}

/// Codes written as literals behind one of the markers.
fn codes_of(folder: &Utf8Path) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for text in sources(folder) {
        for after in MARKERS.iter().flat_map(|marker| text.split(marker).skip(1)) {
            let literal = after.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            codes.extend(literal.filter(|literal| is_code(literal)).map(str::to_owned));
        }
    }
    codes
}

/// The codes of envelopes: in their room, whatever begins as they do.
fn codes_of_envelopes() -> BTreeSet<String> {
    let texts = sources(&root().join("envelope-schema/src"));
    let literals = texts.iter().flat_map(|text| text.split('"'));
    literals.filter(|word| word.starts_with("envelope-") && is_code(word)).map(str::to_owned).collect()
}

#[test]
fn the_page_of_findings_names_every_code_and_no_other() {
    let page = fs_err::read_to_string(root().join("docs/findings.md")).unwrap();
    let documented: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(code, _)| code.to_owned())
        .collect();
    let mut made: BTreeSet<String> = code::TABLE.iter().map(|(code, _)| (*code).to_owned()).collect();
    made.extend(codes_of(&root().join("launcher/src")));
    made.extend(codes_of(&root().join("xtask/src")));
    made.extend(codes_of_envelopes());
    let missing: Vec<_> = made.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&made).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; made by nothing: {unknown:?}");
}
