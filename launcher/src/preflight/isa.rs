//! What a CPU can do and what code asks of it: levels, and features one by one.
//!
//! Owns the levels of each architecture and the names that the kernel and rustc have for one feature. Pure.

use torchlift_schema::host::CpuFacts;

/// The levels of the x86-64 ABI (psABI, chapter 3.1.1), by the kernel's names: a level needs those before it.
///
/// `osxsave` has no name in /proc/cpuinfo; the kernel shows `avx` only where it saves the registers.
const X86_LEVELS: [(&str, &[&str]); 4] = [
    ("x86-64-v1", &["lm", "cmov", "cx8", "fpu", "fxsr", "mmx", "syscall", "sse", "sse2"]),
    ("x86-64-v2", &["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]),
    ("x86-64-v3", &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

/// Versions of the Arm architecture by what each makes mandatory and the kernel names: a version needs those before it.
///
/// What a kernel may hide by its configuration (pointer authentication, say) is not asked for.
const ARM_LEVELS: [(&str, &[&str]); 6] = [
    ("armv8-a", &["fp", "asimd"]),
    ("armv8.1-a", &["atomics", "crc32", "asimdrdm"]),
    ("armv8.2-a", &["dcpop"]),
    ("armv8.3-a", &["jscvt", "fcma", "lrcpc"]),
    ("armv8.4-a", &["asimddp", "dit", "flagm", "ilrcpc", "uscat"]),
    ("armv8.5-a", &["flagm2", "frint", "sb"]),
];

/// What rustc calls otherwise than the kernel, for code that x86-64 runs: (rustc, kernel).
const X86_NAMES: [(&str, &str); 9] = [
    ("sse3", "pni"),
    ("sse4.1", "sse4_1"),
    ("sse4.2", "sse4_2"),
    ("cmpxchg16b", "cx16"),
    ("lahfsahf", "lahf_lm"),
    ("lzcnt", "abm"),
    ("sha", "sha_ni"),
    ("avx512vnni", "avx512_vnni"),
    ("avx512bf16", "avx512_bf16"),
];
/// The same for Arm.
const ARM_NAMES: [(&str, &str); 9] = [
    ("neon", "asimd"),
    ("lse", "atomics"),
    ("crc", "crc32"),
    ("rdm", "asimdrdm"),
    ("dpb", "dcpop"),
    ("rcpc", "lrcpc"),
    ("rcpc2", "ilrcpc"),
    ("dotprod", "asimddp"),
    ("fcma", "fcma"),
];
/// Further features that both call alike and that code uses at once where the compiler may.
const ALIKE: [&str; 9] = ["aes", "adx", "gfni", "pclmulqdq", "rdrand", "rdseed", "vaes", "vpclmulqdq", "sve"];

fn levels(arch: &str) -> &'static [(&'static str, &'static [&'static str])] {
    match arch {
        "x86_64" => &X86_LEVELS,
        "aarch64" => &ARM_LEVELS,
        _ => &[],
    }
}

/// The level that a CPU with these features, by the kernel's names, has; none of another architecture, or of less than the
/// first.
pub fn level_of_host(arch: &str, words: &[String]) -> Option<&'static str> {
    let has = |name: &&str| words.iter().any(|word| word == name);
    levels(arch).iter().take_while(|(_, needed)| needed.iter().all(has)).last().map(|(name, _)| *name)
}

/// The lowest level that has all of these features, by rustc's names, as far as levels tell of them.
pub fn level_of_code(arch: &str, features: &[String]) -> Option<&'static str> {
    let uses = |name: &&str| features.iter().any(|feature| kernel_name(arch, feature) == *name);
    let levels = levels(arch);
    let highest = levels.iter().rposition(|(_, names)| names.iter().any(uses))?;
    Some(levels[highest].0)
}

/// Whether a CPU of level `has` runs code of level `needs`; none where one of them is no level of this architecture.
pub fn reaches(arch: &str, has: &str, needs: &str) -> Option<bool> {
    let at = |level: &str| levels(arch).iter().position(|(name, _)| *name == level);
    Some(at(has)? >= at(needs)?)
}

/// Whether a machine runs programs for `program`: both as in a target triple.
pub fn is_run_on(program: &str, machine: &str) -> bool {
    // Kernels run the older sibling too, when it is configured; its loader is looked for like any other.
    program == machine || matches!((machine, program), ("x86_64", "i686" | "x86_64-x32") | ("aarch64", "arm"))
}

/// The features of code, by rustc's names, that a CPU lacks; none where nothing is known of that CPU.
pub fn lacking<'a>(features: &'a [String], cpu: &CpuFacts) -> Option<Vec<&'a str>> {
    let arch = cpu.arch.as_str();
    let of_levels = |name: &str| levels(arch).iter().position(|(_, names)| names.contains(&name));
    let level = cpu.level.as_deref().and_then(|level| levels(arch).iter().position(|(name, _)| *name == level));
    if level.is_none() && cpu.features.is_empty() {
        return None;
    }
    let has = |name: &str| {
        cpu.features.iter().any(|word| word == name)
            || of_levels(name).is_some_and(|needs| level.is_some_and(|level| needs <= level))
    };
    // What the facts of a host do not keep, nor a level has, cannot be told.
    let is_told = |name: &str| of_levels(name).is_some() || (ALIKE.contains(&name) && !cpu.features.is_empty());
    let missing = features.iter().map(String::as_str).filter(|feature| {
        let name = kernel_name(arch, feature);
        is_told(name) && !has(name)
    });
    Some(missing.collect())
}

fn kernel_name<'a>(arch: &str, feature: &'a str) -> &'a str {
    let names: &[(&str, &'static str)] = if arch == "aarch64" { &ARM_NAMES } else { &X86_NAMES };
    names.iter().find(|(rustc, _)| *rustc == feature).map_or(feature, |(_, kernel)| kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn cpu(level: Option<&str>, features: &str) -> CpuFacts {
        let mut cpu = CpuFacts::new("x86_64");
        cpu.level = level.map(str::to_owned);
        cpu.features = words(features).into_iter().filter(|word| !word.is_empty()).collect();
        cpu
    }

    #[test]
    fn code_is_of_the_lowest_level_that_has_all_it_uses() {
        let level = |features: &str| level_of_code("x86_64", &words(features));
        assert_eq!(level("fxsr sse sse2"), Some("x86-64-v1"));
        assert_eq!(level("fxsr sse sse2 sse3"), Some("x86-64-v2"));
        assert_eq!(level("sse sse2 lzcnt"), Some("x86-64-v3"));
        assert_eq!(level("avx512vl aes"), Some("x86-64-v4"));
        assert_eq!(level("crt-static"), None);
        assert_eq!(level_of_code("aarch64", &words("neon lse")), Some("armv8.1-a"));
        assert_eq!(level_of_code("riscv64", &words("a")), None);
    }

    #[test]
    fn what_a_cpu_lacks_is_named_as_rustc_calls_it() {
        let needed = words("sse sse2 sse3 lzcnt avx2 aes fxsr");
        let lacks = |cpu: &CpuFacts| lacking(&needed, cpu).map(|missing| missing.join(" "));
        assert_eq!(lacks(&cpu(Some("x86-64-v3"), "")).as_deref(), Some(""));
        assert_eq!(lacks(&cpu(Some("x86-64-v2"), "aes")).as_deref(), Some("lzcnt avx2"));
        // A CPU with more than its level says, and less of what no level has.
        assert_eq!(lacks(&cpu(Some("x86-64-v2"), "abm avx2")).as_deref(), Some("aes"));
        assert_eq!(lacks(&cpu(None, "")), None);
    }
}
