//! Whether this machine can build libtorch from source: every lack in one run, before an hour is spent.
//!
//! Pure: [`super::machine`] read what there is.

use torchlift_schema::{Finding, Place};

use super::archs::Archs;
use super::machine::{Machine, Nvcc, Tool};
use crate::libtorch::event::human_size;

/// Bytes that a checkout with its submodules, the objects and the result take.
pub const DISK: u64 = 60_000_000_000;
/// Bytes of memory that one compiler run needs; those of the attention kernels take the most.
pub const MEMORY_PER_JOB: u64 = 4_000_000_000;

/// The oldest version that torch's build takes, and Debian's package of each tool.
const OLDEST: [(&str, &[u32], &str); 7] = [
    ("git", &[2, 18], "git"),
    ("cmake", &[3, 27], "cmake"),
    ("ninja", &[1, 8], "ninja-build"),
    ("flock", &[], "util-linux"),
    ("gcc", &[9, 4], "gcc"),
    ("g++", &[9, 4], "g++"),
    ("python3", &[3, 9], "python3"),
];

/// The newest major version of gcc that a release of nvcc takes, newest release first. From NVIDIA's installation guides.
const NEWEST_GCC: [((u32, u32), u32); 6] =
    [((13, 0), 15), ((12, 8), 14), ((12, 4), 13), ((12, 1), 12), ((11, 4), 11), ((11, 1), 10)];

/// How many compilers may run at once: as many as there are cores and memory for.
pub fn jobs(machine: &Machine) -> usize {
    let by_memory = machine.memory.map_or(usize::MAX, |bytes| usize::try_from(bytes / MEMORY_PER_JOB).unwrap_or(1));
    machine.cores.min(by_memory).max(1)
}

/// Everything that stands in the way.
pub fn check(machine: &Machine, archs: &Archs, jobs: usize, work: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, oldest, package) in OLDEST {
        findings.extend(tool(name, oldest, package, machine.tool(name)));
    }
    if !machine.missing_modules.is_empty() {
        let names: Vec<String> = machine.missing_modules.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("the `python3` of `PATH` has no module {}", names.join(" and "));
        let remedy = "`python3 -m pip install pyyaml typing-extensions`, or the packages of the system";
        findings.push(Finding::error("source-tool-missing", Place::default(), message).remedy(remedy));
    }
    match &machine.nvcc {
        None => {
            let message = "there is no `nvcc`: not in `CUDA_HOME`, not on `PATH`, not in `/usr/local/cuda`";
            let remedy = format!("install a CUDA toolkit ({}), or name its compiler with `--nvcc`", archs.toolkits());
            findings.push(Finding::error("source-tool-missing", Place::default(), message).remedy(remedy));
        }
        Some(nvcc) => {
            findings.extend(lacking(nvcc, archs));
            findings.extend(machine.tool("gcc").and_then(|gcc| host_compiler(nvcc, gcc)));
        }
    }
    findings.extend(room(machine, work));
    findings.extend(memory(machine, jobs));
    findings
}

fn tool(name: &str, oldest: &[u32], package: &str, found: Option<&Tool>) -> Option<Finding> {
    let install = format!("install it, for Debian and Ubuntu the package `{package}`");
    let Some(found) = found else {
        let message = format!("there is no `{name}` on `PATH`");
        return Some(Finding::error("source-tool-missing", Place::default(), message).remedy(install));
    };
    // A tool that does not say its version is left to the build.
    if found.version.is_empty() || found.version.as_slice() >= oldest {
        return None;
    }
    let message = format!("`{}` is {}, and {} or newer is needed", found.path, dotted(&found.version), dotted(oldest));
    Some(Finding::error("source-tool-version", Place::file(found.path.as_str()), message).remedy(install))
}

