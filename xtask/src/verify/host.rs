//! All checks of one host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use torchlift::preflight::verify::floor::{self, Cpu};
use torchlift::preflight::verify::{Inspection, StartQuestion, VariantFolder, changed};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code, loader};
use torchlift_schema::host::LibcFlavour;
use torchlift_schema::{Accelerator, Finding, HostFacts, Place};

use super::check::{Check, Label, Subject};
use super::fit::{Code, GpuCode};
use super::{Built, Looked, Question, by_name, listed, named, variant_lib};
use crate::facts::Origin;
use crate::libtorch::auto::Gpus;
use crate::plan::accept;

/// Names of libraries that one line has; more are counted.
const MOST_NAMED: usize = 6;

/// A host and what was seen of its binary.
pub(super) struct Look<'a> {
    pub(super) built: &'a Built,
    /// The one that was looked at: the same bytes, maybe another host's.
    pub(super) looked_at: &'a Built,
    pub(super) inspection: &'a Arc<Inspection>,
    pub(super) here: &'a HostLibraries,
    pub(super) question: &'a Question,
}

/// What is said of a host whose binary cannot be looked at.
pub(super) fn unreadable(finding: Finding) -> Looked {
    let findings = vec![finding];
    let how = "the program itself";
    let why = "the program cannot be looked at";
    let rest = [Subject::Libraries, Subject::SystemLibraries, Subject::Symbols, Subject::SymbolVersions, Subject::Cpu];
    let checks = std::iter::once(Check::made(Subject::Bytes, Label::Here, how, &findings))
        .chain(rest.into_iter().map(|subject| Check::not(subject, why)))
        .collect();
    Looked { inspection: None, checks, findings }
}

/// Checks and findings as they come, what was accepted already turned into warnings.
struct Sheet<'a> {
    question: &'a Question,
    checks: Vec<Check>,
    findings: Vec<Finding>,
}

impl Sheet<'_> {
    fn made(&mut self, subject: Subject, label: Label, how: impl Into<String>, findings: Vec<Finding>) {
        let findings = accept(findings, &self.question.accept, |code| !code::INTEGRITY.contains(&code));
        self.checks.push(Check::made(subject, label, how, &findings));
        self.findings.extend(findings);
    }

    fn not(&mut self, subject: Subject, why: impl Into<String>) {
        self.checks.push(Check::not(subject, why));
    }
}

