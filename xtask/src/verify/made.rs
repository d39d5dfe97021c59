//! What a program was made with, held against what its toolchain is told to keep to: a floor of glibc, and a C++ library.
//!
//! The file is asked, not the flags: a linker may ignore both.

use std::collections::BTreeMap;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use memchr::memmem;
use torchlift::preflight::elf::Version;
use torchlift::preflight::verify::Inspection;
use torchlift::preflight::{code, symbols};
use torchlift_schema::{Finding, Place};

use crate::plan::Build;

/// Symbols that are named of one version; more are counted.
const MOST_NAMED: usize = 8;
/// Versions that one finding has in words.
const MOST_VERSIONS: usize = 12;
/// Bytes of a file that is searched for symbols; larger ones are libraries of no crate.
const MOST_BYTES: u64 = 512 << 20;
/// Names of LLVM's C++ library in symbols and type names: `std::__1::`.
const LIBCXX: &[u8] = b"NSt3__1";

/// What a build was told to keep to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The glibc that the program may need at most.
    pub glibc: Option<String>,
    /// Whether Zig linked it.
    pub is_zig: bool,
    /// Where its crates lie.
    pub dir: Utf8PathBuf,
}

impl Made {
    /// By this build.
    pub fn by(build: &Build) -> Self {
        Self { glibc: build.glibc.clone(), is_zig: build.is_zig(), dir: build.dir.clone() }
    }

    /// Whether the program needs no newer glibc; none where there is no floor.
    pub(super) fn floor(
        &self,
        file: &Utf8Path,
        inspection: &Inspection,
        place: &Place,
    ) -> Option<(String, Vec<Finding>)> {
        let floor = self.glibc.as_ref()?;
        let limit: Version = floor.parse().ok()?;
        let needed = inspection.facts.glibc();
        let how = match &needed {
            Some(needed) => format!("needs glibc {needed}, may need {floor}"),
            None => format!("needs no version of glibc, may need {floor}"),
        };
        if needed.and_then(|needed| needed.parse::<Version>().ok()).is_none_or(|needed| needed <= limit) {
            return Some((how, Vec::new()));
        }
        let above = |version: &str| {
            version.strip_prefix("GLIBC_").and_then(|number| number.parse::<Version>().ok()).filter(|own| *own > limit)
        };
        let by_version = symbols::by_version(file.as_std_path()).unwrap_or_default();
        let mut above: Vec<(Version, &Vec<String>)> =
            by_version.iter().filter_map(|(version, symbols)| Some((above(version)?, symbols))).collect();
        above.sort_by(|(one, _), (other, _)| other.cmp(one));
        let all: Vec<&String> = above.iter().flat_map(|(_, symbols)| symbols.iter()).collect();
        let crates = crates_of(&all, &self.dir);
        let versions = above.iter().take(MOST_VERSIONS).map(|(version, symbols)| {
            let named: Vec<String> = symbols
                .iter()
                .take(MOST_NAMED)
                .map(|symbol| match crates.get(symbol.as_str()) {
                    Some(by) => format!("`{symbol}` by {by}"),
                    None => format!("`{symbol}`"),
                })
                .collect();
            let more = symbols.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            if named.is_empty() {
                format!("`GLIBC_{version}`")
            } else {
                format!("`GLIBC_{version}` for {}{more}", named.join(", "))
            }
        });
        let message = format!(
            "`{}` may need glibc {floor} at most, and needs {}",
            place.file.as_deref().unwrap_or(file.as_str()),
            versions.collect::<Vec<_>>().join("; ")
        );
        let remedy = if self.is_zig {
            "leave out what uses them, or raise `glibc`: what is named there, Zig has from no older version"
        } else {
            "build on, or in a container of, a system with that glibc, name its `sysroot`, or let `cargo-zigbuild` link what is no C++"
        };
        Some((how, vec![Finding::error(code::GLIBC_ABOVE_FLOOR, place.clone(), message).remedy(remedy)]))
    }

