//! What the words before a program do to the system that the program finds.
//!
//! Pure. Of a runner that is not known here nothing is claimed: what it starts may be in a container, with libraries of
//! which this machine has none.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::loader::HostLibraries;
use crate::env_vars::QEMU_LD_PREFIX;

/// Programs that start another one on this machine as it is, and change nothing of what it loads.
const AS_IT_IS: [&str; 6] = ["chrt", "ionice", "nice", "numactl", "taskset", "time"];

/// What a runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runner {
    /// There is none, or it is one that the program does not notice.
    None,
    /// QEMU's user emulation: programs of another CPU, on the files of this machine.
    Qemu {
        /// The CPU, as in a target triple.
        arch: String,
        /// The folder in which each file is looked for first.
        prefix: Option<PathBuf>,
    },
    /// Any other.
    Unknown,
}

impl Runner {
    /// The runner of these words; `variable` looks up what its process has in its environment.
    pub fn of(words: &[String], variable: impl Fn(&str) -> Option<String>) -> Self {
        let Some((program, words)) = words.split_first() else { return Self::None };
        let name = program.rsplit('/').next().unwrap_or_default();
        if AS_IT_IS.contains(&name) {
            return Self::None;
        }
        let Some(arch) = qemu_arch(name) else { return Self::Unknown };
        // It would give the program another environment than ours, which is where the library path comes from.
        if words.iter().any(|word| ["-E", "-U"].contains(&word.as_str())) {
            return Self::Unknown;
        }
        let given = words.windows(2).rev().find(|pair| pair[0] == "-L").map(|pair| pair[1].clone());
        let prefix = given.or_else(|| variable(QEMU_LD_PREFIX)).map(PathBuf::from);
        // It starts from the folder of each rank.
        if prefix.as_deref().is_some_and(Path::is_relative) {
            return Self::Unknown;
        }
        Self::Qemu { arch: arch.to_owned(), prefix }
    }

    /// The system that a program behind it finds, where that is known; `here` is this machine's own.
    pub fn system<'a>(&self, here: &'a HostLibraries) -> Option<Cow<'a, HostLibraries>> {
        match self {
            Self::None => Some(Cow::Borrowed(here)),
            Self::Qemu { arch, prefix } => Some(Cow::Owned(HostLibraries::emulated(arch, prefix.as_deref()))),
            Self::Unknown => None,
        }
    }
}

/// The CPU of `qemu-aarch64` and `qemu-aarch64-static`.
fn qemu_arch(name: &str) -> Option<&'static str> {
    let cpu = name.strip_prefix("qemu-")?;
    match cpu.strip_suffix("-static").unwrap_or(cpu) {
        "aarch64" => Some("aarch64"),
        "x86_64" => Some("x86_64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Runner {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Runner::of(&words, |name| (name == QEMU_LD_PREFIX).then(|| "/from/env".to_owned()))
    }

    fn qemu(arch: &str, prefix: &str) -> Runner {
        Runner::Qemu { arch: arch.to_owned(), prefix: Some(prefix.into()) }
    }

    #[test]
    fn qemu_is_known_by_its_names_with_the_folder_that_it_looks_into_first() {
        assert_eq!(of("qemu-aarch64-static -L /usr/aarch64-linux-gnu"), qemu("aarch64", "/usr/aarch64-linux-gnu"));
        assert_eq!(of("/opt/bin/qemu-x86_64 -cpu max -L /a -L /b"), qemu("x86_64", "/b"));
        assert_eq!(of("qemu-aarch64"), qemu("aarch64", "/from/env"));
    }

    #[test]
    fn what_is_not_known_is_never_taken_for_this_machine() {
        for line in [
            "apptainer exec image.sif",
            "env A=b",
            "qemu-system-aarch64",
            "qemu-aarch64 -L relative",
            "qemu-aarch64 -E LD_LIBRARY_PATH=/x",
        ] {
            assert_eq!(of(line), Runner::Unknown, "{line}");
        }
        let here = HostLibraries { arch: "x86_64".to_owned(), ..HostLibraries::default() };
        assert!(Runner::Unknown.system(&here).is_none());
    }

    #[test]
    fn what_a_program_does_not_notice_is_none() {
        for line in ["", "numactl --cpunodebind=0", "/usr/bin/nice -n 5"] {
            assert_eq!(of(line), Runner::None, "{line}");
        }
    }
}
