//! What a program and its libraries need of a host's system, held against what the host offers by its facts.
//!
//! Pure: it opens no file, so that it holds for hosts that are far away. A library of which the facts say nothing is named
//! as such, and is never taken for one that is good enough.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use torchlift_schema::host::LibcFlavour;
use torchlift_schema::{Finding, HostFacts, Place};

use crate::preflight::elf::{ElfFacts, Version};
use crate::preflight::{code, isa};

/// The C library's own name.
const LIBC: &str = "libc.so.6";

/// Something that is loaded, by its file.
pub type Needing<'a> = (&'a Path, &'a ElfFacts);

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// Libraries that were held against the facts.
    pub held: BTreeSet<String>,
    /// Libraries with versions that are needed and of which the facts say nothing.
    pub unknown: BTreeSet<String>,
    /// One for each library that does not offer enough.
    pub findings: Vec<Finding>,
}

/// Holds the versions that `needing` ask for against `facts`; libraries for which `is_ours` are not the host's to offer.
///
/// `by` says in words where the facts are from, such as `cluster.facts.json`.
pub fn versions(
    needing: &[Needing<'_>],
    is_ours: impl Fn(&str) -> bool,
    facts: &HostFacts,
    by: &str,
    place: &Place,
) -> Floors {
    let mut floors = Floors::default();
    let mut lacking: BTreeMap<&str, Vec<Lack<'_>>> = BTreeMap::new();
    for (file, own) in needing {
        for need in own.version_needs.iter().filter(|need| !is_ours(&need.library)) {
            let Some(offer) = Offer::of(&need.library, facts) else {
                floors.unknown.insert(need.library.clone());
                continue;
            };
            floors.held.insert(need.library.clone());
            let lost = need.versions.iter().filter(|version| !version.is_weak && !offer.has(&version.name));
            let lost = lost.map(|version| Lack { version: &version.name, needed_by: file });
            lacking.entry(&need.library).or_default().extend(lost);
        }
    }
    for (library, mut lacks) in lacking {
        // The highest says it all; of two that need it the first loaded is named.
        lacks.sort_by_key(|lack| std::cmp::Reverse(number(lack.version)));
        let (Some(worst), Some(offer)) = (lacks.first(), Offer::of(library, facts)) else { continue };
        floors.findings.push(finding(worst, library, &offer, by, place));
    }
    floors
}

/// A version that a host does not offer.
struct Lack<'a> {
    version: &'a str,
    needed_by: &'a Path,
}

/// What a host offers of one library.
enum Offer<'a> {
    /// These versions, by their names.
    Versions(&'a [String]),
    /// All of the GNU C library up to this one.
    Glibc(Version),
    /// Another C library, for which no program of glibc is made.
    Musl(Option<&'a str>),
}

impl<'a> Offer<'a> {
    /// None where the facts do not say.
    fn of(library: &str, facts: &'a HostFacts) -> Option<Self> {
        let libc = facts.libc.as_ref();
        if let Some(libc) = libc.filter(|libc| library == LIBC && libc.flavour == LibcFlavour::Musl) {
            return Some(Self::Musl(libc.version.as_deref()));
        }
        match facts.library(library).filter(|library| !library.versions.is_empty()) {
            Some(library) => Some(Self::Versions(&library.versions)),
            None if library == LIBC => libc?.version.as_ref()?.parse().ok().map(Self::Glibc),
            None => None,
        }
    }

    fn has(&self, version: &str) -> bool {
        match self {
            Self::Versions(versions) => versions.iter().any(|own| own == version),
            // A version without a number, such as `GLIBC_PRIVATE`, is of one build of glibc: nobody else's program has it.
            Self::Glibc(own) => {
                version.strip_prefix("GLIBC_").is_some_and(|text| text.parse::<Version>().is_ok_and(|it| it <= *own))
            }
            Self::Musl(_) => false,
        }
    }

    /// In words, as far as the family of `version` goes.
    fn words(&self, version: &str) -> String {
        match self {
            Self::Versions(versions) => {
                let family = version.split_inclusive('_').next().unwrap_or_default();
                match crate::preflight::elf::highest(versions.iter().map(String::as_str), family) {
                    Some(highest) => format!("goes up to `{family}{highest}`"),
                    None => format!("has no version of `{}`", family.trim_end_matches('_')),
                }
            }
            Self::Glibc(own) => format!("has glibc {own}"),
            Self::Musl(version) => format!("has musl{}", version.map(|text| format!(" {text}")).unwrap_or_default()),
        }
    }
}

/// The number of a version, for which one is the highest.
fn number(version: &str) -> Option<Version> {
    version.rsplit_once('_')?.1.parse().ok()
}

fn finding(lack: &Lack<'_>, library: &str, offer: &Offer<'_>, by: &str, place: &Place) -> Finding {
    let Lack { version, needed_by } = lack;
    let host = place.host.as_ref().map(|host| format!("host `{host}`")).unwrap_or_else(|| "the host".to_owned());
    let message = format!(
        "`{}` needs `{version}` of `{library}`, and {host} {} ({by})",
        needed_by.display(),
        offer.words(version)
    );
    let remedy = match offer {
        Offer::Musl(_) => "run on a system with glibc: every published libtorch is built for it",
        _ if version.starts_with("GLIBC_") => {
            "build on an older system and use a libtorch for it, or take a host with a newer one"
        }
        _ => "build on an older system, or install that library's newer version on the host; then read its facts anew",
    };
    Finding::error(code::VERSION_MISSING, place.clone(), message).remedy(remedy)
}

/// Whether a host has a CPU for a program, as far as its facts say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// It has.
    Fits,
    /// It has not.
    Lacks(Box<Finding>),
    /// The facts do not say.
    Unknown,
}

