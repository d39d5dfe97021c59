//! The page of findings holds exactly the codes that the sources make.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::code;

fn root() -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Codes written as literals behind `Finding::error(` and `Finding::warning(`, tests left out.
fn codes_of(folder: &Utf8Path) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for entry in walkdir::WalkDir::new(folder) {
        let path = entry.unwrap().into_path();
        // The cluster file has its own page and test; `schema` is about this checkout.
        let is_elsewhere =
            ["/cluster/", "/tests", "commands/schema.rs"].iter().any(|part| path.to_string_lossy().contains(part));
        if path.extension().is_none_or(|extension| extension != "rs") || is_elsewhere {
            continue;
        }
        let text = fs_err::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for marker in ["Finding::error(", "Finding::warning("] {
            for after in text.split(marker).skip(1) {
                if let Some(literal) = after.trim_start().strip_prefix('"') {
                    codes.insert(literal.split('"').next().unwrap().to_owned());
                }
            }
        }
    }
    codes
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
    let missing: Vec<_> = made.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&made).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; made by nothing: {unknown:?}");
}
