//! The GPU code that an ELF file carries: which architectures, in how many of its regions.
//!
//! A *region* is what one translation unit of the library hands to the GPU's runtime: a set of alternatives, of which the
//! driver takes one. A library works on a card where every region has an alternative for it, so that it is regions that
//! are counted. NVIDIA's are read by [`cuda`](self), from `.nv_fatbin`; AMD's bundles from `.hip_fatbin`.
//!
//! Purpose: facts from the headers in the file, where it lies: payloads are never touched, so that a library of a
//! gigabyte costs a few thousand pages. Owns the limits that keep a hostile file from costing memory or time. Must not
//! judge what runs where (`fit` does), and never panics, whatever the bytes.

mod bundle;
mod bytes;
mod content;
mod cuda;
mod isa;
mod problem;
mod section;
mod tally;
mod unpack;

use std::path::Path;

pub use content::{GpuContent, RegionGroup};
pub use isa::toolkit as toolkit_of_ptx;
pub use problem::{FatbinDamage, FatbinProblem};

use super::elf::{self, ElfError};
use super::map;
use section::{Layout, Maker, Place};
use tally::Tally;

/// Reads the GPU code of the file at `path`, which is mapped and not read whole; none when it carries none.
///
/// # Errors
/// When it cannot be read as ELF, as [`super::elf::read`]. Damage in the GPU code itself is no error: it stands in
/// [`GpuContent::problems`], beside what could be read.
pub fn read(path: &Path) -> Result<Option<GpuContent>, ElfError> {
    map::look(path, |bytes| parse(bytes, path))
        .map_err(|source| ElfError::Unreadable { path: path.to_owned(), source })?
}

/// The GPU code in `bytes`, which are those of an ELF file; `path` is only named in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<Option<GpuContent>, ElfError> {
    elf::check_magic(bytes, path)?;
    let mut tally = Tally::default();
    let layout = section::layout(bytes, &mut tally);
    match layout.map_err(|what| ElfError::Damaged { path: path.to_owned(), what })? {
        Layout::Places(places) => places.iter().for_each(|place| walk(&mut tally, bytes, place)),
        // Nothing says where the code is: every loaded byte that is no region's is looked at.
        Layout::Unnamed(ranges) => {
            for range in ranges {
                cuda::search(&mut tally, &Place { range: range.clone(), ..Place::unnamed(Maker::Cuda) }, bytes);
                bundle::search(&mut tally, &Place { range, ..Place::unnamed(Maker::Hip) }, bytes);
            }
        }
    }
    Ok(tally.finish())
}

fn walk(tally: &mut Tally, bytes: &[u8], place: &Place) {
    match place.maker {
        Maker::Cuda | Maker::CudaRelocatable => cuda::walk(tally, place, bytes),
        Maker::Hip => bundle::walk(tally, place, bytes),
    }
}