impl Look<'_> {
    /// Makes every check.
    pub(super) fn checks(&self, gpu_code: &mut GpuCode, digests: &mut DigestCache) -> Looked {
        let mut sheet = Sheet { question: self.question, checks: Vec::new(), findings: Vec::new() };
        let mut by_subject: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
        for finding in &self.inspection.findings {
            by_subject.entry(Subject::of(finding)).or_default().push(named(finding, self.built, self.looked_at));
        }
        let mut of = |subject: Subject| by_subject.remove(&subject).unwrap_or_default();
        self.bytes(&mut sheet, digests);
        self.libraries(&mut sheet, of(Subject::Libraries));
        self.symbols(&mut sheet, of(Subject::Symbols));
        self.symbol_versions(&mut sheet, of(Subject::SymbolVersions));
        self.system_versions(&mut sheet);
        if self.built.host.libtorch.is_some() {
            sheet.made(
                Subject::CxxAbi,
                Label::Here,
                "the program's references against the variant",
                of(Subject::CxxAbi),
            );
        }
        let place = self.place();
        let has_libtorch = self.built.host.libtorch.is_some();
        if let Some((how, findings)) = self.built.made.cxx(&self.built.file, self.inspection, has_libtorch, &place) {
            sheet.made(Subject::CxxLibrary, Label::Here, how, findings);
        }
        if let Some((how, findings)) = self.built.made.floor(&self.built.file, self.inspection, &place) {
            sheet.made(Subject::GlibcFloor, Label::Here, how, findings);
        }
        if let Some(library) = self.accelerator_library() {
            sheet.made(Subject::Accelerator, Label::Here, format!("`{library}` is loaded"), of(Subject::Accelerator));
        }
        self.loaded_by_name(&mut sheet);
        self.cpu(&mut sheet, of(Subject::Cpu));
        self.gpu(&mut sheet, gpu_code);
        Looked { inspection: Some(Arc::clone(self.inspection)), checks: sheet.checks, findings: sheet.findings }
    }

    fn place(&self) -> Place {
        Place::file(self.built.place.as_str()).on(&self.built.host.name)
    }

    fn facts(&self) -> Option<&HostFacts> {
        self.built.known.facts.as_ref().map(|known| &known.facts)
    }

    /// Who checks what is held against the host's facts.
    fn label_of_facts(&self) -> Label {
        match self.built.known.facts.as_ref().map(|known| &known.origin) {
            Some(Origin::Saved { .. }) => Label::OnHost,
            Some(Origin::Probed) => Label::Here,
            None => Label::Not,
        }
    }

    fn bytes(&self, sheet: &mut Sheet<'_>, digests: &mut DigestCache) {
        let Some(envelope) = &self.built.envelope else { return };
        let library_path = LibraryPath::parse(envelope.ld_library_path.as_ref());
        let question = StartQuestion {
            program: self.built.file.as_std_path(),
            library_path: &library_path,
            cwd: self.built.cwd.as_std_path(),
            envelope: Some(envelope),
            host_name: Some(&self.built.host.name),
        };
        let findings = changed(envelope, question, Some(&self.inspection.closure), &self.place(), digests);
        sheet.made(Subject::Bytes, Label::Here, "sizes and SHA-256 of the envelope", findings);
    }

    fn libraries(&self, sheet: &mut Sheet<'_>, findings: Vec<Finding>) {
        let closure = &self.inspection.closure;
        let sight = &self.built.known.sight;
        let how = format!("{}, {} found", sight.searched(), closure.objects.len());
        sheet.made(Subject::Libraries, Label::Here, how, findings);
        if sight.is_seen() {
            return;
        }
        let is_told = |name: &&String| self.facts().is_some_and(|facts| facts.library(name).is_some());
        let (told, unknown): (Vec<&String>, Vec<&String>) = self.inspection.unseen.iter().partition(is_told);
        if unknown.is_empty() {
            let how = format!("{}, {}", names(&told), self.built.known.source());
            sheet.made(Subject::SystemLibraries, self.label_of_facts(), how, Vec::new());
        } else {
            sheet.not(Subject::SystemLibraries, format!("{}: {}", names(&unknown), sight.unseen()));
        }
    }

    fn symbols(&self, sheet: &mut Sheet<'_>, findings: Vec<Finding>) {
        let closure = &self.inspection.closure;
        if !closure.is_complete() {
            sheet.not(Subject::Symbols, "a library that may have them is missing");
        } else if !self.inspection.unseen.is_empty() {
            let why = self.built.known.sight.unseen();
            sheet.not(Subject::Symbols, format!("those of the system's libraries are not known here: {why}"));
        } else {
            let how = format!("every reference of {} files", closure.objects.len() + 1);
            sheet.made(Subject::Symbols, Label::Here, how, findings);
        }
    }

    fn symbol_versions(&self, sheet: &mut Sheet<'_>, findings: Vec<Finding>) {
        let how = if self.built.known.sight.is_seen() {
            "what the libraries that were found offer"
        } else {
            "what the program and its variant offer each other"
        };
        sheet.made(Subject::SymbolVersions, Label::Here, how, findings);
    }

    /// The program and all that it loads.
    fn loaded(&self) -> impl Iterator<Item = floor::Needing<'_>> {
        let program = (self.built.place.as_std_path(), &self.inspection.facts);
        let objects = self.inspection.closure.objects.iter();
        std::iter::once(program).chain(objects.map(|object| (object.path.as_path(), &object.facts)))
    }

    /// The versions of the host's own libraries, as its facts have them.
    fn system_versions(&self, sheet: &mut Sheet<'_>) {
        let known = &self.built.known;
        let Some(facts) = self.facts() else {
            if known.sight.is_seen() {
                // The very files were asked, and what they lack has its finding among the symbol versions.
                let all: Vec<floor::Needing<'_>> = self.loaded().collect();
                let how = format!("{}; held against the files that were found", needed(&all));
                sheet.made(Subject::SystemVersions, Label::Here, how, Vec::new());
                return;
            }
            let why = format!("no facts of the host: `torchlift probe --save --host {}` there", self.built.host.name);
            sheet.not(Subject::SystemVersions, why);
            return;
        };
        let closure = &self.inspection.closure;
        // What the host has by its own facts needs nothing of it that it has not.
        let variant = variant_lib(self.built).map(|lib| VariantFolder::new(lib.as_std_path()));
        let is_of_variant = |path: &Path| variant.as_ref().is_some_and(|variant| variant.holds(path));
        let loaded: Vec<_> = closure.objects.iter().filter(|object| is_of_variant(&object.path)).collect();
        let program = (self.built.place.as_std_path(), &self.inspection.facts);
        let needing: Vec<floor::Needing<'_>> = std::iter::once(program)
            .chain(loaded.iter().map(|object| (object.path.as_path(), &object.facts)))
            .collect();
        let ours: BTreeSet<&str> = loaded
            .iter()
            .flat_map(|object| [Some(object.name.as_str()), object.facts.soname.as_deref()])
            .flatten()
            .collect();
        let source = known.source();
        let floors = floor::versions(&needing, |name| ours.contains(name), facts, &source, &self.place());
        // This machine's own loader was asked already, and names the very file.
        let is_told = known.sight.is_this_machine()
            && matches!(known.facts.as_ref().map(|known| &known.origin), Some(Origin::Probed));
        // The loader's own versions are the C library's.
        let unknown: Vec<&String> = floors.unknown.iter().filter(|name| !name.starts_with("ld-linux")).collect();
        if !unknown.is_empty() && !is_told {
            let have = offered(facts);
            let why = format!("what {} offers is not in the facts ({source}){have}", names(&unknown));
            if floors.findings.is_empty() {
                sheet.not(Subject::SystemVersions, why);
                return;
            }
        }
        let findings = if is_told { Vec::new() } else { floors.findings };
        let how = format!("{}{}, {source}", needed(&needing), offered(facts));
        sheet.made(Subject::SystemVersions, self.label_of_facts(), how, findings);
    }

    /// The GPU library of the variant.
    fn accelerator_library(&self) -> Option<&'static str> {
        match self.built.host.libtorch.as_ref()?.accelerator {
            Accelerator::Cuda(_) => Some("libtorch_cuda.so"),
            Accelerator::Rocm(_) => Some("libtorch_hip.so"),
            _ => None,
        }
    }

    fn loaded_by_name(&self, sheet: &mut Sheet<'_>) {
        let (Some(lib), Some(libtorch)) = (variant_lib(self.built), &self.built.host.libtorch) else { return };
        let library_path = LibraryPath::parse(self.built.host.ld_library_path.as_ref());
        let sight = &self.built.known.sight;
        // A name is searched for as by the library that asks for it; that needs a path of its own only in rare trees.
        let is_found = |name: &str| {
            let arch = &self.inspection.facts.arch;
            let cwd = self.built.cwd.as_std_path();
            sight.system(self.here).is_some_and(|system| loader::locate(name, arch, &library_path, cwd, system).is_ok())
        };
        let asked = by_name::check(&self.inspection.closure, &lib, &libtorch.version, &self.place(), is_found);
        match asked {
            asked if asked.count == 0 => {}
            asked if !sight.is_seen() && !asked.findings.is_empty() => {
                let missing: Vec<&String> = asked.missing.iter().collect();
                let why = format!("{} is not in the variant: {}", names(&missing), sight.unseen());
                sheet.not(Subject::LoadedByName, why);
            }
            asked => {
                let how = format!("{} that usual programs need", asked.count);
                sheet.made(Subject::LoadedByName, Label::Here, how, asked.findings);
            }
        }
    }

    fn cpu(&self, sheet: &mut Sheet<'_>, mut findings: Vec<Finding>) {
        let known = &self.built.known;
        let level = self.built.cpu_level.as_deref();
        let program = (self.built.place.as_std_path(), &self.inspection.facts);
        let asked = match level {
            Some(level) => format!("{} of level `{level}`", self.inspection.facts.arch),
            None => self.inspection.facts.arch.clone(),
        };
        let held = self.facts().map(|facts| floor::cpu(program, level, facts, &known.source(), &self.place()));
        match held {
            Some(Cpu::Fits) => {
                sheet.made(Subject::Cpu, self.label_of_facts(), format!("{asked}, {}", known.source()), findings);
            }
            Some(Cpu::Lacks(finding)) => {
                let is_new = findings.iter().all(|other| other.code != finding.code);
                findings.extend(is_new.then_some(*finding));
                sheet.made(Subject::Cpu, self.label_of_facts(), format!("{asked}, {}", known.source()), findings);
            }
            _ if !findings.is_empty() => sheet.made(Subject::Cpu, Label::Here, asked, findings),
            Some(Cpu::Unknown) => {
                sheet.not(Subject::Cpu, format!("needs {asked}, and the level of the host is not in its facts"));
            }
            None if known.sight.has_known_cpu() && level.is_none() => {
                sheet.made(Subject::Cpu, Label::Here, asked, findings)
            }
            None => sheet.not(Subject::Cpu, format!("needs {asked}, and there are no facts of the host")),
        }
    }

    fn gpu(&self, sheet: &mut Sheet<'_>, gpu_code: &mut GpuCode) {
        let known = &self.built.known;
        let Some(gpus) = &known.gpus else { return };
        if self.accelerator_library().is_none() {
            return;
        }
        let Gpus::Known(devices) = &gpus.machine.gpus else {
            sheet.not(Subject::Gpu, "nothing says which cards the host has");
            return;
        };
        if devices.is_empty() {
            sheet.not(Subject::Gpu, format!("the host has no card ({})", known.source()));
            return;
        }
        let code = Code {
            host: &self.built.host,
            gpus,
            binary: self.looked_at.file.as_std_path(),
            inspection: self.inspection,
        };
        let findings = gpu_code.findings(&code).into_iter().filter(|finding| !is_told(finding, &self.question.told));
        let cards: Vec<String> = devices.iter().map(ToString::to_string).collect();
        let label = if self.facts().is_some() { self.label_of_facts() } else { Label::Here };
        sheet.made(Subject::Gpu, label, cards.join(", "), findings.collect());
    }
}

