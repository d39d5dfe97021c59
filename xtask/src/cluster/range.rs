//! Host ranges: `node-[01-04,9]` is five names.
//!
//! Numbers keep the width of a first number with leading zeros: `[08-11]` is `08`, `09`, `10`, `11`.

use std::fmt;
use std::str::FromStr;

/// The most hosts of one cluster; also the most names of one pattern.
pub const MOST_HOSTS: usize = 65_536;

/// A name with any number of bracketed sets of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Set(Vec<Span>),
}

/// Numbers from `first` to `last`, written with at least `width` digits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    first: u64,
    last: u64,
    width: usize,
}

/// Why a text is no host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A `[` without its `]`.
    #[error("a `[` is never closed")]
    Unclosed,
    /// A `]` without its `[`.
    #[error("a `]` closes nothing")]
    Unopened,
    /// A `[` inside of brackets.
    #[error("brackets stand inside of brackets")]
    Nested,
    /// `[]`, or nothing between two commas.
    #[error("`{element}` has an empty element")]
    Empty {
        /// The brackets with what is in them.
        element: String,
    },
    /// Something else than digits.
    #[error("`{element}` is neither a number nor two with a `-` between them")]
    NoNumber {
        /// The element.
        element: String,
    },
    /// More digits than any host has.
    #[error("`{element}` has more than 9 digits")]
    TooLong {
        /// The element.
        element: String,
    },
    /// The first number is the larger one.
    #[error("`{element}` runs backwards")]
    Reversed {
        /// The element.
        element: String,
    },
    /// Leading zeros that do not fit together.
    #[error("`{element}` has numbers of different widths with leading zeros")]
    Padding {
        /// The element.
        element: String,
    },
    /// More names than [`MOST_HOSTS`].
    #[error("it is more than {MOST_HOSTS} hosts")]
    TooMany,
}

impl HostPattern {
    /// How many names it is; at most [`MOST_HOSTS`].
    pub fn count(&self) -> usize {
        self.parts.iter().map(Part::count).product()
    }

    /// The names, the last brackets counting fastest.
    pub fn expand(&self) -> Vec<String> {
        let mut names = vec![String::new()];
        for part in &self.parts {
            let endings = part.words();
            names = names.iter().flat_map(|name| endings.iter().map(move |ending| format!("{name}{ending}"))).collect();
        }
        names
    }
}

impl Part {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            // Parsing keeps the whole below the cap, so this cannot overflow.
            Self::Set(spans) => spans.iter().map(|span| (span.last - span.first + 1) as usize).sum(),
        }
    }

    fn words(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Set(spans) => spans
                .iter()
                .flat_map(|span| (span.first..=span.last).map(|n| format!("{n:0width$}", width = span.width)))
                .collect(),
        }
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        let mut rest = text;
        let mut total: u64 = 1;
        while !rest.is_empty() {
            let open = rest.find(['[', ']']).unwrap_or(rest.len());
            let (literal, behind) = rest.split_at(open);
            if !literal.is_empty() {
                parts.push(Part::Text(literal.to_owned()));
            }
            rest = behind;
            if rest.starts_with(']') {
                return Err(PatternError::Unopened);
            }
            let Some(inner) = rest.strip_prefix('[') else { break };
            let close = inner.find(['[', ']']).ok_or(PatternError::Unclosed)?;
            if inner[close..].starts_with('[') {
                return Err(PatternError::Nested);
            }
            let set = set(&inner[..close])?;
            let count: u64 = set.iter().map(|span| span.last - span.first + 1).sum();
            total = total.saturating_mul(count);
            if total > MOST_HOSTS as u64 {
                return Err(PatternError::TooMany);
            }
            parts.push(Part::Set(set));
            rest = &inner[close + 1..];
        }
        Ok(Self { parts })
    }
}

fn set(text: &str) -> Result<Vec<Span>, PatternError> {
    text.split(',').map(|element| span(element.trim(), text)).collect()
}

