//! Which host gets which part of the whole. Pure.

use torchlift_schema::extent::{ExtentError, ViewError};
use torchlift_schema::{Extent, View};

/// Why an extent and hosts do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// There is nobody to ask.
    #[error("there are no hosts")]
    NoHosts,
    /// Nothing says what is one host's part.
    #[error("invalid extent: {extent}, expected at least 2 dimensions")]
    TooFewDimensions {
        /// The extent.
        extent: Extent,
    },
    /// Parts without hosts, or hosts without parts.
    #[error("{extent} has {parts} parts for {hosts} hosts")]
    HostCount {
        /// The extent.
        extent: Extent,
        /// How many parts the dimensions but the innermost make.
        parts: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// A part without ranks.
    #[error("host number {host} (from 0) gets no ranks")]
    NoRanks {
        /// Its place.
        host: usize,
    },
    /// More ranks than can be counted.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// A part that is none.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl SplitError {
    /// What to do next: a lower-case fragment.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoHosts => "name at least one host",
            Self::TooFewDimensions { .. } => {
                "give a dimension of hosts before that of ranks, such as `{host=2, gpu=4}`"
            }
            Self::HostCount { .. } => "name as many hosts as the dimensions before the innermost have places",
            Self::NoRanks { .. } | Self::Extent(_) | Self::View(_) => "give each host at least one rank",
        }
    }
}

/// One part for each of so many hosts, in order: the innermost dimension is a host's own, as in the published client.
///
/// # Errors
/// When the extent has fewer than two dimensions, or another number of parts than there are hosts.
pub fn by_innermost(extent: &Extent, hosts: usize) -> Result<Vec<View>, SplitError> {
    let [.., _, innermost] = extent.labels() else {
        return Err(SplitError::TooFewDimensions { extent: extent.clone() });
    };
    if hosts == 0 {
        return Err(SplitError::NoHosts);
    }
    if extent.num_ranks() == 0 {
        return Err(SplitError::NoRanks { host: 0 });
    }
    // Counted before they are made: an extent may have more parts than there is memory.
    let parts = extent.num_ranks() / extent.size(innermost).unwrap_or(1);
    if parts != hosts {
        return Err(SplitError::HostCount { extent: extent.clone(), parts, hosts });
    }
    Ok(View::from(extent).group_by(innermost)?.collect())
}

/// Hosts with these numbers of ranks, one after the other in one dimension: for hosts that differ.
///
/// # Errors
/// When there are no hosts, or one has no ranks.
pub fn by_count(ranks: &[usize]) -> Result<(Extent, Vec<View>), SplitError> {
    if ranks.is_empty() {
        return Err(SplitError::NoHosts);
    }
    if let Some(host) = ranks.iter().position(|ranks| *ranks == 0) {
        return Err(SplitError::NoRanks { host });
    }
    let total = ranks.iter().try_fold(0_usize, |total, ranks| total.checked_add(*ranks));
    let extent = Extent::of([("rank", total.ok_or(ExtentError::TooManyRanks)?)])?;
    let whole = View::from(&extent);
    let mut begin = 0;
    let views = ranks.iter().map(|ranks| {
        let range = begin..begin + ranks;
        begin = range.end;
        Ok(whole.range("rank", range)?)
    });
    let views = views.collect::<Result<_, SplitError>>()?;
    Ok((extent, views))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(dims: &[(&str, usize)]) -> Extent {
        Extent::of(dims.iter().map(|(label, size)| (*label, *size))).unwrap()
    }

    #[test]
    fn the_innermost_dimension_is_a_hosts_own() {
        let offsets = |views: Vec<View>| views.iter().map(|view| view.slice().offset()).collect::<Vec<_>>();
        assert_eq!(offsets(by_innermost(&extent(&[("host", 2), ("gpu", 2)]), 2).unwrap()), [0, 2]);
        let zones = by_innermost(&extent(&[("zone", 2), ("host", 2), ("gpu", 4)]), 4).unwrap();
        assert_eq!(zones[2].get(3), Some(11));
        assert_eq!(offsets(zones), [0, 4, 8, 12]);
        assert_eq!(offsets(by_innermost(&extent(&[("host", 1), ("gpu", 4)]), 1).unwrap()), [0]);
    }

    #[test]
    fn an_extent_of_one_dimension_has_no_hosts() {
        let error = by_innermost(&extent(&[("gpu", 4)]), 1).unwrap_err();
        assert_eq!(error.to_string(), "invalid extent: {'gpu': 4}, expected at least 2 dimensions");
    }

    #[test]
    fn too_few_hosts_too_many_and_none_are_refused() {
        let whole = extent(&[("host", 2), ("gpu", 2)]);
        for hosts in [1, 3] {
            let parts = 2;
            assert_eq!(by_innermost(&whole, hosts), Err(SplitError::HostCount { extent: whole.clone(), parts, hosts }));
        }
        assert_eq!(by_innermost(&whole, 0), Err(SplitError::NoHosts));
        assert_eq!(by_innermost(&extent(&[("host", 2), ("gpu", 0)]), 2), Err(SplitError::NoRanks { host: 0 }));
        let huge = extent(&[("host", 1 << 40), ("gpu", 2)]);
        assert!(matches!(by_innermost(&huge, 2), Err(SplitError::HostCount { .. })), "at once, and without memory");
    }

    #[test]
    fn hosts_that_differ_follow_each_other() {
        let (whole, views) = by_count(&[2, 3, 1]).unwrap();
        assert_eq!(whole.num_ranks(), 6);
        assert_eq!(
            views.iter().flat_map(|view| view.iter().map(|(_, rank)| rank)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!((views[1].num_ranks(), views[1].get(2)), (3, Some(4)));
        assert_eq!(by_count(&[]), Err(SplitError::NoHosts));
        assert_eq!(by_count(&[1, 0]), Err(SplitError::NoRanks { host: 1 }));
        assert!(by_count(&[usize::MAX, 1]).is_err());
    }
}
