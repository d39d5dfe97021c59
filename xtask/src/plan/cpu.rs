//! Whether the code of a kind runs on the CPUs of its hosts.
//!
//! Pure. What a CPU has is [`torchlift::preflight::isa`]'s to say.

use torchlift::preflight::{code, isa};
use torchlift_schema::Finding;

use super::Inputs;
use crate::cluster::{Kind, Reach};

/// What code asks of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCode {
    /// The flags that ask for it, each as one word.
    pub flags: Vec<String>,
    /// All features that it may use, by rustc's names; none where rustc does not say.
    pub features: Option<Vec<String>>,
}

impl CpuCode {
    /// The level that a CPU of this architecture has to have; none where that is not known.
    pub fn level(&self, arch: &str) -> Option<&'static str> {
        isa::level_of_code(arch, self.features.as_ref()?)
    }

    /// Whether it is made for the machine that builds.
    fn is_native(&self) -> bool {
        let cpu = self.flags.iter().rev().find_map(|flag| flag.strip_prefix("-Ctarget-cpu="));
        cpu == Some("native")
    }
}

/// Findings about the CPUs of the chosen hosts of one kind.
pub(super) fn kind(inputs: &Inputs<'_>, index: usize, kind: &Kind, findings: &mut Vec<Finding>) {
    let Some(cpu) = inputs.cpu_codes.get(&index) else { return };
    let flags = cpu.flags.join(" ");
    for host in inputs.hosts.iter().filter(|host| host.kind == index) {
        let place = inputs.cluster.or_file(kind.places.at("rustflags")).on(&host.name);
        let known = inputs.known_hosts.get(&host.name);
        if cpu.is_native() && host.reach != Reach::Local {
            let level = known.and_then(|known| known.facts.cpu.level.as_deref());
            let message = format!(
                "`-Ctarget-cpu=native` is the CPU of the machine that builds, and not that of host `{}`",
                host.name
            );
            let remedy = match level {
                Some(level) if level.starts_with("x86") => {
                    format!("name what all hosts of the kind have; this one has `-Ctarget-cpu={level}`")
                }
                _ => "name a CPU that all hosts of the kind can do as much as, such as `x86-64-v3`".to_owned(),
            };
            findings.push(Finding::error("cpu-native", place, message).remedy(remedy));
            continue;
        }
        let (Some(features), Some(known)) = (&cpu.features, known) else { continue };
        let facts = &known.facts.cpu;
        let Some(lacking) = isa::lacking(features, facts).filter(|lacking| !lacking.is_empty()) else { continue };
        let model = facts.model.as_ref().map(|model| format!(" (`{model}`)")).unwrap_or_default();
        let message = format!(
            "the CPU of host `{}`{model} lacks {}, for which `{flags}` makes code",
            host.name,
            lacking.join(", ")
        );
        let remedy = match &facts.level {
            Some(level) if level.starts_with("x86") => {
                format!("use `-Ctarget-cpu={level}`, or give the host a kind of its own")
            }
            _ => "ask for less, or give the host a kind of its own".to_owned(),
        };
        findings.push(Finding::error(code::CPU_LACKS, place, message).remedy(remedy));
    }
}
