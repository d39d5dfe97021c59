//! Why there is no such extent, point or view.

/// Why there is no such extent or point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// Names and sizes are not as many.
    #[error("{labels} names for {sizes} dimensions")]
    LabelCount {
        /// How many names.
        labels: usize,
        /// How many sizes.
        sizes: usize,
    },
    /// A dimension has no name.
    #[error("a dimension has an empty name")]
    EmptyLabel,
    /// Two dimensions have one name.
    #[error("two dimensions are called `{}`", .label.escape_debug())]
    DuplicateLabel {
        /// The name.
        label: String,
    },
    /// More ranks than every JSON reader can count.
    #[error("more than 2^53 - 1 ranks")]
    TooManyRanks,
    /// No such rank.
    #[error("there is no rank {rank} among {num_ranks}")]
    RankOutOfRange {
        /// The rank.
        rank: usize,
        /// How many there are.
        num_ranks: usize,
    },
    /// Not one coordinate for each dimension.
    #[error("{coords} coordinates for {dims} dimensions")]
    CoordCount {
        /// How many coordinates.
        coords: usize,
        /// How many dimensions.
        dims: usize,
    },
    /// A coordinate beyond its dimension.
    #[error("`{}` has no coordinate {coord}: its size is {size}", .label.escape_debug())]
    CoordOutOfRange {
        /// The dimension.
        label: String,
        /// The coordinate, from 0.
        coord: usize,
        /// The dimension's size.
        size: usize,
    },
}

/// Why there is no such view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Its names and sizes are those of no extent.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// Sizes and strides are not as many.
    #[error("{strides} strides for {sizes} dimensions")]
    StrideCount {
        /// How many strides.
        strides: usize,
        /// How many sizes.
        sizes: usize,
    },
    /// Two places of the view are one rank of its base.
    #[error("the strides {strides:?} of the sizes {sizes:?} lead to one rank twice")]
    Overlap {
        /// Its sizes.
        sizes: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
    },
    /// Its last rank is beyond what every JSON reader can count.
    #[error("its last rank is beyond 2^53 - 1")]
    TooFar,
    /// No dimension has this name.
    #[error("there is no dimension `{}`; there are {}", .dim.escape_debug(), listed(.labels))]
    InvalidDim {
        /// The name.
        dim: String,
        /// Those that there are.
        labels: Vec<String>,
    },
    /// A range that holds nothing of its dimension.
    #[error("the range {range} of `{}` is empty: its size is {size}", .dim.escape_debug())]
    EmptyRange {
        /// The dimension.
        dim: String,
        /// The range as it was given.
        range: String,
        /// The dimension's size.
        size: usize,
    },
}

fn listed(labels: &[String]) -> String {
    match labels {
        [] => "none".to_owned(),
        _ => labels.iter().map(|label| format!("`{}`", label.escape_debug())).collect::<Vec<_>>().join(", "),
    }
}
