//! What the CPU can do, by the kernel's word: a feature that the kernel keeps from programs is none.

use torchlift_schema::host::CpuFacts;

use super::{Problems, Roots, field};
use crate::preflight::isa;
use crate::preflight::loader::HostLibraries;

const CPUINFO: &str = "/proc/cpuinfo";

/// Beginnings of the names that say what generated code may use; the kernel's other words are about the machine.
const X86_CODE: [&str; 15] = [
    "adx", "aes", "amx", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "pclmul", "popcnt", "sha", "sse", "ssse", "vaes",
];
/// Further such names, whole: `pni` is SSE3, `abm` LZCNT, `cx16` CMPXCHG16B.
const X86_CODE_WHOLE: [&str; 5] = ["abm", "cx16", "lahf_lm", "pni", "vpclmulqdq"];

/// Reads it.
pub(super) fn read(roots: &Roots, arch: &str, libraries: &HostLibraries, problems: &mut Problems) -> CpuFacts {
    let mut facts = CpuFacts::new(arch);
    match roots.text(CPUINFO) {
        Ok(text) => {
            facts.model = model(&text);
            // Cores of one machine may differ; a program may run on any of them.
            let words = words_of_every_core(&text, if arch == "x86_64" { "flags" } else { "Features" });
            facts.level = isa::level_of_host(arch, &words).map(str::to_owned);
            facts.features = words.into_iter().filter(|word| is_for_code(arch, word)).collect();
            facts.from.push(CPUINFO.to_owned());
            if facts.level.is_none() {
                problems.unread("cpu.level", format!("`{CPUINFO}` names no level of {arch} that this CPU has"));
            }
        }
        // The instruction itself tells as much, where this program runs on that very CPU.
        Err(error) if arch == "x86_64" && libraries.arch == std::env::consts::ARCH => {
            facts.level = libraries.hwcaps.first().cloned().or_else(|| Some("x86-64-v1".to_owned()));
            facts.from.push("cpuid".to_owned());
            problems.unread("cpu.features", format!("the CPU's features cannot be read: {error}"));
        }
        Err(error) => problems.unread("cpu", format!("what the CPU can do cannot be read: {error}")),
    }
    facts
}

fn model(text: &str) -> Option<String> {
    let name = field(text, "model name").or_else(|| field(text, "Model")).filter(|name| !name.is_empty())?;
    // Vendors pad theirs.
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The words that the lines `key` of all processors have in common, sorted.
fn words_of_every_core(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value)
    });
    let mut common: Option<(&str, Vec<&str>)> = None;
    for line in lines {
        match &mut common {
            None => common = Some((line, line.split_whitespace().collect())),
            // Nearly always they are all alike.
            Some((first, _)) if *first == line => {}
            Some((_, words)) => words.retain(|word| line.split_whitespace().any(|other| other == *word)),
        }
    }
    let mut words: Vec<String> =
        common.map(|(_, words)| words).unwrap_or_default().into_iter().map(str::to_owned).collect();
    words.sort();
    words.dedup();
    words
}

fn is_for_code(arch: &str, word: &str) -> bool {
    arch != "x86_64" || X86_CODE_WHOLE.contains(&word) || X86_CODE.iter().any(|start| word.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        words_of_every_core(&format!("flags\t\t: {text}\n"), "flags")
    }

    const V1: &str = "fpu cx8 cmov mmx fxsr sse sse2 syscall lm";
    const V2: &str = "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm";
    const V3: &str = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave";

    #[test]
    fn a_level_is_had_whole_and_with_those_below_it() {
        let level = |text: &str| isa::level_of_host("x86_64", &words(text));
        assert_eq!(level(V1), Some("x86-64-v1"));
        assert_eq!(level(&format!("{V1} {V2}")), Some("x86-64-v2"));
        assert_eq!(level(&format!("{V1} {V2} {V3}")), Some("x86-64-v3"));
        assert_eq!(level(&format!("{V1} {V3}")), Some("x86-64-v1"));
        let without_lzcnt = V3.replace(" abm", "");
        assert_eq!(level(&format!("{V1} {V2} {without_lzcnt}")), Some("x86-64-v2"));
        let v4 = "avx512f avx512bw avx512cd avx512dq avx512vl";
        assert_eq!(level(&format!("{V1} {V2} {V3} {v4}")), Some("x86-64-v4"));
        assert_eq!(level(""), None);
    }

    #[test]
    fn an_arm_cpu_has_the_version_whose_parts_it_has() {
        let level = |text: &str| isa::level_of_host("aarch64", &words(text));
        let cortex_a72 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid";
        assert_eq!(level(cortex_a72), Some("armv8-a"));
        let neoverse_n1 =
            "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs";
        assert_eq!(level(neoverse_n1), Some("armv8.2-a"));
    }

    #[test]
    fn what_only_some_cores_can_do_is_not_counted() {
        let text = "flags : sse sse2 avx\n\nflags : sse sse2\n";
        assert_eq!(words_of_every_core(text, "flags"), ["sse", "sse2"]);
    }

    #[test]
    fn words_about_the_machine_are_no_features_of_code() {
        assert!(is_for_code("x86_64", "avx512_vnni") && is_for_code("x86_64", "abm"));
        assert!(!is_for_code("x86_64", "hypervisor") && !is_for_code("x86_64", "smep"));
        assert!(is_for_code("aarch64", "sve"));
    }
}
