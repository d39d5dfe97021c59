//! Which toolkit a version of the PTX language came with.
//!
//! A driver compiles the PTX of every toolkit that is not newer than itself, and an entry of a fatbin says the version of
//! its language, which is what counts: PTX 7.8 asks for a driver of CUDA 11.8, whatever compiler wrote it.

use torchlift_schema::gpu::ToolkitVersion;

/// The first toolkit that knows PTX `major.minor`; none for a version that no toolkit up to CUDA 13.5 has.
///
/// From "Release Notes", table 62, of NVIDIA's *PTX ISA*; CUDA 12.6 brought none of its own. Held against `ptxas` in the
/// tests that have NVIDIA's tools.
pub fn toolkit(major: u16, minor: u16) -> Option<ToolkitVersion> {
    let (toolkit, minor) = match (major, minor) {
        // Before 5.0 each step has its own rule, and no driver of today serves cards of that time.
        (3, 0) => (4, 1),
        (3, 1) => (5, 0),
        (3, 2) => (5, 5),
        (4, 0) => (6, 0),
        (4, 1) => (6, 5),
        (4, 2) => (7, 0),
        (4, 3) => (7, 5),
        (5, 0) => (8, 0),
        (6, minor @ 0..=2) => (9, minor),
        (6, minor @ 3..=5) => (10, minor - 3),
        (7, minor @ 0..=8) => (11, minor),
        (8, minor @ 0..=5) => (12, minor),
        (8, minor @ 6..=8) => (12, minor + 1),
        (9, minor @ 0..=5) => (13, minor),
        _ => return None,
    };
    Some(ToolkitVersion::new(toolkit, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ptx_version_names_its_toolkit_and_one_that_is_not_known_names_none() {
        let text = |major, minor| toolkit(major, minor).map(|version| version.to_string());
        for (major, minor, version) in [
            (5, 0, "8.0"),
            (6, 4, "10.1"),
            (7, 8, "11.8"),
            (8, 5, "12.5"),
            (8, 6, "12.7"),
            (8, 8, "12.9"),
            (9, 0, "13.0"),
        ] {
            assert_eq!(text(major, minor).as_deref(), Some(version));
        }
        for (major, minor) in [(0, 0), (8, 9), (9, 6), (10, 0), (u16::MAX, u16::MAX)] {
            assert_eq!(text(major, minor), None);
        }
    }
}
