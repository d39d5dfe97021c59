//! The fixtures of `fixtures/envelopes`: bytes and expected result, side by side.
//!
//! `NAME.json` has the bytes as they are; `NAME.recipe.json` says how to make them, for what is too large or no text.
//! `NAME.expected.json` is an [`Expected`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use torchlift_schema::Finding;

/// What a reader makes of a fixture.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expected {
    /// What it is about, for whoever looks at it.
    #[serde(rename = "why")]
    pub(crate) _why: String,
    /// Which reader, and which schema, it is for.
    pub(crate) reader: Reader,
    /// What a good one holds.
    pub(crate) holds: Option<serde_json::Value>,
    /// How a bad one is refused.
    pub(crate) error: Option<Refusal>,
    /// Every value finding of a bad one.
    #[serde(default)]
    pub(crate) findings: Vec<ExpectedFinding>,
    /// Where `read::any` does not agree with `reader`: the form, or the code of the error.
    pub(crate) any_reads: Option<String>,
    /// What an independent validator says.
    pub(crate) schema: Verdict,
    /// Why a schema takes what the reader refuses: required then.
    pub(crate) schema_because: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reader {
    Envelope,
    PerHost,
    Map,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) path: Option<String>,
    pub(crate) says: String,
}

impl Refusal {
    /// What of a refusal is not as it should be, one a line: the error's own words and its findings of values.
    pub(crate) fn differences(
        &self,
        expected: &[ExpectedFinding],
        (code, path, says): (&str, Option<&str>, String),
        found: &[Finding],
    ) -> Vec<String> {
        let found = found.iter().map(|finding| {
            (finding.code.clone(), finding.place.key.clone().unwrap_or_default(), finding.message.clone())
        });
        let wanted = expected.iter().map(|it| (it.code.clone(), it.key.clone(), it.says.clone()));
        [
            difference("code", self.code.clone(), code.to_owned()),
            difference("path", format!("{:?}", self.path), format!("{:?}", path.map(str::to_owned))),
            difference("says", self.says.clone(), says),
            difference(
                "findings",
                format!("{:#?}", wanted.collect::<Vec<_>>()),
                format!("{:#?}", found.collect::<Vec<_>>()),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A line for something that is not as it should be.
pub(crate) fn difference(what: &str, wanted: String, found: String) -> Option<String> {
    (wanted != found).then(|| format!("{what}: wanted {wanted}\n      found {found}"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFinding {
    pub(crate) code: String,
    pub(crate) key: String,
    pub(crate) says: String,
}

/// What an independent validator says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Verdict {
    /// `accepts`, `unparsable` (no JSON), or `not asked` (larger than anybody should parse).
    Word(String),
    /// It rejects at these places, for these keywords.
    Rejects(Vec<Rejection>),
}

impl Verdict {
    /// Where the validator has to reject a fixture: nowhere when it accepts, and then the fixture says why a schema cannot see
    /// what the reader refuses.
    pub(crate) fn rejections(&self, name: &str, is_refused: bool, because: Option<&str>) -> Vec<Rejection> {
        match self {
            Self::Rejects(wanted) => {
                let mut wanted = wanted.clone();
                wanted.sort();
                wanted
            }
            Self::Word(word) => {
                assert_eq!(word, "accepts", "{name}");
                let is_explained = because.is_some() == is_refused;
                assert!(is_explained, "{name}: `schema_because` belongs to what a schema cannot say, and only there");
                Vec::new()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rejection {
    /// JSON pointer into the instance.
    pub(crate) at: String,
    pub(crate) keyword: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    text: String,
    #[serde(default)]
    bytes: Vec<u8>,
    #[serde(default = "once")]
    repeat: usize,
}

impl Part {
    fn piece(&self) -> Vec<u8> {
        [self.text.as_bytes(), &self.bytes].concat()
    }
}

impl Recipe {
    fn cook(&self) -> Vec<u8> {
        self.parts.iter().map(|part| part.piece().repeat(part.repeat)).collect::<Vec<_>>().concat()
    }
}

fn once() -> usize {
    1
}

/// One fixture.
pub(crate) struct Fixture {
    /// Folder and name, such as `broken/bin-absolute`.
    pub(crate) name: String,
    source: Source,
    pub(crate) expected: Expected,
}

enum Source {
    Bytes(Vec<u8>),
    Recipe(Recipe),
}

impl Fixture {
    /// Its bytes, made anew from a recipe: not every test wants 100 MB of them.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.source {
            Source::Bytes(bytes) => bytes.into(),
            Source::Recipe(recipe) => recipe.cook().into(),
        }
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        match &self.source {
            Source::Bytes(bytes) => bytes.len(),
            Source::Recipe(recipe) => recipe.parts.iter().map(|part| part.piece().len() * part.repeat).sum(),
        }
    }

    pub(crate) fn is_in(&self, folder: &str) -> bool {
        self.name.split('/').next() == Some(folder)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/envelopes")
}

/// All of them, sorted by name; fails on a file that belongs to none.
pub(crate) fn all() -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for folder in ["valid", "broken", "future"] {
        let mut files = BTreeMap::new();
        for entry in root().join(folder).read_dir().expect("the folder is there") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            files.insert(name, path);
        }
        let names: BTreeSet<String> = files.keys().map(|file| stem(file).to_owned()).collect();
        for name in names {
            let mut take = |suffix: &str| files.remove(&format!("{name}{suffix}")).map(|path| read(&path));
            let expected = take(".expected.json").unwrap_or_else(|| panic!("{folder}/{name} has no expected result"));
            let expected = serde_json::from_slice(&expected)
                .unwrap_or_else(|error| panic!("the expected result of {folder}/{name}: {error}"));
            let source = match (take(".json"), take(".recipe.json")) {
                (Some(bytes), None) => Source::Bytes(bytes),
                (None, Some(recipe)) => Source::Recipe(serde_json::from_slice(&recipe).expect("a recipe")),
                _ => panic!("{folder}/{name} has to have either bytes or a recipe"),
            };
            fixtures.push(Fixture { name: format!("{folder}/{name}"), source, expected });
        }
        assert!(files.is_empty(), "{folder} has files of no fixture: {files:?}");
    }
    fixtures
}

fn stem(file: &str) -> &str {
    [".expected.json", ".recipe.json", ".json"].iter().find_map(|suffix| file.strip_suffix(suffix)).unwrap_or(file)
}

fn read(path: &Path) -> Vec<u8> {
    fs_err::read(path).expect("fixtures are readable")
}

/// Pairs of bytes and expected result below `fixtures/<room>`, named by folder and stem; fails on a result of nothing.
pub(crate) fn pairs<E: serde::de::DeserializeOwned>(room: &str) -> Vec<(String, Vec<u8>, E)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(room);
    let mut pairs = Vec::new();
    for folder in ["valid", "broken", "future"] {
        let entries = fs_err::read_dir(root.join(folder)).expect("the folder is there");
        let files: BTreeSet<PathBuf> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
        for file in &files {
            let text = file.to_str().expect("names are UTF-8");
            if let Some(stem) = text.strip_suffix(".expected.json") {
                assert!(files.contains(Path::new(&format!("{stem}.json"))), "{text} belongs to no file");
                continue;
            }
            let beside = text.replace(".json", ".expected.json");
            let expected =
                serde_json::from_slice(&read(Path::new(&beside))).unwrap_or_else(|error| panic!("{beside}: {error}"));
            let stem = file.file_stem().expect("a name").to_str().expect("names are UTF-8");
            pairs.push((format!("{folder}/{stem}"), read(file), expected));
        }
    }
    pairs
}
