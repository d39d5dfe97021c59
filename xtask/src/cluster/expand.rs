//! `~`, `${VAR}` and `{name}` in paths and ssh targets.

use torchlift::env_vars;

use super::code;
use super::fields::Text;
use super::findings::{Findings, nearest};
use super::host_path::{HostPath, Piece};
use super::load::Lookup;

/// Reads placeholders; variables come from the caller.
#[derive(Clone, Copy)]
pub(super) struct Expander<'a> {
    pub(super) env: Lookup<'a>,
    pub(super) findings: &'a Findings,
}

impl Expander<'_> {
    /// A text with its variables expanded and its other placeholders known; none: a finding says why not.
    ///
    /// Whether `~` means anything here is the caller's to say.
    pub(super) fn read(&self, text: Text<'_>) -> Option<HostPath> {
        let mut rest = text.value;
        let mut is_home = false;
        if let Some(behind) = rest.strip_prefix('~') {
            if !behind.is_empty() && !behind.starts_with('/') {
                self.placeholder(text, "`~` with a user's name is not expanded", "write the folder in full");
                return None;
            }
            is_home = true;
            rest = behind;
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = String::new();
        while let Some(at) = rest.find(['$', '{', '}']) {
            literal.push_str(&rest[..at]);
            let tail = &rest[at..];
            if let Some(inner) = tail.strip_prefix("${") {
                let Some(end) = inner.find('}') else {
                    self.placeholder(text, "`${` is never closed", "write `${VAR}`");
                    return None;
                };
                literal.push_str(&self.variable(&inner[..end], text)?);
                rest = &inner[end + 1..];
            } else if let Some(behind) = tail.strip_prefix('$') {
                let name: String = behind.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let remedy = match name.as_str() {
                    "" => "write `${VAR}`".to_owned(),
                    // The loader's own words mean nothing in a variable.
                    "ORIGIN" | "LIB" | "PLATFORM" => "write the folder in full".to_owned(),
                    name => format!("write `${{{name}}}`"),
                };
                self.placeholder(text, "a `$` without braces", &remedy);
                return None;
            } else if let Some(behind) = tail.strip_prefix("{name}") {
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Name);
                rest = behind;
            } else {
                let end = tail.find('}').map_or(tail.len(), |end| end + 1);
                self.placeholder(
                    text,
                    &format!("`{}` is no placeholder", &tail[..end]),
                    "write `{name}` for the host's name, `${VAR}` for a variable",
                );
                return None;
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Some(HostPath { pieces, is_home, home: (self.env)(env_vars::HOME).filter(|home| home.starts_with('/')) })
    }

    /// The text of a place that no single host owns: `~` is this machine's, and `{name}` a finding.
    pub(super) fn here(&self, text: Text<'_>) -> Option<String> {
        let path = self.read(text)?;
        if path.has_name() {
            self.placeholder(text, "`{name}` has no host here", "write the path without it");
            return None;
        }
        self.has_home(&path, text).then(|| path.expand("", true))
    }

    /// A finding when a path of this machine begins with `~` and there is no home.
    pub(super) fn has_home(&self, path: &HostPath, text: Text<'_>) -> bool {
        let is_there = !path.is_home || path.home.is_some();
        if !is_there {
            self.findings.error(
                code::UNSET_VARIABLE,
                text.place,
                "`~` needs `HOME`, which is not set to an absolute path",
                "set `HOME`, or write the folder in full",
            );
        }
        is_there
    }

    fn variable(&self, name: &str, text: Text<'_>) -> Option<String> {
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if !is_name {
            self.placeholder(text, &format!("`${{{name}}}` names no variable"), "write `${VAR}`");
            return None;
        }
        match (self.env)(name) {
            Some(value) if value.chars().any(char::is_control) => {
                self.placeholder(
                    text,
                    &format!("the value of `{name}` has a control character"),
                    "set the variable to one line of text",
                );
                None
            }
            Some(value) if !value.is_empty() => Some(value),
            found => {
                let state = if found.is_some() { "empty" } else { "not set" };
                let hint = if nearest(name, ["name"]).is_some() {
                    "write `{name}` for the host's name, or set the variable".to_owned()
                } else {
                    format!("set it: `export {name}=…`")
                };
                self.findings.error(
                    code::UNSET_VARIABLE,
                    text.place,
                    format!("the variable `{name}` is {state}"),
                    hint,
                );
                None
            }
        }
    }

    fn placeholder(&self, text: Text<'_>, fault: &str, remedy: &str) {
        self.findings.error(
            code::BAD_PLACEHOLDER,
            text.place,
            format!("{fault} in `{}`", text.value),
            remedy.to_owned(),
        );
    }
}
