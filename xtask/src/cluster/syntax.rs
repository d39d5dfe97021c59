//! TOML with recovery: every fault of a text in one run, and a tree of what could be read.
//!
//! The parser recovers within a line, but one fault can swallow the lines after it. So the first fault is told, the
//! lines of its statement are set aside, and the rest is read again, until the text is TOML. Line numbers stay, since
//! lines are emptied and never removed.

use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};
use torchlift_schema::{Finding, Place};

use super::code;
use super::node::Node;
use super::position::Lines;

/// Further faults of one file are not worth a person's time.
const MOST_FAULTS: usize = 100;

/// What came of a text.
#[derive(Debug)]
pub(super) struct Document {
    /// The tree of what could be read.
    pub(super) root: Node,
    /// Faults of syntax, and keys that stand twice.
    pub(super) findings: Vec<Finding>,
    /// Keys in lines that could not be read.
    pub(super) lost: BTreeSet<String>,
}

/// Reads a text; `file` is what findings call it.
pub(super) fn parse(file: &str, text: &str) -> Document {
    // Some editors put a byte order mark first; it is no character of line 1.
    let mut text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
    let mut findings = Vec::new();
    let mut lost = BTreeSet::new();
    loop {
        let (root, errors) = DeTable::parse_recoverable(&text);
        let (repeated, mut faults): (Vec<_>, Vec<_>) = errors.into_iter().partition(is_repetition);
        faults.sort_by_key(|error| error.span().map_or(0, |span| span.start));
        let Some(fault) = Fault::first(&text, root.get_ref(), &faults) else {
            let root = Node::document(file, &text, root.get_ref());
            findings.extend(repeated.iter().map(|error| duplicate(file, &text, &root, error)));
            return Document { root, findings, lost };
        };
        findings.push(fault.finding(file, &text));
        let next = fault.set_aside(&text, &mut lost);
        if next == text || findings.len() >= MOST_FAULTS {
            let root = Node::document(file, "", &DeTable::new());
            return Document { root, findings, lost };
        }
        drop(root);
        text = next;
    }
}

/// Whether an error is about a key that stands twice: the parser keeps the first and loses nothing else.
fn is_repetition(error: &Error) -> bool {
    error.message().starts_with("duplicate key") || error.message().starts_with("cannot extend value")
}

fn duplicate(file: &str, text: &str, root: &Node, error: &Error) -> Finding {
    let lines = Lines::new(text);
    let span = error.span().unwrap_or(0..0);
    let (line, column) = lines.position(span.start);
    let key = text.get(span).unwrap_or_default().trim_matches(['"', '\'']);
    // The parser keeps the first of the two, and it is the last of this name before here.
    let first =
        root.entries_named(key).into_iter().filter(|place| (place.line, place.column) <= (Some(line), Some(column)));
    let first = first.max_by_key(|place| (place.line, place.column));
    let path = first.and_then(|place| place.key.clone()).unwrap_or_else(|| key.to_owned());
    let place = Place::file(file).at(line, column).key(path);
    let is_header = text.lines().nth(line as usize - 1).unwrap_or_default().trim_start().starts_with('[');
    if error.message().starts_with("cannot extend") {
        return Finding::error(
            code::DUPLICATE_KEY,
            place,
            format!("`{key}` is already a value, and cannot be a table"),
        )
        .remedy("write it one way only");
    }
    let earlier = match first.and_then(|place| place.line).filter(|first| *first != line) {
        Some(first) => format!(": it is already in line {first}"),
        None => String::new(),
    };
    let (message, remedy) = if is_header && (key == "host" || key == "accept") {
        (format!("`{key}` stands as `[{key}]` and as `[[{key}]]`"), format!("write `[[{key}]]` each time"))
    } else if is_header {
        (format!("the table `{key}` stands twice{earlier}"), "put its keys into one table".to_owned())
    } else {
        (format!("the key `{key}` stands twice in this table{earlier}"), "leave one of them out".to_owned())
    };
    Finding::error(code::DUPLICATE_KEY, place, message).remedy(remedy)
}

/// The first fault of a text.
struct Fault {
    /// Where it shows, as a byte offset.
    at: usize,
    message: String,
    remedy: String,
    /// Lines to set aside, from 0.
    lines: std::ops::RangeInclusive<usize>,
}