fn lacking(nvcc: &Nvcc, archs: &Archs) -> Option<Finding> {
    let place = Place::file(nvcc.tool.path.as_str());
    let Some(codes) = &nvcc.codes else {
        let message = "`nvcc --list-gpu-code` names no architecture: it is no whole CUDA compiler, or older than 11.5";
        return Some(Finding::error("source-tool-version", place, message).remedy(archs.toolkits()));
    };
    let missing: Vec<String> = archs
        .iter()
        .filter(|arch| !codes.contains(&arch.to_string()))
        .map(|arch| format!("`{}`", arch.dotted()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let release = dotted(&nvcc.tool.version);
    let message = format!("the compiler of CUDA {release} makes no code for {}", missing.join(" and "));
    Some(Finding::error("source-toolkit-lacks-arch", place, message).remedy(archs.toolkits()))
}

fn host_compiler(nvcc: &Nvcc, gcc: &Tool) -> Option<Finding> {
    let release = match nvcc.tool.version.as_slice() {
        [major, minor, ..] => (*major, *minor),
        _ => return None,
    };
    let (_, newest) = NEWEST_GCC.iter().find(|(from, _)| release >= *from)?;
    let major = gcc.version.first().filter(|major| *major > newest)?;
    let message =
        format!("`{}` is gcc {major}, and CUDA {}.{} takes gcc {newest} at most", gcc.path, release.0, release.1);
    let remedy = format!("put a gcc and g++ {newest} in front of `PATH`, or take a newer CUDA toolkit");
    Some(Finding::error("source-tool-version", Place::file(gcc.path.as_str()), message).remedy(remedy))
}

fn room(machine: &Machine, work: &str) -> Option<Finding> {
    let free = machine.free?;
    // What an earlier run left there is part of the sum.
    let needed = DISK.saturating_sub(machine.used);
    let message = format!("{} are free, and some {} are needed", human_size(free), human_size(needed));
    let remedy = "make room there, name another folder with `--work`, or go on with `--accept source-disk-small`";
    (free < needed).then(|| Finding::error("source-disk-small", Place::file(work), message).remedy(remedy))
}

fn memory(machine: &Machine, jobs: usize) -> Option<Finding> {
    let memory = machine.memory?;
    let needed = MEMORY_PER_JOB.saturating_mul(jobs as u64);
    if memory >= needed {
        return None;
    }
    let message = format!(
        "{} of memory for {jobs} compilers at once, of which each may need {}",
        human_size(memory),
        human_size(MEMORY_PER_JOB)
    );
    let remedy = "ask for fewer with `--jobs`, or add swap";
    Some(Finding::warning("source-memory-small", Place::default(), message).remedy(remedy))
}

fn dotted(version: &[u32]) -> String {
    version.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let tool = |name: &'static str, version: &[u32]| {
            (name, Some(Tool { path: format!("/usr/bin/{name}").into(), version: version.to_vec() }))
        };
        Machine {
            tools: vec![
                tool("git", &[2, 39, 5]),
                tool("cmake", &[3, 31, 0]),
                tool("ninja", &[1, 11, 1]),
                tool("flock", &[2, 38, 1]),
                tool("gcc", &[12, 2, 0]),
                tool("g++", &[12, 2, 0]),
                tool("python3", &[3, 11, 2]),
            ],
            missing_modules: Vec::new(),
            nvcc: Some(Nvcc {
                tool: Tool { path: "/usr/local/cuda/bin/nvcc".into(), version: vec![12, 8] },
                codes: Some(["sm_61", "sm_90", "sm_120"].map(str::to_owned).into()),
                toolkit: "/usr/local/cuda".into(),
            }),
            cores: 16,
            memory: Some(128_000_000_000),
            free: Some(100_000_000_000),
            used: 0,
        }
    }

    fn codes(machine: &Machine, archs: &str, jobs: usize) -> Vec<String> {
        let findings = check(machine, &archs.parse().unwrap(), jobs, "/work");
        findings.into_iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect()
    }

    #[test]
    fn a_machine_that_has_all_is_told_nothing() {
        assert_eq!(codes(&machine(), "6.1;12.0", 16), [""; 0]);
        assert_eq!(jobs(&machine()), 16);
        assert_eq!(jobs(&Machine { memory: Some(9_000_000_000), ..machine() }), 2);
        assert_eq!(jobs(&Machine { memory: Some(1), ..machine() }), 1);
    }

    #[test]
    fn everything_that_is_missing_is_told_in_one_run() {
        let bare = Machine { cores: 4, memory: Some(3_000_000_000), free: Some(1), ..Machine::default() };
        let codes = codes(&bare, "6.1", 4);
        let names = ["git", "cmake", "ninja", "flock", "gcc", "g++", "python3", "nvcc"];
        for name in names {
            assert!(codes.iter().any(|code| code.contains(&format!("no `{name}`"))), "{name}: {codes:#?}");
        }
        assert_eq!(codes.len(), names.len() + 2, "disk and memory too: {codes:#?}");
    }

    #[test]
    fn a_toolkit_that_dropped_an_architecture_is_told_with_those_that_have_all() {
        let mut newer = machine();
        newer.nvcc.as_mut().unwrap().tool.version = vec![13, 0];
        newer.nvcc.as_mut().unwrap().codes = Some(vec!["sm_75".to_owned(), "sm_120".to_owned()]);
        let finding = check(&newer, &"6.1;12.0".parse().unwrap(), 1, "/work").remove(0);
        assert_eq!(finding.message, "the compiler of CUDA 13.0 makes no code for `6.1`");
        assert_eq!(finding.remedy.unwrap(), "CUDA 12.8 to 12.9 have them all");
    }

    #[test]
    fn versions_too_old_and_too_new_are_told() {
        let mut other = machine();
        other.tools[1].1.as_mut().unwrap().version = vec![3, 25, 1];
        other.tools[4].1.as_mut().unwrap().version = vec![15, 1, 0];
        other.missing_modules = vec!["yaml".to_owned()];
        let codes = codes(&other, "6.1;12.0", 1);
        assert_eq!(codes.len(), 3, "{codes:#?}");
        assert!(codes[0].ends_with("is 3.25.1, and 3.27 or newer is needed"), "{codes:#?}");
        assert!(codes[2].ends_with("is gcc 15, and CUDA 12.8 takes gcc 14 at most"), "{codes:#?}");
    }
}
