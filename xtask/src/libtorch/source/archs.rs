//! GPU architectures that a build from source is asked for, and which CUDA toolkits have them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use torchlift_schema::gpu::{CudaArch, GpuCode, GpuError, ToolkitVersion};

/// The architectures of one build, at least one: each with its machine code, some with PTX too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archs {
    /// All of them.
    sass: BTreeSet<CudaArch>,
    /// Those of them that get PTX too.
    ptx: BTreeSet<CudaArch>,
}

/// A text that is no list of architectures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchsError {
    /// A part of it is none.
    #[error(transparent)]
    Part(#[from] GpuError),
    /// A part of it is AMD's.
    #[error("`{0}` is AMD's, and only CUDA is built")]
    Amd(GpuCode),
    /// Nothing is in it.
    #[error("no architecture is given: write `6.1;12.0`")]
    Empty,
}

const fn toolkit(major: u16, minor: u16) -> ToolkitVersion {
    ToolkitVersion::new(major, minor)
}

/// The last release that makes code for the generations before 7.5.
const LAST_OLD: Option<ToolkitVersion> = Some(toolkit(12, 9));
/// The first and last release whose compiler makes code for a capability, by the number of that; none: it still does. From
/// NVIDIA's release notes.
const RELEASES: [(u32, ToolkitVersion, Option<ToolkitVersion>); 19] = [
    (50, toolkit(6, 0), LAST_OLD),
    (52, toolkit(6, 5), LAST_OLD),
    (53, toolkit(7, 0), LAST_OLD),
    (60, toolkit(8, 0), LAST_OLD),
    (61, toolkit(8, 0), LAST_OLD),
    (62, toolkit(8, 0), LAST_OLD),
    (70, toolkit(9, 0), LAST_OLD),
    (72, toolkit(9, 2), LAST_OLD),
    (75, toolkit(10, 0), None),
    (80, toolkit(11, 0), None),
    (86, toolkit(11, 1), None),
    (87, toolkit(11, 4), None),
    (89, toolkit(11, 8), None),
    (90, toolkit(11, 8), None),
    (100, toolkit(12, 8), None),
    (103, toolkit(12, 9), None),
    (110, toolkit(13, 0), None),
    (120, toolkit(12, 8), None),
    (121, toolkit(12, 9), None),
];

impl FromStr for Archs {
    type Err = ArchsError;

    fn from_str(text: &str) -> Result<Self, ArchsError> {
        let mut archs = Self { sass: BTreeSet::new(), ptx: BTreeSet::new() };
        for code in GpuCode::list(text)? {
            match code {
                GpuCode::Sass(arch) => drop(archs.sass.insert(arch)),
                // torch's build knows PTX only beside the machine code of the same architecture.
                GpuCode::Ptx(arch, _) => {
                    archs.sass.insert(arch);
                    archs.ptx.insert(arch);
                }
                GpuCode::Gfx(_) => return Err(ArchsError::Amd(code)),
            }
        }
        if archs.sass.is_empty() { Err(ArchsError::Empty) } else { Ok(archs) }
    }
}

impl fmt::Display for Archs {
    /// As `TORCH_CUDA_ARCH_LIST` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |arch: &CudaArch| format!("{}{}", arch.dotted(), if self.ptx.contains(arch) { "+PTX" } else { "" });
        f.write_str(&self.sass.iter().map(part).collect::<Vec<_>>().join(";"))
    }
}

impl Archs {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = CudaArch> + '_ {
        self.sass.iter().copied()
    }

    /// All that was asked for.
    pub fn codes(&self) -> BTreeSet<GpuCode> {
        let ptx = self.ptx.iter().map(|arch| GpuCode::Ptx(*arch, None));
        self.sass.iter().map(|arch| GpuCode::Sass(*arch)).chain(ptx).collect()
    }

    /// Which toolkits have them all, for people.
    pub fn toolkits(&self) -> String {
        let mut first = toolkit(0, 0);
        let mut last: Option<ToolkitVersion> = None;
        for arch in &self.sass {
            let number = arch.capability.number();
            let Some((_, from, to)) = RELEASES.iter().find(|(of, ..)| *of == number) else {
                return format!("a CUDA toolkit that has {} is needed", arch.dotted());
            };
            first = first.max(*from);
            last = match (last, *to) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        match last {
            Some(last) if last < first => "no CUDA toolkit has them all: make two variants".to_owned(),
            Some(last) => format!("CUDA {first} to {last} have them all"),
            None => format!("CUDA {first} and newer have them all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_torch_takes_it() {
        for (text, list) in [
            ("6.1;12.0", "6.1;12.0"),
            ("12.0+PTX, sm_61 61", "6.1;12.0+PTX"),
            ("compute_90;9.0a", "9.0+PTX;9.0a"),
            ("120f", "12.0f"),
        ] {
            assert_eq!(text.parse::<Archs>().unwrap().to_string(), list, "{text}");
        }
        for wrong in ["", ";", "6", "gfx90a", "6.1;x", "12", "6.1+"] {
            assert!(wrong.parse::<Archs>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_toolkits_that_have_all_of_a_list_are_named() {
        let toolkits = |text: &str| text.parse::<Archs>().unwrap().toolkits();
        assert_eq!(toolkits("6.1;12.0"), "CUDA 12.8 to 12.9 have them all");
        assert_eq!(toolkits("8.0;9.0a"), "CUDA 11.8 and newer have them all");
        assert_eq!(toolkits("6.1;11.0"), "no CUDA toolkit has them all: make two variants");
        assert_eq!(toolkits("6.1;19.0"), "a CUDA toolkit that has 19.0 is needed");
    }
}
