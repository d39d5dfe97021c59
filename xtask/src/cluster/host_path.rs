//! A path as the cluster file has it, with `{name}` and `~` still in it.

use std::fmt;

use camino::Utf8PathBuf;

use super::model::{Host, Reach};

/// A path that each host may see differently; `${VAR}` is expanded already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    pub(super) pieces: Vec<Piece>,
    /// Whether it begins with `~`.
    pub(super) is_home: bool,
    /// What `~` is on this machine.
    pub(super) home: Option<String>,
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// `{name}`.
    Name,
}

impl HostPath {
    /// The path on a host.
    ///
    /// A relative one lies below the host's `path`. It begins with `~` only where that host is to expand it.
    pub fn on(&self, host: &Host) -> Utf8PathBuf {
        let text = self.expand(&host.name, matches!(host.reach, Reach::Local));
        if self.is_home { Utf8PathBuf::from(text) } else { host.path.join(text) }
    }

    /// The text with `{name}` filled in, and `~` too where the path is of this machine.
    pub(super) fn expand(&self, name: &str, is_local: bool) -> String {
        let mut text = match (&self.home, self.is_home) {
            (Some(home), true) if is_local => home.clone(),
            (_, true) => "~".to_owned(),
            _ => String::new(),
        };
        for piece in &self.pieces {
            text.push_str(match piece {
                Piece::Text(part) => part,
                Piece::Name => name,
            });
        }
        text
    }

    /// Whether `{name}` is in it.
    pub(super) fn has_name(&self) -> bool {
        self.pieces.contains(&Piece::Name)
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expand("{name}", false))
    }
}

impl serde::Serialize for HostPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
