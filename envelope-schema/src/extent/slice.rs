//! Where the places of a view lie in its base: an offset, and a stride for each dimension.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ViewError;
use super::num_ranks;
use crate::rule;

/// An offset with sizes and strides. A place with coordinates `c` lies at `offset + Σ cᵢ · strideᵢ`, and no two at one.
///
/// The published rule asked that strides divide each other, which its own `range` breaks ({x=4, y=5} with every second y has the
/// strides 5 and 2). What matters is that places never meet: each stride, from the smallest up and past dimensions of one, goes
/// beyond the last place of all smaller ones. Every slice of the published rule holds to this one too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Parts")]
#[schemars(with = "Parts")]
pub struct Slice {
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

/// How a slice is written.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Slice")]
struct Parts {
    /// The rank of the first place.
    #[schemars(range(max = rule::MAX_SIZE))]
    offset: usize,
    /// The dimensions' sizes, the outermost first.
    #[schemars(inner(range(max = rule::MAX_SIZE)))]
    sizes: Vec<usize>,
    /// How far it is from one coordinate to the next, one for each size.
    #[schemars(inner(range(max = rule::MAX_SIZE)))]
    strides: Vec<usize>,
}

impl TryFrom<Parts> for Slice {
    type Error = ViewError;

    fn try_from(parts: Parts) -> Result<Self, Self::Error> {
        Self::new(parts.offset, parts.sizes, parts.strides)
    }
}

impl Slice {
    /// A slice of these parts.
    ///
    /// # Errors
    /// When there is not a stride for each size, two places meet, or a rank is beyond 2^53 - 1.
    pub fn new(offset: usize, sizes: Vec<usize>, strides: Vec<usize>) -> Result<Self, ViewError> {
        if sizes.len() != strides.len() {
            return Err(ViewError::StrideCount { strides: strides.len(), sizes: sizes.len() });
        }
        num_ranks(&sizes)?;
        let is_far = |place: usize| place as u64 > rule::MAX_SIZE;
        if is_far(offset) || strides.iter().copied().any(is_far) {
            return Err(ViewError::TooFar);
        }
        if sizes.contains(&0) {
            return Ok(Self { offset, sizes, strides });
        }
        let mut reach = 0_usize;
        for dim in by_stride(&sizes, &strides) {
            if strides[dim] <= reach {
                return Err(ViewError::Overlap { sizes, strides });
            }
            let width = (sizes[dim] - 1).checked_mul(strides[dim]);
            reach = width.and_then(|width| reach.checked_add(width)).ok_or(ViewError::TooFar)?;
        }
        match offset.checked_add(reach) {
            Some(last) if !is_far(last) => Ok(Self { offset, sizes, strides }),
            _ => Err(ViewError::TooFar),
        }
    }

    /// All of an extent of these sizes, in row-major order.
    pub(super) fn row_major(sizes: &[usize]) -> Self {
        let mut stride = 1_usize;
        let mut strides: Vec<usize> = sizes
            .iter()
            .rev()
            .map(|size| {
                let own = stride;
                // Only an extent with a size of 0 comes near an overflow, and that has no place.
                stride = stride.saturating_mul((*size).max(1)).min(rule::MAX_SIZE as usize);
                own
            })
            .collect();
        strides.reverse();
        Self { offset: 0, sizes: sizes.to_vec(), strides }
    }

    /// The rank of the first place.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The dimensions' sizes, the outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// How far it is from one coordinate to the next in each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The number of places.
    pub fn num_ranks(&self) -> usize {
        num_ranks(&self.sizes).expect("a slice was checked when it was made")
    }

    /// Where the place with these coordinates lies; none where they are not its coordinates.
    pub fn location(&self, coords: &[usize]) -> Option<usize> {
        let is_inside =
            coords.len() == self.sizes.len() && coords.iter().zip(&self.sizes).all(|(coord, size)| coord < size);
        is_inside.then(|| {
            self.offset + coords.iter().zip(&self.strides).map(|(coord, stride)| coord * stride).sum::<usize>()
        })
    }

    /// The coordinates of the place that lies here; none where none does.
    pub fn coordinates(&self, location: usize) -> Option<Vec<usize>> {
        if self.sizes.contains(&0) {
            return None;
        }
        let mut rest = location.checked_sub(self.offset)?;
        let mut coords = vec![0; self.sizes.len()];
        for dim in by_stride(&self.sizes, &self.strides).into_iter().rev() {
            let coord = rest / self.strides[dim];
            if coord >= self.sizes[dim] {
                return None;
            }
            coords[dim] = coord;
            rest -= coord * self.strides[dim];
        }
        (rest == 0).then_some(coords)
    }

    /// Whether its places follow each other without a gap, in order.
    pub fn is_contiguous(&self) -> bool {
        let whole = Self::row_major(&self.sizes);
        let dims = self.sizes.iter().zip(self.strides.iter().zip(&whole.strides));
        self.sizes.contains(&0) || dims.into_iter().all(|(size, (own, wanted))| *size == 1 || own == wanted)
    }
}

/// The dimensions with more than one coordinate, by stride from the smallest up.
fn by_stride(sizes: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut dims: Vec<usize> = (0..sizes.len()).filter(|dim| sizes[*dim] != 1).collect();
    dims.sort_by_key(|dim| strides[*dim]);
    dims
}
