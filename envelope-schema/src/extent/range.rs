//! Which coordinates of one dimension are meant.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops;

/// Coordinates of one dimension: from `begin` up to and without `end`, every `step`th.
///
/// An end beyond the dimension, or none, means the dimension's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The first, from 0.
    pub begin: usize,
    /// The one behind the last.
    pub end: Option<usize>,
    /// How far it is from one to the next.
    pub step: NonZeroUsize,
}

impl Range {
    /// The same range, with every `step`th only.
    #[must_use]
    pub fn step(self, step: NonZeroUsize) -> Self {
        Self { step, ..self }
    }

    /// How many coordinates it has of a dimension of this size.
    pub fn len_in(&self, size: usize) -> usize {
        let end = self.end.map_or(size, |end| end.min(size));
        end.saturating_sub(self.begin).div_ceil(self.step.get())
    }

    const fn plain(begin: usize, end: Option<usize>) -> Self {
        Self { begin, end, step: NonZeroUsize::MIN }
    }
}

/// One coordinate.
impl From<usize> for Range {
    fn from(one: usize) -> Self {
        Self::plain(one, Some(one.saturating_add(1)))
    }
}

impl From<ops::Range<usize>> for Range {
    fn from(range: ops::Range<usize>) -> Self {
        Self::plain(range.start, Some(range.end))
    }
}

impl From<ops::RangeFrom<usize>> for Range {
    fn from(range: ops::RangeFrom<usize>) -> Self {
        Self::plain(range.start, None)
    }
}

impl From<ops::RangeTo<usize>> for Range {
    fn from(range: ops::RangeTo<usize>) -> Self {
        Self::plain(0, Some(range.end))
    }
}

impl From<ops::RangeFull> for Range {
    fn from(_: ops::RangeFull) -> Self {
        Self::plain(0, None)
    }
}

/// `2..5`, `2..`, and with a step `0..4 step 3`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.begin)?;
        if let Some(end) = self.end {
            write!(f, "{end}")?;
        }
        if self.step > NonZeroUsize::MIN {
            write!(f, " step {}", self.step)?;
        }
        Ok(())
    }
}