/// Holds the machine of a program and the level of its code against `facts`.
pub fn cpu(program: Needing<'_>, level: Option<&str>, facts: &HostFacts, by: &str, place: &Place) -> Cpu {
    let (file, elf) = program;
    let cpu = &facts.cpu;
    if !isa::is_run_on(&elf.arch, &cpu.arch) {
        let message = format!("`{}` is for {}, and the host is {} ({by})", file.display(), elf.arch, cpu.arch);
        let finding = Finding::error(code::WRONG_ARCHITECTURE, place.clone(), message);
        return Cpu::Lacks(Box::new(finding.remedy(format!("build it with a target for {}", cpu.arch))));
    }
    let Some(needed) = level else { return Cpu::Fits };
    match cpu.level.as_deref().and_then(|own| isa::reaches(&cpu.arch, own, needed).map(|reaches| (own, reaches))) {
        None => Cpu::Unknown,
        Some((_, true)) => Cpu::Fits,
        Some((own, false)) => {
            let message =
                format!("the program was built for CPUs of level `{needed}`, and the host has `{own}` ({by})");
            let remedy = format!("build it with `-Ctarget-cpu={own}` in the `rustflags` of the host's kind");
            Cpu::Lacks(Box::new(Finding::error(code::CPU_LACKS, place.clone(), message).remedy(remedy)))
        }
    }
}

#[cfg(test)]
mod tests {
    use torchlift_schema::host::{CoreFacts, CpuFacts, LibcFacts, SystemFacts, SystemLibrary};

    use super::*;
    use crate::preflight::elf::{ByteOrder, Class, Kind, NeededVersion, VersionNeed};

    fn facts() -> HostFacts {
        let (system, cores) = (SystemFacts::default(), CoreFacts::default());
        HostFacts::new("2026-01-01T00:00:00Z", "0.1.0", system, CpuFacts::new("x86_64"), cores)
    }

    fn needing(needs: &[(&str, &[&str])]) -> ElfFacts {
        let version = |name: &&str| NeededVersion { name: (*name).to_owned(), is_weak: name.ends_with("9.9") };
        let need = |(library, versions): &(&str, &[&str])| VersionNeed {
            library: (*library).to_owned(),
            versions: versions.iter().map(version).collect(),
        };
        ElfFacts {
            class: Class::Bits64,
            byte_order: ByteOrder::Little,
            arch: "x86_64".to_owned(),
            kind: Kind::Shared,
            is_dynamic: true,
            soname: None,
            needed: Vec::new(),
            rpath: Vec::new(),
            runpath: None,
            interpreter: None,
            build_id: None,
            version_needs: needs.iter().map(need).collect(),
            version_defs: Vec::new(),
            has_symbol_versions: true,
            has_nodefaultlib: false,
        }
    }

