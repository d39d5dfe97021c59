//! Counts what is found, within limits.
//!
//! Equal regions are counted and not kept, so that memory depends on how many *different* ones there are, and of
//! those too there is a most.

use std::collections::{BTreeMap, BTreeSet};

use torchlift_schema::gpu::GpuCode;

use super::section::{Maker, Place};
use super::{FatbinDamage, FatbinProblem, GpuContent, RegionGroup};

/// Different codes in one file; the CUDA wheels have 11, and there are fewer than 100 architectures in all.
const MAX_CODES: usize = 512;
/// Different combinations of codes; the CUDA wheels have 8.
const MAX_GROUPS: usize = 1024;
/// Kinds of other entries that are told apart.
const MAX_OTHERS: usize = 32;
/// Problems that are listed; the others are counted.
const MAX_PROBLEMS: usize = 32;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    linked: Part,
    relocatable: Part,
    problems: Vec<FatbinProblem>,
    unlisted: u64,
    is_full: bool,
    /// Compressed bundles that were unpacked.
    pub(super) unpacked: usize,
}

#[derive(Debug, Default)]
struct Part {
    groups: BTreeMap<BTreeSet<GpuCode>, u64>,
    entries: BTreeMap<GpuCode, u64>,
    others: BTreeMap<String, u64>,
}

/// One region while it is read.
#[derive(Debug, Default)]
pub(super) struct Region {
    codes: BTreeSet<GpuCode>,
    has_entries: bool,
}

impl Tally {
    /// Whether a limit was met, so that nothing more is to be read.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes that something at byte `at` of the file, in `place`, could not be read.
    pub(super) fn problem(&mut self, place: &Place, at: usize, what: FatbinDamage) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(FatbinProblem { section: place.name.to_owned(), offset: at as u64, what });
        } else {
            self.unlisted += 1;
        }
    }

    /// Notes that a limit was met at byte `at`, and that nothing is read from there on.
    pub(super) fn stop(&mut self, place: &Place, at: usize, what: FatbinDamage) {
        if !self.is_full {
            self.is_full = true;
            // What ends the reading is always listed.
            if self.problems.len() == MAX_PROBLEMS {
                self.problems.pop();
                self.unlisted += 1;
            }
            self.problem(place, at, what);
        }
    }

    /// Whether anything could not be read.
    pub(super) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    fn part(&mut self, maker: Maker) -> &mut Part {
        match maker {
            Maker::CudaRelocatable => &mut self.relocatable,
            Maker::Cuda | Maker::Hip => &mut self.linked,
        }
    }

    /// Counts an entry of `region` that begins at byte `at`.
    pub(super) fn code(&mut self, place: &Place, at: usize, region: &mut Region, code: GpuCode) {
        region.has_entries = true;
        let entries = &mut self.part(place.maker).entries;
        if entries.len() >= MAX_CODES && !entries.contains_key(&code) {
            return self.stop(place, at, FatbinDamage::TooVaried);
        }
        *entries.entry(code).or_insert(0) += 1;
        region.codes.insert(code);
    }

    /// Counts an entry that is no code for a card.
    pub(super) fn other(&mut self, place: &Place, region: &mut Region, name: &str) {
        region.has_entries = true;
        let others = &mut self.part(place.maker).others;
        if let Some(count) = others.get_mut(name) {
            *count += 1;
        } else if others.len() < MAX_OTHERS {
            others.insert(name.to_owned(), 1);
        } else {
            *others.entry("other".to_owned()).or_insert(0) += 1;
        }
    }

    /// Notes an entry that is there and could not be read, so that its region is no empty one.
    pub(super) fn unreadable(&mut self, place: &Place, at: usize, region: &mut Region, what: FatbinDamage) {
        region.has_entries = true;
        self.problem(place, at, what);
    }

    /// Counts a region that begins at byte `at` and was read to its end.
    pub(super) fn region(&mut self, place: &Place, at: usize, region: Region) {
        if !region.has_entries {
            return;
        }
        let groups = &mut self.part(place.maker).groups;
        if let Some(count) = groups.get_mut(&region.codes) {
            *count += 1;
        } else if groups.len() < MAX_GROUPS {
            groups.insert(region.codes, 1);
        } else {
            self.stop(place, at, FatbinDamage::TooVaried);
        }
    }

    /// What was found; none when that is nothing at all.
    pub(super) fn finish(self) -> Option<GpuContent> {
        // `nvcc -rdc` with nothing but PTX leaves no linked code: the driver links what the objects carry.
        let (loaded, rest) = match self.linked.groups.is_empty() {
            true => (self.relocatable, Part::default()),
            false => (self.linked, self.relocatable),
        };
        let is_nothing = loaded.groups.is_empty() && self.problems.is_empty();
        (!is_nothing).then(|| GpuContent {
            regions: list(loaded.groups),
            entries: loaded.entries,
            others: loaded.others,
            relocatable: list(rest.groups),
            problems: self.problems,
            unlisted_problems: self.unlisted,
        })
    }
}

fn list(groups: BTreeMap<BTreeSet<GpuCode>, u64>) -> Vec<RegionGroup> {
    groups.into_iter().map(|(codes, count)| RegionGroup { codes, count }).collect()
}