fn span(element: &str, all: &str) -> Result<Span, PatternError> {
    if element.is_empty() {
        return Err(PatternError::Empty { element: format!("[{all}]") });
    }
    let owned = || element.to_owned();
    let number = |digits: &str| {
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(PatternError::NoNumber { element: owned() });
        }
        if digits.len() > 9 {
            return Err(PatternError::TooLong { element: owned() });
        }
        digits.parse::<u64>().map_err(|_| PatternError::NoNumber { element: owned() })
    };
    let (from, to) = element.split_once('-').unwrap_or((element, element));
    let (first, last) = (number(from)?, number(to)?);
    if last < first {
        return Err(PatternError::Reversed { element: owned() });
    }
    let is_padded = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    // `[08-11]` and `[01-100]` are plain; in `[1-04]` nobody can say which width is meant.
    let is_plain = if is_padded(from) { to.len() >= from.len() } else { true };
    if !is_plain || (is_padded(to) && to.len() != from.len()) {
        return Err(PatternError::Padding { element: owned() });
    }
    Ok(Span { first, last, width: if is_padded(from) { from.len() } else { 1 } })
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Set(spans) => {
                    f.write_str("[")?;
                    for (index, Span { first, last, width }) in spans.iter().enumerate() {
                        let comma = if index == 0 { "" } else { "," };
                        if first == last {
                            write!(f, "{comma}{first:0width$}")?;
                        } else {
                            write!(f, "{comma}{first:0width$}-{last:0width$}")?;
                        }
                    }
                    f.write_str("]")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        text.parse::<HostPattern>().unwrap().expand()
    }

    #[test]
    fn zeros_in_front_are_kept() {
        assert_eq!(names("node-[08-11]"), ["node-08", "node-09", "node-10", "node-11"]);
        assert_eq!(names("n[001]"), ["n001"]);
        assert_eq!(names("n[0-2]"), ["n0", "n1", "n2"]);
        assert_eq!(names("n[99-100]"), ["n99", "n100"]);
        assert_eq!(names("n[08-10,100]"), ["n08", "n09", "n10", "n100"]);
    }

    #[test]
    fn lists_and_several_brackets_multiply() {
        assert_eq!(names("r[1-2]n[1,3]"), ["r1n1", "r1n3", "r2n1", "r2n3"]);
        assert_eq!(names("plain"), ["plain"]);
    }

    #[test]
    fn each_bad_range_says_what_is_wrong_with_it() {
        let fault = |text: &str| text.parse::<HostPattern>().unwrap_err();
        let element = |text: &str| text.to_owned();
        assert_eq!(fault("n[1"), PatternError::Unclosed);
        assert_eq!(fault("n1]"), PatternError::Unopened);
        assert_eq!(fault("n[[1]]"), PatternError::Nested);
        assert_eq!(fault("n[]"), PatternError::Empty { element: element("[]") });
        assert_eq!(fault("n[1,,2]"), PatternError::Empty { element: element("[1,,2]") });
        assert_eq!(fault("n[a-b]"), PatternError::NoNumber { element: element("a-b") });
        assert_eq!(fault("n[1-]"), PatternError::NoNumber { element: element("1-") });
        assert_eq!(fault("n[-1]"), PatternError::NoNumber { element: element("-1") });
        assert_eq!(fault("n[1-2-3]"), PatternError::NoNumber { element: element("1-2-3") });
        assert_eq!(fault("n[4-1]"), PatternError::Reversed { element: element("4-1") });
        assert_eq!(fault("n[1-04]"), PatternError::Padding { element: element("1-04") });
        assert_eq!(fault("n[01-4]"), PatternError::Padding { element: element("01-4") });
        assert_eq!(fault("n[0-99999]"), PatternError::TooMany);
        assert_eq!(fault("n[0-999][0-999]"), PatternError::TooMany);
        assert_eq!(
            fault("n[99999999999999999999]"),
            PatternError::TooLong { element: element("99999999999999999999") }
        );
    }

    #[test]
    fn the_largest_pattern_is_the_cap() {
        assert_eq!("n[0-65535]".parse::<HostPattern>().unwrap().count(), MOST_HOSTS);
    }

    proptest! {
        #[test]
        fn a_pattern_written_and_read_is_the_same_names(
            parts in prop::collection::vec(
                ("[a-z-]{1,4}", prop::collection::vec((0u64..300, 0u64..9, 1usize..5), 1..4)), 1..3),
        ) {
            let text: String = parts.iter().map(|(literal, spans)| {
                let set: Vec<String> = spans.iter().map(|(first, more, width)| {
                    let (first, last) = (format!("{first:0width$}"), format!("{:0width$}", first + more));
                    if more == &0 { first } else { format!("{first}-{last}") }
                }).collect();
                format!("{literal}[{}]", set.join(","))
            }).collect();
            let pattern: HostPattern = text.parse().unwrap();
            let again: HostPattern = pattern.to_string().parse().unwrap();
            prop_assert_eq!(pattern.expand(), again.expand());
            prop_assert_eq!(pattern.expand().len(), pattern.count());
        }

        #[test]
        fn no_text_makes_the_pattern_parser_panic(text in "[a-z0-9\\[\\],-]{0,20}") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert!(pattern.count() <= MOST_HOSTS);
            }
        }
    }
}
