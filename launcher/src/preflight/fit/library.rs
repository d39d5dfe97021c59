//! What share of a library's regions a card can run, and how.

use torchlift_schema::gpu::{GpuCode, ToolkitVersion};

use super::device::{Device, Isa};
use super::driver::{Answer, Driver, Need};
use super::role::Role;
use super::{cuda, gfx};
use crate::preflight::fatbin::{GpuContent, RegionGroup};

/// The share of a library's regions that have to be served. Not all: real libraries have a few kernels for one
/// architecture alone, which nobody calls elsewhere.
pub const ENOUGH: f64 = 0.95;

/// A library with its GPU code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryCode<'a> {
    /// Its name, as the loader is asked for it.
    pub name: &'a str,
    /// How much depends on it.
    pub role: Role,
    /// Its code.
    pub content: &'a GpuContent,
    /// The toolkit that made its machine code, and its PTX where that does not state its own; none where it is not known.
    pub toolkit: Option<ToolkitVersion>,
}

/// How a card runs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It does not.
    None,
    /// The driver compiles it first, on the host.
    Ptx,
    /// As it is.
    Native,
}

/// How many of a library's regions a card runs, and how. A region counts once, by the best of its codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibraryFit {
    /// Regions that have code at all.
    pub regions: u64,
    /// Those that run as they are.
    pub native: u64,
    /// Those that the driver compiles.
    pub ptx: u64,
    /// Those whose PTX is for this card and from a toolkit that the driver does not know.
    pub ptx_too_new: u64,
    /// The oldest toolkit whose driver would compile the last of those.
    pub needs: Option<ToolkitVersion>,
    /// The newest toolkit whose PTX a compatibility package compiles, and not the driver itself.
    pub by_compat: Option<ToolkitVersion>,
}

impl LibraryFit {
    /// Share that runs as it is, 0 to 1; 1 where there is no code, which then nothing asks for.
    pub fn native_share(&self) -> f64 {
        share(self.native, self.regions)
    }

    /// Share that the driver compiles, 0 to 1.
    pub fn ptx_share(&self) -> f64 {
        if self.regions == 0 { 0.0 } else { share(self.ptx, self.regions) }
    }

    /// Whether enough runs, and how: native when enough is, PTX when enough is with what the driver compiles.
    pub fn level(&self) -> Level {
        if self.native_share() >= ENOUGH {
            Level::Native
        } else if share(self.native + self.ptx, self.regions) >= ENOUGH {
            Level::Ptx
        } else {
            Level::None
        }
    }

    /// Whether nothing but a newer driver is missing.
    pub fn is_for_a_newer_driver(&self) -> bool {
        self.level() == Level::None && share(self.native + self.ptx + self.ptx_too_new, self.regions) >= ENOUGH
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of regions are far below 2^53")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Counts the regions of `library` that `device` runs. Without a driver's facts its age counts for nothing.
pub fn fit(library: &LibraryCode<'_>, device: &Device, driver: Option<&Driver>) -> LibraryFit {
    let mut fit = LibraryFit::default();
    for RegionGroup { codes, count } in &library.content.regions {
        if codes.is_empty() {
            continue;
        }
        fit.regions += count;
        let is_native = codes.iter().any(|code| is_native(*code, device.isa));
        if is_native {
            fit.native += count;
            continue;
        }
        let toolkits = codes.iter().filter_map(|code| compilable(*code, device.isa));
        // The oldest alternative is the one that most drivers compile; one that states none goes first.
        let Some(toolkit) = toolkits.map(|stated| stated.or(library.toolkit)).min() else { continue };
        match (toolkit, driver) {
            (Some(toolkit), Some(driver)) => match driver.serves(Need::Ptx(toolkit)) {
                Answer::TooOld { .. } => {
                    fit.ptx_too_new += count;
                    fit.needs = fit.needs.max(Some(toolkit));
                }
                Answer::ServesByCompat(_) => {
                    fit.ptx += count;
                    fit.by_compat = fit.by_compat.max(Some(toolkit));
                }
                Answer::Serves | Answer::Unknown => fit.ptx += count,
            },
            _ => fit.ptx += count,
        }
    }
    fit
}

fn is_native(code: GpuCode, isa: Isa) -> bool {
    match (code, isa) {
        (GpuCode::Sass(arch), Isa::Cuda(capability)) => cuda::is_native(arch, capability),
        (GpuCode::Gfx(target), Isa::Gfx(card)) => gfx::runs(target, card),
        _ => false,
    }
}

/// Whether a driver could compile this for the card, and of which toolkit it says to be.
#[expect(clippy::option_option, reason = "the outer one is whether, the inner one is what is known")]
fn compilable(code: GpuCode, isa: Isa) -> Option<Option<ToolkitVersion>> {
    match (code, isa) {
        (GpuCode::Ptx(arch, toolkit), Isa::Cuda(capability)) if cuda::is_compilable(arch, capability) => Some(toolkit),
        _ => None,
    }
}
