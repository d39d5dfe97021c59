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

/// The sources below a folder by their paths, tests left out, and those whose path has one of these parts.
fn sources_without(folder: &Utf8Path, left_out: &[&str]) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for entry in walkdir::WalkDir::new(folder) {
        let path = entry.unwrap().into_path();
        let shown = path.to_string_lossy().into_owned();
        let is_left_out = shown.contains("/tests") || left_out.iter().any(|part| shown.contains(part));
        if path.extension().is_none_or(|extension| extension != "rs") || is_left_out {
            continue;
        }
        let text = fs_err::read_to_string(&path).unwrap();
        texts.push((shown, text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()));
    }
    texts
}

/// The sources whose codes are on the page: the cluster file has its own page and test; `schema` is about this checkout.
fn sources(folder: &Utf8Path) -> Vec<String> {
    let texts = sources_without(folder, &["/cluster/", "commands/schema.rs"]);
    texts.into_iter().map(|(_, text)| text).collect()
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

/// The codes of envelopes and of files of facts: in their room, whatever begins as they do.
fn codes_of_formats() -> BTreeSet<String> {
    let texts = sources(&root().join("envelope-schema/src"));
    let literals = texts.iter().flat_map(|text| text.split('"'));
    literals
        .filter(|word| ["envelope-", "facts-"].iter().any(|start| word.starts_with(start)) && is_code(word))
        .map(str::to_owned)
        .collect()
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
    made.extend(codes_of_formats());
    let missing: Vec<_> = made.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&made).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; made by nothing: {unknown:?}");
}

/// Where findings are made whose remedy comes elsewhere.
const REMEDY_ELSEWHERE: [(&str, &str); 4] = [
    ("xtask/src/cluster/select.rs", "`unknown` leaves it to its callers, which know the name that was meant"),
    (
        "envelope-schema/src/control/validity.rs",
        "whoever refuses a message gives `MessageError::hint` with all of them",
    ),
    ("envelope-schema/src/facts/validity.rs", "`FactsError::into_findings` gives all of them the one hint"),
    ("envelope-schema/src/validity.rs", "`EnvelopeError::into_findings` gives all of them the one hint"),
];

#[test]
fn every_finding_that_the_sources_make_has_a_remedy() {
    let mut without = Vec::new();
    let mut seen = 0;
    for room in ["envelope-schema/src", "launcher/src", "xtask/src"] {
        for (file, text) in sources_without(&root().join(room), &["envelope-schema/src/finding.rs"]) {
            if REMEDY_ELSEWHERE.iter().any(|(elsewhere, _)| file.ends_with(elsewhere)) {
                continue;
            }
            let text = text.replace("Finding::warning(", "Finding::error(");
            let parts: Vec<&str> = text.split("Finding::error(").collect();
            for (index, part) in parts.iter().enumerate().skip(1) {
                seen += 1;
                // The two arms of an `if` may share what comes behind them.
                let is_first_arm = part.contains("} else {");
                let rest =
                    if is_first_arm { parts[index..].iter().take(2).copied().collect() } else { (*part).to_owned() };
                let own = rest.split("\nfn ").next().unwrap().split("\n    fn ").next().unwrap();
                if !own.contains(".remedy(") {
                    without.push(format!("{file}: {}", part.chars().take(80).collect::<String>()));
                }
            }
        }
    }
    assert!(seen > 60, "only {seen} findings are made in the sources");
    assert!(without.is_empty(), "{}", without.join("\n"));
}

#[test]
fn keys_that_are_not_there_yet_are_so_on_the_page_of_the_cluster_file() {
    let page = fs_err::read_to_string(root().join("docs/cluster-file.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains("ot yet: refused"));
    let documented: BTreeSet<&str> = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let refusing = fs_err::read_to_string(root().join("xtask/src/plan/check.rs")).unwrap();
    for key in &documented {
        assert!(refusing.contains(&format!("\"{key}\"")), "`{key}` is refused by nothing");
    }
    assert_eq!(documented.len(), 2, "{documented:?}");
}
