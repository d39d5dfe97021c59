//! The reader of GPU code against bytes that are made here: what linkers make, and what only an enemy would.

#![expect(clippy::unwrap_used, reason = "what surrounds a test may fail as the test itself may")]

#[path = "../support/fatbin.rs"]
mod made;

mod bundle;
mod cuda;
mod hostile;

use std::path::Path;

use torchlift::preflight::fatbin::{self, GpuContent, RegionGroup};

/// What an ELF file of these bytes carries.
fn read(bytes: &[u8]) -> Option<GpuContent> {
    fatbin::parse(bytes, Path::new("lib.so")).unwrap()
}

/// What a library with one such section carries, and that nothing is wrong with it.
fn read_section(name: &str, content: &[u8]) -> GpuContent {
    let content = read(&made::elf(&[(name, content)])).unwrap();
    assert_eq!((&content.problems, content.unlisted_problems), (&Vec::new(), 0));
    content
}

/// Groups as `2 sm_70 sm_90a`.
fn texts(groups: &[RegionGroup]) -> Vec<String> {
    let text = |group: &RegionGroup| {
        let codes: Vec<String> = group.codes.iter().map(ToString::to_string).collect();
        format!("{} {}", group.count, codes.join(" ")).trim_end().to_owned()
    };
    groups.iter().map(text).collect()
}

/// The problems as people read them.
fn problems(content: &GpuContent) -> Vec<String> {
    content.problems.iter().map(ToString::to_string).collect()
}
