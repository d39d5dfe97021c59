//! One rank's coordinates in an extent.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Extent, ExtentError};
use crate::named::named;
use crate::rule;

/// A rank's coordinates, one for each dimension of its extent, all within bounds.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Parts")]
#[schemars(with = "Parts")]
pub struct Point {
    coords: Vec<usize>,
    extent: Extent,
}

named!(Point = "ndslice::view::Point");

/// How a point is written.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Point")]
struct Parts {
    /// The coordinates, one for each dimension, from 0.
    #[schemars(inner(range(max = rule::MAX_SIZE)))]
    coords: Vec<usize>,
    /// What it is a point of.
    extent: Extent,
}

impl TryFrom<Parts> for Point {
    type Error = ExtentError;

    fn try_from(parts: Parts) -> Result<Self, Self::Error> {
        Self::new(parts.coords, parts.extent)
    }
}

impl Point {
    pub(super) fn new(coords: Vec<usize>, extent: Extent) -> Result<Self, ExtentError> {
        let dims = extent.sizes().len();
        if coords.len() != dims {
            return Err(ExtentError::CoordCount { coords: coords.len(), dims });
        }
        let named = extent.labels().iter().zip(extent.sizes());
        if let Some((coord, (label, size))) = coords.iter().zip(named).find(|(coord, (_, size))| coord >= size) {
            return Err(ExtentError::CoordOutOfRange { label: label.clone(), coord: *coord, size: *size });
        }
        Ok(Self { coords, extent })
    }

    /// The coordinates, from 0, the outermost dimension first.
    pub fn coords(&self) -> &[usize] {
        &self.coords
    }

    /// What it is a point of.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Its place in row-major order.
    pub fn rank(&self) -> usize {
        self.coords.iter().zip(self.extent.sizes()).fold(0, |rank, (coord, size)| rank * size + coord)
    }

    /// Its coordinate in the dimension with this name.
    pub fn get(&self, label: &str) -> Option<usize> {
        self.coords.get(self.extent.position(label)?).copied()
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As the published one: `x=1/4,y=2/5`.
impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.extent.labels().iter().zip(self.extent.sizes());
        for (index, (coord, (label, size))) in self.coords.iter().zip(named).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{label}={coord}/{size}")?;
        }
        Ok(())
    }
}
