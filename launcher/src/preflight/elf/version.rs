//! Numbers of symbol versions, compared as numbers.

use std::fmt;
use std::str::FromStr;

/// A dotted number such as `2.34` or `3.4.30`: `2.9` is less than `2.17`, and `2.3` less than `2.3.1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Vec<u32>);

/// A text that is no dotted number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no version number")]
pub struct VersionError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || VersionError { text: text.to_owned() };
        // More parts than this has no version of any library.
        if text.split('.').count() > 8 {
            return Err(error());
        }
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        text.split('.')
            .map(|part| if is_number(part) { part.parse().map_err(|_| error()) } else { Err(error()) })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

/// The highest of the `names` that are `prefix` and a number, as that number.
pub fn highest<'a>(names: impl IntoIterator<Item = &'a str>, prefix: &str) -> Option<String> {
    names
        .into_iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse::<Version>().ok())
        .max()
        .map(|version| version.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_and_not_as_text() {
        let names = ["GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE", "GLIBC_2.3.4", "GLIBCXX_3.4.30", "GLIBC_"];
        assert_eq!(highest(names, "GLIBC_").as_deref(), Some("2.17"));
        assert_eq!(highest(names, "GLIBCXX_").as_deref(), Some("3.4.30"));
        assert_eq!(highest(names, "CXXABI_"), None);
        assert!("2.3".parse::<Version>().unwrap() < "2.3.1".parse().unwrap());
        assert!("2..3".parse::<Version>().is_err());
        assert!("+2.3".parse::<Version>().is_err());
    }
}