/// Whether the plan has told this of the host already; what was accepted has its reason behind it.
fn is_told(finding: &Finding, told: &[Finding]) -> bool {
    told.iter().any(|other| {
        (&other.code, &other.place.host) == (&finding.code, &finding.place.host)
            && other.message.starts_with(&finding.message)
    })
}

/// `needs glibc 2.28, libstdc++ 3.4.21`: the highest of all.
fn needed(needing: &[floor::Needing<'_>]) -> String {
    let all = || needing.iter().flat_map(|(_, elf)| &elf.version_needs).flat_map(|need| &need.versions);
    let highest = |prefix| torchlift::preflight::elf::highest(all().map(|version| version.name.as_str()), prefix);
    let floors = [("glibc", "GLIBC_"), ("libstdc++", "GLIBCXX_"), ("libgcc", "GCC_")];
    let floors: Vec<String> =
        floors.iter().filter_map(|(name, prefix)| Some(format!("{name} {}", highest(prefix)?))).collect();
    if floors.is_empty() { "needs no version".to_owned() } else { format!("needs {}", floors.join(", ")) }
}

/// `; the host has glibc 2.36, libstdc++ 3.4.30`, as far as its facts go.
fn offered(facts: &HostFacts) -> String {
    let libc = facts.libc.as_ref().and_then(|libc| {
        let name = match libc.flavour {
            LibcFlavour::Glibc => "glibc",
            LibcFlavour::Musl => "musl",
        };
        Some(format!("{name} {}", libc.version.as_ref()?))
    });
    let highest = |library, prefix, name| Some(format!("{name} {}", facts.library(library)?.highest(prefix)?));
    let stdcxx = highest("libstdc++.so.6", "GLIBCXX_", "libstdc++");
    let gcc = highest("libgcc_s.so.1", "GCC_", "libgcc");
    let all: Vec<String> = [libc, stdcxx, gcc].into_iter().flatten().collect();
    if all.is_empty() { String::new() } else { format!("; the host has {}", all.join(", ")) }
}

/// The first of these names, and how many more there are.
fn names(names: &[&String]) -> String {
    listed(names.iter().map(|name| name.as_str()), MOST_NAMED)
}
