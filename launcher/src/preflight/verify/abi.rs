//! Whether a program and its libtorch mean the same by `std::string`.
//!
//! libstdc++ has two forms of it, and a function with one in its interface has another name in each. Whoever compiles
//! against the wrong one gets pages of undefined names; what they have in common is told instead, once.

use std::path::Path;

use torchlift_schema::{Finding, Place};

use crate::preflight::code;
use crate::preflight::elf::ElfError;
use crate::preflight::symbols::{self, CxxAbi, abi_of};

/// The libraries that tell a libtorch's ABI, the first that does: small ones before large ones.
const TELLING: [&str; 2] = ["libc10.so", "libtorch_cpu.so"];

/// The names that the first of `objects` refers to in the other form than the libtorch in `lib` has, and that nothing offers.
pub(super) fn lost_strings(objects: &[&Path], lib: &Path) -> Result<Vec<String>, ElfError> {
    let lost = symbols::unresolved_strings(objects)?;
    if lost.is_empty() {
        return Ok(lost);
    }
    let abi = abi(lib);
    Ok(lost.into_iter().filter(|name| abi_of(name.as_bytes()).is_some_and(|own| !own.fits(abi))).collect())
}

fn abi(lib: &Path) -> CxxAbi {
    let told = TELLING.iter().filter_map(|file| symbols::read(&lib.join(file)).ok().map(|exports| exports.cxx_abi));
    told.into_iter().find(|abi| *abi != CxxAbi::Unknown).unwrap_or(CxxAbi::Unknown)
}

/// One finding for all of `lost`, if there are any.
pub(super) fn finding(lost: &[String], binary: &Path, lib: &Path, place: &Place) -> Option<Finding> {
    let first = lost.first()?;
    let (own, theirs, flag) = match abi_of(first.as_bytes()) {
        Some(CxxAbi::Cxx11) => ("new", "old", 0),
        _ => ("old", "new", 1),
    };
    let message = format!(
        "`{}` refers to functions with the {own} form of `std::string`, such as `{first}`, and the libtorch in `{}` has the {theirs} one",
        binary.display(),
        lib.display()
    );
    let remedy = format!(
        "compile the program's C++ with `-D_GLIBCXX_USE_CXX11_ABI={flag}` (`LIBTORCH_CXX11_ABI={flag}` where torch-sys does), or use a libtorch of the {own} form"
    );
    Some(Finding::error(code::CXX_ABI_DIFFERS, place.clone(), message).remedy(remedy))
}
