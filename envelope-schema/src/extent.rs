//! The shape of all ranks, and the part of it that one host owns.
//!
//! Owns the arithmetic of the published system: [`Extent`] (named dimensions), [`Point`] (one rank's coordinates), [`View`]
//! (a part of an extent, strided or not) and the text form of a view. The rules are those of the published `ndslice` crate;
//! where they were wrong (a rank was found by adding to an offset, which holds for views without strides only) or open
//! (coordinates out of bounds, sizes that overflow) they are mended, and the functions say so.
//! Every value of these types is whole: what is read from another machine is checked while it is read. Must not allocate by a
//! size that a message states.

mod error;
mod point;
mod range;
mod slice;
mod text;
mod view;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::rule;

pub use error::{ExtentError, ViewError};
pub use point::Point;
pub use range::Range;
pub use slice::Slice;
pub use text::ViewTextError;
pub use view::View;

/// Named dimensions with their sizes, the outermost first; ranks are counted in row-major order.
///
/// A size may be 0, and an extent without dimensions has one rank, as in the published system. Copies share their contents.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Dims", into = "Dims")]
#[schemars(with = "Dims")]
pub struct Extent(Arc<Whole>);

/// An extent's dimensions and what follows from them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    dims: Dims,
    num_ranks: usize,
}

/// How an extent is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Extent")]
struct Dims {
    /// The dimensions' names, each once, the outermost first.
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1)))]
    labels: Vec<String>,
    /// Their sizes, as many as there are names.
    #[schemars(inner(range(max = rule::MAX_SIZE)))]
    sizes: Vec<usize>,
}

named!(Extent = "ndslice::view::Extent");

impl TryFrom<Dims> for Extent {
    type Error = ExtentError;

    fn try_from(dims: Dims) -> Result<Self, Self::Error> {
        Self::new(dims.labels, dims.sizes)
    }
}

impl From<Extent> for Dims {
    fn from(extent: Extent) -> Self {
        extent.0.dims.clone()
    }
}

impl Extent {
    /// An extent of these dimensions.
    ///
    /// # Errors
    /// When there are not as many names as sizes, a name is empty or there twice, or the ranks are beyond 2^53 - 1.
    pub fn new(labels: Vec<String>, sizes: Vec<usize>) -> Result<Self, ExtentError> {
        check_labels(&labels, sizes.len())?;
        let num_ranks = num_ranks(&sizes)?;
        Ok(Self(Arc::new(Whole { dims: Dims { labels, sizes }, num_ranks })))
    }

    /// An extent of names with their sizes.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of<L: Into<String>>(dims: impl IntoIterator<Item = (L, usize)>) -> Result<Self, ExtentError> {
        let (labels, sizes) = dims.into_iter().map(|(label, size)| (label.into(), size)).unzip();
        Self::new(labels, sizes)
    }

    /// The dimensions' names.
    pub fn labels(&self) -> &[String] {
        &self.0.dims.labels
    }

    /// The dimensions' sizes.
    pub fn sizes(&self) -> &[usize] {
        &self.0.dims.sizes
    }

    /// The number of ranks: the product of the sizes, and 1 without dimensions.
    pub fn num_ranks(&self) -> usize {
        self.0.num_ranks
    }

    /// The size of the dimension with this name.
    pub fn size(&self, label: &str) -> Option<usize> {
        self.sizes().get(self.position(label)?).copied()
    }

    /// Which dimension has this name, from 0 for the outermost.
    pub fn position(&self, label: &str) -> Option<usize> {
        self.labels().iter().position(|own| own == label)
    }

    /// The coordinates of a rank.
    ///
    /// # Errors
    /// When the extent has no such rank.
    pub fn point_of_rank(&self, rank: usize) -> Result<Point, ExtentError> {
        if rank >= self.num_ranks() {
            return Err(ExtentError::RankOutOfRange { rank, num_ranks: self.num_ranks() });
        }
        let mut rest = rank;
        let mut coords: Vec<usize> = self
            .sizes()
            .iter()
            .rev()
            .map(|size| {
                let coord = rest % size;
                rest /= size;
                coord
            })
            .collect();
        coords.reverse();
        Point::new(coords, self.clone())
    }

    /// The point with these coordinates. The published one took any coordinates at first.
    ///
    /// # Errors
    /// When there is not one for each dimension, or one is beyond its dimension's size.
    pub fn point(&self, coords: Vec<usize>) -> Result<Point, ExtentError> {
        Point::new(coords, self.clone())
    }

    /// Every point, in the order of the ranks.
    pub fn points(&self) -> impl Iterator<Item = Point> + use<> {
        let extent = self.clone();
        (0..self.num_ranks()).filter_map(move |rank| extent.point_of_rank(rank).ok())
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As the published one: `{'x': 4, 'y': 5}`.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (label, size)) in self.labels().iter().zip(self.sizes()).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}'{label}': {size}")?;
        }
        f.write_str("}")
    }
}

/// One name for each dimension, none empty, none twice.
fn check_labels(labels: &[String], dims: usize) -> Result<(), ExtentError> {
    if labels.len() != dims {
        return Err(ExtentError::LabelCount { labels: labels.len(), sizes: dims });
    }
    let mut seen = BTreeSet::new();
    for label in labels {
        if label.is_empty() {
            return Err(ExtentError::EmptyLabel);
        }
        if !seen.insert(label) {
            return Err(ExtentError::DuplicateLabel { label: label.clone() });
        }
    }
    Ok(())
}

/// The product of sizes, within what every JSON reader holds exactly; a size of 0 makes it 0 whatever the others are.
fn num_ranks(sizes: &[usize]) -> Result<usize, ExtentError> {
    let countable = |ranks: &usize| *ranks as u64 <= rule::MAX_SIZE;
    if sizes.contains(&0) {
        return if sizes.iter().all(countable) { Ok(0) } else { Err(ExtentError::TooManyRanks) };
    }
    let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    product.filter(countable).ok_or(ExtentError::TooManyRanks)
}
