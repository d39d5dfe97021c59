//! The text form of a view: `[offset+]label=size/stride,…`, such as `6+x=1/4,y=2/1`, as the published system writes regions.
//!
//! A name that has anything but letters, digits, `_`, `-` and `.` stands in double quotes, with `\"` and `\\` inside. A view
//! without dimensions is its offset alone: `6+`, and the empty text at offset 0.

use std::fmt;
use std::str::FromStr;

use super::{Slice, View, ViewError};
use crate::tree::shown;

/// Why a text is no view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewTextError {
    /// The text is not built like one.
    #[error("{wanted} belongs at byte {at} of the view `{}`", shown(.text))]
    Syntax {
        /// What should stand there.
        wanted: &'static str,
        /// Offset in bytes, from 0.
        at: usize,
        /// The text.
        text: String,
    },
    /// A number is beyond 64 bits.
    #[error("the number at byte {at} of the view `{}` is too large", shown(.text))]
    Number {
        /// Offset in bytes, from 0.
        at: usize,
        /// The text.
        text: String,
    },
    /// It is built like one, and there is no such view.
    #[error("`{}` is no view", shown(.text))]
    View {
        /// The text.
        text: String,
        /// Why not.
        #[source]
        source: ViewError,
    },
}

fn is_plain(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-' | '.')
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slice = self.slice();
        if slice.offset() > 0 {
            write!(f, "{}+", slice.offset())?;
        }
        let dims = self.labels().iter().zip(slice.sizes().iter().zip(slice.strides()));
        for (index, (label, (size, stride))) in dims.enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if label.chars().all(is_plain) {
                f.write_str(label)?;
            } else {
                write!(f, "\"{}\"", label.replace('\\', "\\\\").replace('"', "\\\""))?;
            }
            write!(f, "={size}/{stride}")?;
        }
        Ok(())
    }
}

impl FromStr for View {
    type Err = ViewTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut reader = Reader { text, at: 0 };
        let offset = reader.offset()?;
        let (mut labels, mut sizes, mut strides) = (Vec::new(), Vec::new(), Vec::new());
        while reader.at < text.len() {
            if !labels.is_empty() {
                reader.expect(',', "a comma")?;
            }
            labels.push(reader.label()?);
            reader.expect('=', "`=` with a size")?;
            sizes.push(reader.number()?);
            reader.expect('/', "`/` with a stride")?;
            strides.push(reader.number()?);
        }
        let view = Slice::new(offset, sizes, strides).and_then(|slice| Self::new(labels, slice));
        view.map_err(|source| ViewTextError::View { text: text.to_owned(), source })
    }
}

/// Reads a text from the left.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn syntax(&self, wanted: &'static str) -> ViewTextError {
        ViewTextError::Syntax { wanted, at: self.at, text: self.text.to_owned() }
    }

    fn expect(&mut self, char: char, wanted: &'static str) -> Result<(), ViewTextError> {
        if !self.rest().starts_with(char) {
            return Err(self.syntax(wanted));
        }
        self.at += char.len_utf8();
        Ok(())
    }

    /// The number in front, when a `+` follows it; a label may begin with digits too.
    fn offset(&mut self) -> Result<usize, ViewTextError> {
        match self.rest().find(|char: char| !char.is_ascii_digit()) {
            Some(end) if end > 0 && self.rest()[end..].starts_with('+') => {
                let offset = self.number()?;
                self.at += 1;
                Ok(offset)
            }
            _ => Ok(0),
        }
    }

    fn number(&mut self) -> Result<usize, ViewTextError> {
        let digits = self.rest().find(|char: char| !char.is_ascii_digit()).unwrap_or(self.rest().len());
        if digits == 0 {
            return Err(self.syntax("a whole number"));
        }
        let number = self.rest()[..digits].parse();
        let number = number.map_err(|_| ViewTextError::Number { at: self.at, text: self.text.to_owned() })?;
        self.at += digits;
        Ok(number)
    }

    fn label(&mut self) -> Result<String, ViewTextError> {
        if self.rest().starts_with('"') {
            return self.quoted();
        }
        let end = self.rest().find(|char| !is_plain(char)).unwrap_or(self.rest().len());
        if end == 0 {
            return Err(self.syntax("a dimension's name"));
        }
        let label = self.rest()[..end].to_owned();
        self.at += end;
        Ok(label)
    }

    fn quoted(&mut self) -> Result<String, ViewTextError> {
        let mut label = String::new();
        let mut is_escaped = false;
        for (offset, char) in self.rest().char_indices().skip(1) {
            match char {
                _ if is_escaped => {
                    label.push(char);
                    is_escaped = false;
                }
                '\\' => is_escaped = true,
                '"' => {
                    self.at += offset + 1;
                    return Ok(label);
                }
                _ => label.push(char),
            }
        }
        self.at = self.text.len();
        Err(self.syntax("a closing quote"))
    }
}
