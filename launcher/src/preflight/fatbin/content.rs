//! What was found: regions, by the code that they carry.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use torchlift_schema::gpu::GpuCode;

use super::FatbinProblem;

/// The share of regions from which on a library counts as one that has an architecture. Real libraries have a few kernels
/// for one architecture alone, which do not make it one of the library's.
const NEARLY_ALL: f64 = 0.95;

/// The GPU code of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuContent {
    /// What the driver is given: each combination of codes, and how many regions carry just that one. Ordered; regions
    /// without any entry are left out, for they ask nothing of a card.
    pub regions: Vec<RegionGroup>,
    /// How many entries carry each code. More than regions where one has several entries for an architecture.
    pub entries: BTreeMap<GpuCode, u64>,
    /// Entries that are no code for a card, such as intermediate code for linking, by a name for their kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, u64>,
    /// Regions that were made to be linked (`nvcc -rdc`). No driver is given these as long as there are linked ones; where
    /// there are none, these are what is loaded, and they stand in `regions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relocatable: Vec<RegionGroup>,
    /// What could not be read; in files from a linker nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FatbinProblem>,
    /// How many problems there are beyond those that are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlisted_problems: u64,
}

/// Regions that carry the same codes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RegionGroup {
    /// The codes, each once. Empty where all entries of the region are of other kinds.
    pub codes: BTreeSet<GpuCode>,
    /// How many regions.
    pub count: u64,
}

impl GpuContent {
    /// How many regions there are.
    pub fn count(&self) -> u64 {
        self.regions.iter().map(|group| group.count).sum()
    }

    /// In how many regions each code is. PTX counts once an architecture, whichever toolkit made it: a library may
    /// have objects from several.
    pub fn coverage(&self) -> BTreeMap<GpuCode, u64> {
        let mut coverage = BTreeMap::new();
        for group in &self.regions {
            let codes: BTreeSet<GpuCode> = group.codes.iter().map(|code| without_toolkit(*code)).collect();
            for code in codes {
                *coverage.entry(code).or_insert(0) += group.count;
            }
        }
        coverage
    }

    /// In what share of the regions `code` is, 0 to 1. The toolkit of PTX is not looked at.
    pub fn share(&self, code: GpuCode) -> f64 {
        let covered = self.coverage().get(&without_toolkit(code)).copied().unwrap_or(0);
        share(covered, self.count())
    }

    /// The codes that nearly every region (95 %) has: what the library is made for.
    pub fn archs(&self) -> BTreeSet<GpuCode> {
        self.by_share(|share| share >= NEARLY_ALL)
    }

    /// The codes that some regions have, and fewer than [`Self::archs`] asks for.
    pub fn partial(&self) -> BTreeSet<GpuCode> {
        self.by_share(|share| share < NEARLY_ALL)
    }

    fn by_share(&self, is_wanted: impl Fn(f64) -> bool) -> BTreeSet<GpuCode> {
        let count = self.count();
        let coverage = self.coverage().into_iter();
        coverage.filter(|(_, covered)| is_wanted(share(*covered, count))).map(|(code, _)| code).collect()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn without_toolkit(code: GpuCode) -> GpuCode {
    match code {
        GpuCode::Ptx(arch, _) => GpuCode::Ptx(arch, None),
        other => other,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(codes: &[&str], count: u64) -> RegionGroup {
        RegionGroup { codes: codes.iter().map(|code| code.parse().unwrap()).collect(), count }
    }

    #[test]
    fn an_arch_of_a_few_regions_is_partial_and_ptx_of_two_toolkits_is_one() {
        let content = GpuContent {
            regions: vec![
                group(&["sm_70", "compute_70@11.8"], 60),
                group(&["sm_70", "compute_70@12.8"], 38),
                group(&["sm_89"], 2),
            ],
            ..GpuContent::default()
        };
        let texts = |codes: BTreeSet<GpuCode>| codes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(content.archs()), ["sm_70", "compute_70"]);
        assert_eq!(texts(content.partial()), ["sm_89"]);
        assert!((content.share("compute_70@12.8".parse().unwrap()) - 0.98).abs() < 1e-9);
        assert_eq!(content.count(), 100);
    }

    #[test]
    fn of_no_regions_no_code_has_a_share() {
        let content = GpuContent::default();
        assert!(content.archs().is_empty() && content.partial().is_empty());
        assert!(content.share("sm_70".parse().unwrap()) < f64::EPSILON);
    }
}
