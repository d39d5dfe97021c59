//! A text of the operating system in JSON: paths, arguments and variables are bytes without a NUL, and need not be UTF-8.
//!
//! What is UTF-8 is written as it is. A byte that is none is written as NUL and two lower-case hex digits, so `caf\u0000e9`;
//! since no such text holds a NUL, there is one way to read it.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule;
use crate::tree::shown;

/// Bytes of the operating system: a path, an argument, a variable's name or value.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = rule::OS_TEXT))]
pub struct OsText(OsString);

/// A text that stands for no bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OsTextError {
    /// A NUL, which no such text has.
    #[error("`{}` has a NUL", shown(.text))]
    Nul {
        /// The text.
        text: String,
    },
    /// A NUL without two lower-case hex digits of a byte above 7f behind it.
    #[error("`{}` has a NUL without two hex digits of a byte that is no UTF-8", shown(.text))]
    Escape {
        /// The text.
        text: String,
    },
}

impl OsText {
    /// The text with these bytes.
    ///
    /// # Errors
    /// When there is a NUL among them.
    pub fn new(text: impl Into<OsString>) -> Result<Self, OsTextError> {
        let text = text.into();
        match text.as_bytes().contains(&0) {
            true => Err(OsTextError::Nul { text: text.to_string_lossy().into_owned() }),
            false => Ok(Self(text)),
        }
    }

    /// As the operating system takes it.
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// As the operating system takes it.
    pub fn into_os_string(self) -> OsString {
        self.0
    }
}

impl From<OsText> for String {
    fn from(text: OsText) -> Self {
        let mut written = Self::new();
        for chunk in text.0.as_bytes().utf8_chunks() {
            written.push_str(chunk.valid());
            for byte in chunk.invalid() {
                let _ = write!(written, "\0{byte:02x}");
            }
        }
        written
    }
}

impl FromStr for OsText {
    type Err = OsTextError;

    fn from_str(text: &str) -> Result<Self, OsTextError> {
        let escape = || OsTextError::Escape { text: text.to_owned() };
        let mut parts = text.split('\0');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let (digits, rest) = part.split_at_checked(2).ok_or_else(escape)?;
            let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| is_hex && *byte > 0x7f).ok_or_else(escape)?;
            bytes.push(byte);
            bytes.extend_from_slice(rest.as_bytes());
        }
        let text = Self(OsString::from_vec(bytes));
        Ok(text)
    }
}

impl TryFrom<String> for OsText {
    type Error = OsTextError;

    fn try_from(text: String) -> Result<Self, OsTextError> {
        text.parse()
    }
}

impl fmt::Debug for OsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> OsText {
        OsText::new(OsString::from_vec(bytes.to_vec())).unwrap()
    }

    #[test]
    fn what_is_utf8_stands_as_it_is_and_what_is_not_as_hex() {
        for (bytes, json) in [
            (&b"--epochs"[..], r#""--epochs""#),
            ("gewichte/größe".as_bytes(), "\"gewichte/größe\""),
            (b"caf\xe9/\xff\xfe.pt", r#""caf\u0000e9/\u0000ff\u0000fe.pt""#),
            (b"", r#""""#),
        ] {
            assert_eq!(serde_json::to_string(&text(bytes)).unwrap(), json);
            assert_eq!(serde_json::from_str::<OsText>(json).unwrap(), text(bytes));
        }
    }

    #[test]
    fn a_nul_stands_for_nothing_by_itself() {
        for broken in ["\0", "\0e", "\0E9", "\0zz", "a\0\0e9", "\x0041", "\0é"] {
            assert!(broken.parse::<OsText>().is_err(), "{broken:?}");
        }
        assert!(OsText::new("a\0b").is_err());
    }

    proptest! {
        #[test]
        fn every_text_comes_back_to_the_byte(bytes in prop::collection::vec(1_u8.., 0..40)) {
            let text = text(&bytes);
            prop_assert_eq!(String::from(text.clone()).parse::<OsText>().unwrap(), text);
        }
    }
}
