//! A file of events for programs: one JSON object a line, each with `version`, `t` (seconds since the start, monotonic) and
//! `event`.

use std::io::{self, Write as _};

use fs_err::File;
use serde_json::{Value, json};

use super::record::seconds;
use crate::clock::Moment;

/// Writes such a file.
#[derive(Debug)]
pub struct EventStream {
    /// None after a line that could not be written: half of it may stand at the end, and more behind it would be read as one
    /// with it.
    file: Option<File>,
    version: u32,
    start: Moment,
}

impl EventStream {
    /// A stream into `file`, which is open for appending, of lines of this `version`.
    pub fn new(file: File, version: u32, start: Moment) -> Self {
        Self { file: Some(file), version, start }
    }

    /// Writes one line, unless one before it failed.
    ///
    /// # Errors
    /// When it cannot be written, once.
    pub fn line(&mut self, now: Moment, name: &str, keys: Value) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let t = seconds(now.since(self.start));
        let mut object = json!({ "version": self.version, "t": t, "event": name });
        if let (Value::Object(object), Value::Object(keys)) = (&mut object, keys) {
            object.extend(keys);
        }
        let written = file.write_all(format!("{object}\n").as_bytes());
        if written.is_err() {
            self.file = None;
        }
        written
    }
}