    /// Whether it uses the C++ library of its libtorch; none where it has no libtorch, and was not linked by Zig.
    pub(super) fn cxx(
        &self,
        file: &Utf8Path,
        inspection: &Inspection,
        has_libtorch: bool,
        place: &Place,
    ) -> Option<(&'static str, Vec<Finding>)> {
        if !has_libtorch && !self.is_zig {
            return None;
        }
        let needed = inspection.facts.needed.iter().find(|name| name.starts_with("libc++"));
        let is_inside = || self.is_zig && fs_err::read(file).is_ok_and(|bytes| memmem::find(&bytes, LIBCXX).is_some());
        let what = match needed {
            Some(name) => format!("needs `{name}`"),
            None if is_inside() => "has parts of libc++ (`std::__1`) in it".to_owned(),
            None => return Some(("no libc++", Vec::new())),
        };
        let shown = place.file.as_deref().unwrap_or(file.as_str());
        let message = format!("`{shown}` {what}, and libtorch is built with libstdc++");
        let remedy =
            "link its C++ with GCC: a program with two C++ libraries ends at the first string that it hands over";
        Some(("libc++", vec![Finding::error(code::CXX_LIBRARY_DIFFERS, place.clone(), message).remedy(remedy)]))
    }
}

/// The crates of a build whose objects name these symbols, by the symbol; of what no crate names, the standard library or the
/// start-up code of the toolchain is the owner, which is not told here.
fn crates_of<'s>(symbols: &[&'s String], dir: &Utf8Path) -> BTreeMap<&'s str, String> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let files = walkdir::WalkDir::new(dir).sort_by_file_name().into_iter().flatten();
    for entry in files.filter(|entry| entry.file_type().is_file()) {
        let name = entry.file_name().to_string_lossy();
        let is_code = [".rlib", ".a", ".o"].iter().any(|end| name.ends_with(end));
        // One that a linker writes beside them has everything in it.
        if !is_code || entry.metadata().is_ok_and(|metadata| metadata.len() > MOST_BYTES) {
            continue;
        }
        let Ok(bytes) = fs_err::read(entry.path()) else { continue };
        for symbol in symbols {
            let whole = [b"\0", symbol.as_bytes(), b"\0"].concat();
            if memmem::find(&bytes, &whole).is_some() {
                let by = owner(entry.path());
                let all = found.entry(symbol.as_str()).or_default();
                if !all.contains(&by) {
                    all.push(by);
                }
            }
        }
    }
    found.into_iter().map(|(symbol, crates)| (symbol, crates.join(", "))).collect()
}

/// `` `pages` `` for `libpages-0123456789abcdef.rlib`, and for every object in `incremental/pages-0123456789abc`.
fn owner(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let folder = if parts.any(|part| part == "incremental") { parts.next() } else { None };
    let name = folder.as_deref().unwrap_or_else(|| file.strip_prefix("lib").unwrap_or(&file));
    let name = name.split_once('-').or_else(|| name.split_once('.')).map_or(name, |(name, _)| name);
    format!("`{name}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_that_names_a_symbol_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(temp.path()).unwrap();
        let deps = dir.join("release/deps");
        fs_err::create_dir_all(&deps).unwrap();
        fs_err::write(deps.join("libpages-0123.rlib"), b"x\0getentropy\0pthread_create_x\0").unwrap();
        let incremental = dir.join("release/incremental/random-0123/s-1");
        fs_err::create_dir_all(&incremental).unwrap();
        fs_err::write(incremental.join("lib1.o"), b"\0getentropy\0").unwrap();
        fs_err::write(deps.join("pages-0123.d"), b"\0pthread_create\0").unwrap();
        let symbols = ["getentropy".to_owned(), "pthread_create".to_owned()];
        let found = crates_of(&symbols.iter().collect::<Vec<_>>(), dir);
        assert_eq!(found, BTreeMap::from([("getentropy", "`pages`, `random`".to_owned())]));
    }
}
