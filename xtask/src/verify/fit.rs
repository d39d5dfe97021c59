//! Whether what a built program loads has code for the cards of its host.
//!
//! The kernels of the variant are judged before a build ([`crate::plan`]); here it is the program's own code, and every
//! other library that it would load or ask for by name. What runs where is [`torchlift::preflight::fit`]'s to say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use torchlift::preflight::fatbin::{self, FatbinProblem, GpuContent};
use torchlift::preflight::fit::{self, LibraryCode, Role};
use torchlift::preflight::verify::{Inspection, VariantFolder};
use torchlift_schema::{Finding, Place};

use crate::facts::HostGpus;
use crate::libtorch::auto::Gpus;
use crate::libtorch::survey::followers;
use crate::plan::HostBuild;

/// The GPU code of files outside of variants, each read once.
#[derive(Debug, Default)]
pub(super) struct GpuCode {
    by_path: BTreeMap<PathBuf, Option<GpuContent>>,
}

/// A program that was looked at, and the cards that it is for.
pub(super) struct Code<'a> {
    pub(super) host: &'a HostBuild,
    pub(super) gpus: &'a HostGpus,
    /// The file that has its bytes now.
    pub(super) binary: &'a Path,
    pub(super) inspection: &'a Inspection,
}

impl GpuCode {
    /// Findings about the cards of a host; none where its cards are not known, or it has none.
    pub(super) fn findings<'l>(&mut self, code: &Code<'l>) -> Vec<Finding> {
        let Gpus::Known(devices) = &code.gpus.machine.gpus else { return Vec::new() };
        if devices.is_empty() {
            return Vec::new();
        }
        let (here, elsewhere) = code.objects();
        let program = code.binary;
        let name = code.host.bin.rsplit('/').next().unwrap_or_default();
        for (_, path) in elsewhere.iter().copied().chain([(name, program)]) {
            // What cannot be read has a finding of the loader's already.
            self.by_path.entry(path.to_owned()).or_insert_with(|| fatbin::read(path).ok().flatten());
        }
        let role = |(name, path): Object<'l>| (name, path, Role::of_library(name, false));
        let judged = [(name, program, Role::Decisive)].into_iter().chain(elsewhere.into_iter().map(role));
        let outside: Vec<LibraryCode<'_>> = judged
            .filter_map(|(name, path, role)| {
                let content = self.by_path.get(path)?.as_ref()?;
                Some(LibraryCode { name, role, content, toolkit: None })
            })
            .collect();
        let libraries: Vec<LibraryCode<'_>> = outside.iter().cloned().chain(code.of_variant(&here)).collect();
        let question = fit::Question {
            place: Place::host(&code.host.name),
            devices,
            driver: code.gpus.machine.driver.as_ref(),
            gfx_override: code.gpus.machine.gfx_override.as_deref(),
            libraries: &libraries,
        };
        let mut findings = fit::check(&question).findings;
        // What could not be read was not judged. Of a variant's own `libtorch inspect` tells it.
        findings.extend(
            outside
                .iter()
                .filter_map(|library| Some(damaged(&code.host.name, library.name, library.content.problems.first()?))),
        );
        findings
    }
}

/// That code was passed over, since it could not be read.
fn damaged(host: &str, name: &str, problem: &FatbinProblem) -> Finding {
    let message = format!("the GPU code of `{name}` cannot be read whole: {problem}");
    Finding::warning("gpu-code-damaged", Place::host(host), message)
        .remedy("build it anew; whether a card runs what was not read is not known")
}

/// A library that would be loaded: by what name, from which file.
type Object<'a> = (&'a str, &'a Path);

impl<'a> Code<'a> {
    /// The libraries that would be loaded, those in the variant first and then the others.
    fn objects(&self) -> (Vec<Object<'a>>, Vec<Object<'a>>) {
        let variant = self.host.libtorch.as_ref().filter(|_| self.gpus.variant.is_some());
        let variant = variant.map(|libtorch| VariantFolder::new(libtorch.root.join("lib").as_std_path()));
        let objects = self.inspection.closure.objects.iter();
        let objects = objects.map(|object| (object.name.as_str(), object.path.as_path()));
        objects.partition(|(_, path)| variant.as_ref().is_some_and(|variant| variant.holds(path)))
    }

    /// The code of the variant's libraries that would be loaded, now (`here`) or by name later, but for its kernels.
    fn of_variant(&self, here: &[Object<'a>]) -> Vec<LibraryCode<'a>> {
        let (Some(libtorch), Some(candidate)) = (&self.host.libtorch, &self.gpus.variant) else { return Vec::new() };
        let name = |(_, path): &Object<'_>| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let loaded: Vec<String> = here.iter().filter_map(name).collect();
        let loaded: BTreeSet<&str> = loaded.iter().map(String::as_str).collect();
        let there: Vec<String> = fs_err::read_dir(libtorch.root.join("lib"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        let by_name = followers(&candidate.version, &there.iter().map(String::as_str).collect(), &loaded);
        let is_loaded = |library: &LibraryCode<'_>| loaded.contains(library.name) || by_name.contains(library.name);
        let further = |library: &LibraryCode<'_>| library.role == Role::Further;
        candidate.libraries().into_iter().filter(is_loaded).filter(further).collect()
    }
}
