//! The part of an extent that one host owns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Extent, Point, Range, Slice, ViewError, check_labels};
use crate::named::named;

/// A part of a larger extent, its *base*: dimensions with names, and where each place lies among the base's ranks.
///
/// Ranks of the view itself are *local*, from 0 in row-major order; what they are in the base is *global*.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Parts")]
#[schemars(with = "Parts")]
pub struct View {
    labels: Vec<String>,
    slice: Slice,
}

named!(View = "ndslice::view::View");

/// How a view is written.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "View")]
struct Parts {
    /// The dimensions' names, each once, the outermost first.
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1)))]
    labels: Vec<String>,
    /// Where its places lie in the base.
    slice: Slice,
}

impl TryFrom<Parts> for View {
    type Error = ViewError;

    fn try_from(parts: Parts) -> Result<Self, Self::Error> {
        Self::new(parts.labels, parts.slice)
    }
}

/// All of it.
impl From<&Extent> for View {
    fn from(extent: &Extent) -> Self {
        Self { labels: extent.labels().to_vec(), slice: Slice::row_major(extent.sizes()) }
    }
}

impl View {
    /// A view of these parts.
    ///
    /// # Errors
    /// When there is not a name for each dimension, or one is empty or there twice.
    pub fn new(labels: Vec<String>, slice: Slice) -> Result<Self, ViewError> {
        check_labels(&labels, slice.sizes().len())?;
        Ok(Self { labels, slice })
    }

    /// The dimensions' names.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Where its places lie.
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// The number of its ranks.
    pub fn num_ranks(&self) -> usize {
        self.slice.num_ranks()
    }

    /// Its own shape: what local ranks are ranks of.
    pub fn extent(&self) -> Extent {
        Extent::new(self.labels.clone(), self.slice.sizes().to_vec()).expect("a view was checked when it was made")
    }

    /// The global rank of a local one.
    ///
    /// The published projection added the local rank to the offset, which is wrong as soon as there are strides.
    pub fn get(&self, local: usize) -> Option<usize> {
        let point = self.extent().point_of_rank(local).ok()?;
        self.slice.location(point.coords())
    }

    /// The local rank of a global one; none where the view does not have it.
    pub fn local(&self, global: usize) -> Option<usize> {
        let coords = self.slice.coordinates(global)?;
        Some(coords.iter().zip(self.slice.sizes()).fold(0, |rank, (coord, size)| rank * size + coord))
    }

    /// Each of its points with its global rank, by local rank.
    pub fn iter(&self) -> impl Iterator<Item = (Point, usize)> + '_ {
        self.extent().points().filter_map(|point| {
            let global = self.slice.location(point.coords())?;
            Some((point, global))
        })
    }

    /// The part of it with these coordinates in one dimension.
    ///
    /// # Errors
    /// When no dimension has this name, or nothing is left.
    pub fn range(&self, dim: &str, range: impl Into<Range>) -> Result<Self, ViewError> {
        let range = range.into();
        let position = self.position(dim)?;
        let size = self.slice.sizes()[position];
        let left = range.len_in(size);
        if left == 0 {
            return Err(ViewError::EmptyRange { dim: dim.to_owned(), range: range.to_string(), size });
        }
        let (mut sizes, mut strides) = (self.slice.sizes().to_vec(), self.slice.strides().to_vec());
        let far = || ViewError::TooFar;
        let skipped = range.begin.checked_mul(strides[position]).ok_or_else(far)?;
        let offset = self.slice.offset().checked_add(skipped).ok_or_else(far)?;
        sizes[position] = left;
        // With one coordinate left a step leads nowhere, and may be of any length.
        if left > 1 {
            strides[position] = strides[position].checked_mul(range.step.get()).ok_or_else(far)?;
        }
        Ok(Self { labels: self.labels.clone(), slice: Slice::new(offset, sizes, strides)? })
    }

    /// One view for each place in the dimensions before this one: they keep it and those behind it. So the first dimension gives
    /// a single view, and the innermost one each row.
    ///
    /// # Errors
    /// When no dimension has this name.
    pub fn group_by(&self, dim: &str) -> Result<impl Iterator<Item = Self> + '_, ViewError> {
        let position = self.position(dim)?;
        let (sizes, strides) = (self.slice.sizes(), self.slice.strides());
        let leading = Self {
            labels: self.labels[..position].to_vec(),
            slice: Slice::new(self.slice.offset(), sizes[..position].to_vec(), strides[..position].to_vec())?,
        };
        Ok(leading.extent().points().filter_map(move |point| {
            let offset = leading.slice.location(point.coords())?;
            let slice = Slice::new(offset, sizes[position..].to_vec(), strides[position..].to_vec()).ok()?;
            Some(Self { labels: self.labels[position..].to_vec(), slice })
        }))
    }

    /// One view for each of its ranks, with all dimensions, each of one coordinate.
    pub fn ranks(&self) -> impl Iterator<Item = Self> + '_ {
        self.iter().filter_map(|(_, global)| {
            let ones = vec![1; self.labels.len()];
            let slice = Slice::new(global, ones, self.slice.strides().to_vec()).ok()?;
            Some(Self { labels: self.labels.clone(), slice })
        })
    }

    fn position(&self, dim: &str) -> Result<usize, ViewError> {
        let position = self.labels.iter().position(|label| label == dim);
        position.ok_or_else(|| ViewError::InvalidDim { dim: dim.to_owned(), labels: self.labels.clone() })
    }
}