impl Fault {
    fn first(text: &str, root: &DeTable<'_>, faults: &[Error]) -> Option<Self> {
        let error = faults.first()?;
        let lines = Lines::new(text);
        let Some(span) = error.span() else {
            // Only a key of too many parts has no place: it is the line with the most dots.
            let dots = |(_, line): &(usize, &str)| line.matches('.').count();
            let (line, _) = text.lines().enumerate().max_by_key(dots)?;
            return Some(Self {
                at: text.split_inclusive('\n').take(line).map(str::len).sum(),
                message: format!("this is no TOML: {}", error.message()),
                remedy: "write fewer tables inside of tables".to_owned(),
                lines: line..=line,
            });
        };
        let here = lines.line(span.start);
        let statement = statement(root, span.start);
        let first = statement.as_ref().map_or(here, |value| lines.line(value.start)).min(here);
        let is_open = error.message().contains("unclosed")
            || (first < here && faults.iter().any(|other| other.message().contains("unclosed")))
            || (error.message().starts_with("invalid") && span.start >= text.trim_end().len());
        if is_open && first < here {
            // Nothing closes the value, so it swallowed the lines after it; those are read again on their own.
            let line_start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
            let is_at_start = text[line_start..span.start].trim().is_empty();
            let last = if is_at_start && span.start < text.len() { here - 1 } else { first };
            let at = statement.map_or(span.start, |value| value.start);
            return Some(Self {
                at,
                message: "a value is opened here and never closed".to_owned(),
                remedy: "close it with its bracket or quote".to_owned(),
                lines: first..=last,
            });
        }
        let last = statement.map_or(here, |value| lines.line(value.end.saturating_sub(1))).max(here);
        let (message, remedy) = words(error.message(), text, &span);
        Some(Self { at: span.start, message, remedy, lines: first..=last })
    }

    fn finding(&self, file: &str, text: &str) -> Finding {
        let (line, column) = Lines::new(text).position(self.at);
        Finding::error(code::TOML_SYNTAX, Place::file(file).at(line, column), self.message.clone())
            .remedy(self.remedy.clone())
    }

    /// The text without the faulty lines; a broken header is mended when it is plain what it was, since the lines
    /// after it would else belong to the table before it.
    fn set_aside(&self, text: &str, lost: &mut BTreeSet<String>) -> String {
        let mut out = String::with_capacity(text.len());
        for (index, line) in text.split_inclusive('\n').enumerate() {
            if !self.lines.contains(&index) {
                out.push_str(line);
                continue;
            }
            let is_header = index == *self.lines.start() && line.trim_start().starts_with('[');
            if is_header {
                match header(line) {
                    Some(mended) if mended.trim() != line.trim() => out.push_str(&mended),
                    // A table that no check looks into takes the lines of a header that says nothing.
                    _ => out.push_str(&format!("[\"{SET_ASIDE}{index}\"]")),
                }
            }
            let left = line.split('=').next().unwrap_or_default();
            let parts = left.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'));
            lost.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
            if line.ends_with('\n') {
                out.push('\n');
            }
        }
        out
    }
}

/// Tables whose header could not be read begin with this; nobody writes it, and no check looks into them.
pub(super) const SET_ASIDE: char = '\u{fffd}';

/// What a broken header was meant to be.
fn header(line: &str) -> Option<String> {
    let inner = line.trim().trim_start_matches('[');
    let end = inner.find([']', '#', '=']).unwrap_or(inner.len());
    let name = inner[..end].trim();
    let is_name = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.\"".contains(c))
        && name.split('.').all(|part| !part.is_empty());
    let is_list = name == "host" || name == "accept";
    is_name.then(|| if is_list { format!("[[{name}]]") } else { format!("[{name}]") })
}

/// The span of the outermost value that an offset lies in or right behind.
fn statement(root: &DeTable<'_>, offset: usize) -> Option<std::ops::Range<usize>> {
    fn within(value: &Spanned<DeValue<'_>>, offset: usize) -> Option<std::ops::Range<usize>> {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) if !is_inline(table, &span) => {
                table.iter().find_map(|(_, inner)| within(inner, offset))
            }
            DeValue::Array(items) if items.first().is_some_and(|item| item.span().start == span.start) => {
                items.iter().find_map(|item| within(item, offset))
            }
            _ => (span.start <= offset && offset <= span.end && span.start < span.end).then_some(span),
        }
    }
    root.iter().find_map(|(_, value)| within(value, offset))
}

/// An array's own bracket is before its first item; a list of tables begins with the header of its first table.
/// A table of a header or a dotted key has its header's or key's span, and its values lie behind it.
fn is_inline(table: &DeTable<'_>, span: &std::ops::Range<usize>) -> bool {
    table.iter().all(|(key, _)| span.start < key.span().start && key.span().end <= span.end)
}

/// The parser's message in our words, with what to do.
fn words(message: &str, text: &str, span: &std::ops::Range<usize>) -> (String, String) {
    let found = text.get(span.clone()).unwrap_or_default();
    let plain = message.split(", expected").next().unwrap_or(message);
    if plain.starts_with("key with no value") {
        return ("a key without `=` and a value".to_owned(), "write `key = value`".to_owned());
    }
    if plain.starts_with("invalid") && plain.ends_with("string") && text[span.start..].starts_with(['\n', '\r']) {
        return ("a string is never closed".to_owned(), "close it with its quote".to_owned());
    }
    let is_bare = plain.starts_with("string values must be quoted")
        || plain.starts_with("invalid float")
        || plain.starts_with("invalid boolean");
    if is_bare && !found.is_empty() {
        return (format!("`{found}` is no TOML value"), format!("put a string in quotes: `\"{found}\"`"));
    }
    if is_bare {
        return ("a value is missing here".to_owned(), "write `key = value`".to_owned());
    }
    let remedy = match message.split_once(", expected ") {
        Some((_, expected)) if expected != "nothing" => format!("expected here: {expected}"),
        _ => "see the TOML of `docs/cluster-file.md`".to_owned(),
    };
    (format!("this is no TOML: {plain}"), remedy)
}