    fn hold(elf: &ElfFacts, facts: &HostFacts) -> Floors {
        let file = Path::new("/v/lib/libtorch_cpu.so");
        versions(&[(file, elf)], |library| library == "libc10.so", facts, "by its facts", &Place::host("old"))
    }

    #[test]
    fn the_highest_version_that_a_host_lacks_is_told_with_who_needs_it_and_what_there_is() {
        let elf = needing(&[
            ("libc.so.6", &["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.28", "GLIBC_9.9"]),
            ("libc10.so", &["OWN_1"]),
        ]);
        let mut host = facts();
        let versions = ["GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_PRIVATE"].map(str::to_owned).to_vec();
        host.libraries.push(SystemLibrary::new("libc.so.6", versions, "/lib64/libc.so.6"));
        let floors = hold(&elf, &host);
        assert_eq!(
            floors.findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>(),
            [
                "`/v/lib/libtorch_cpu.so` needs `GLIBC_2.34` of `libc.so.6`, and host `old` goes up to `GLIBC_2.17` (by its facts)"
            ]
        );
        assert!(floors.unknown.is_empty() && floors.held.len() == 1);
    }

    #[test]
    fn a_library_of_which_the_facts_say_nothing_is_never_good_enough() {
        let elf = needing(&[("libstdc++.so.6", &["GLIBCXX_3.4.30"]), ("libc.so.6", &["GLIBC_2.17"])]);
        let floors = hold(&elf, &facts());
        assert_eq!(floors.unknown.iter().collect::<Vec<_>>(), ["libc.so.6", "libstdc++.so.6"]);
        assert!(floors.held.is_empty() && floors.findings.is_empty());
    }

    #[test]
    fn the_version_of_glibc_stands_for_those_of_its_symbols_where_only_that_is_known() {
        let elf = needing(&[("libc.so.6", &["GLIBC_2.17", "GLIBC_2.28"])]);
        let mut host = facts();
        host.libc = Some(LibcFacts::new(LibcFlavour::Glibc, Some("2.31".to_owned()), "/lib/libc.so.6"));
        assert!(hold(&elf, &host).findings.is_empty());
        host.libc = Some(LibcFacts::new(LibcFlavour::Glibc, Some("2.17".to_owned()), "/lib/libc.so.6"));
        assert!(
            hold(&elf, &host).findings[0]
                .message
                .contains("`GLIBC_2.28` of `libc.so.6`, and host `old` has glibc 2.17")
        );
        host.libc = Some(LibcFacts::new(LibcFlavour::Musl, Some("1.2.5".to_owned()), "/lib/ld-musl-x86_64.so.1"));
        assert!(hold(&elf, &host).findings[0].message.contains("has musl 1.2.5"));
    }

    #[test]
    fn a_cpu_is_held_against_the_machine_and_the_level_of_the_code() {
        let (elf, file, place) = (needing(&[]), Path::new("/p/train"), Place::host("a"));
        let mut host = facts();
        let ask = |host: &HostFacts, level| cpu((file, &elf), level, host, "by its facts", &place);
        assert_eq!(ask(&host, None), Cpu::Fits);
        assert_eq!(ask(&host, Some("x86-64-v3")), Cpu::Unknown);
        host.cpu.level = Some("x86-64-v3".to_owned());
        assert_eq!(ask(&host, Some("x86-64-v3")), Cpu::Fits);
        let Cpu::Lacks(finding) = ask(&host, Some("x86-64-v4")) else { panic!("a v3 is no v4") };
        assert!(finding.message.contains("`x86-64-v4`, and the host has `x86-64-v3`"), "{}", finding.message);
        host.cpu = CpuFacts::new("aarch64");
        assert!(matches!(ask(&host, None), Cpu::Lacks(finding) if finding.code == code::WRONG_ARCHITECTURE));
    }
}
