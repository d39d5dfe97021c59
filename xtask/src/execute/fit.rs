//! Whether what a built program loads has code for the cards of its host.
//!
//! The kernels of the variant are judged before a build ([`crate::plan`]); here it is the program's own code, and every
//! other library that it would load or ask for by name. What runs where is [`torchlift::preflight::fit`]'s to say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use camino::Utf8Path;
use torchlift::preflight::fatbin::{self, FatbinProblem, GpuContent};
use torchlift::preflight::fit::{self, LibraryCode, Role};
use torchlift::preflight::verify::Inspection;
use torchlift_schema::{Finding, Place};

use crate::facts::HostGpus;
use crate::libtorch::auto::{Candidate, Gpus};
use crate::libtorch::survey::followers;
use crate::plan::HostBuild;

/// The GPU code of files outside of variants, each read once.
#[derive(Debug, Default)]
pub(super) struct GpuCode {
    by_path: BTreeMap<PathBuf, Option<GpuContent>>,
}

/// A program that was looked at.
pub(super) struct Looked<'a> {
    pub(super) host: &'a HostBuild,
    pub(super) gpus: &'a HostGpus,
    /// The file that has its bytes now.
    pub(super) binary: &'a Utf8Path,
    pub(super) inspection: &'a Inspection,
}

impl GpuCode {
    /// Findings about the cards of a host; none where its cards are not known, or it has none.
    pub(super) fn findings(&mut self, looked: &Looked<'_>) -> Vec<Finding> {
        let Gpus::Known(devices) = &looked.gpus.machine.gpus else { return Vec::new() };
        if devices.is_empty() {
            return Vec::new();
        }
        let variant = looked.variant();
        let program = looked.binary.as_std_path();
        let elsewhere =
            looked.objects().filter(|(_, path)| variant.as_ref().is_none_or(|variant| !variant.holds(path)));
        for path in elsewhere.map(|(_, path)| path).chain([program]) {
            // What cannot be read has a finding of the loader's already.
            self.by_path.entry(path.to_owned()).or_insert_with(|| fatbin::read(path).ok().flatten());
        }
        let content = |path: &Path| self.by_path.get(path)?.as_ref();
        let name = looked.host.bin.rsplit('/').next().unwrap_or_default();
        let own = content(program).map(|content| LibraryCode { name, role: Role::Decisive, content, toolkit: None });
        let elsewhere = looked.objects().filter_map(|(name, path)| {
            Some(LibraryCode { name, role: Role::of_library(name, false), content: content(path)?, toolkit: None })
        });
        let of_variant = variant.iter().flat_map(|variant| variant.loaded(looked));
        let libraries: Vec<LibraryCode<'_>> = own.into_iter().chain(elsewhere).chain(of_variant).collect();
        let question = fit::Question {
            place: Place::host(&looked.host.name),
            devices,
            driver: looked.gpus.machine.driver.as_ref(),
            gfx_override: looked.gpus.machine.gfx_override.as_deref(),
            libraries: &libraries,
        };
        let mut findings = fit::check(&question).findings;
        // What could not be read was not judged. Of a variant's own `libtorch inspect` tells it.
        let elsewhere = looked.objects().filter_map(|(name, path)| Some((name, content(path)?)));
        for (name, content) in content(program).map(|content| (name, content)).into_iter().chain(elsewhere) {
            findings.extend(content.problems.first().map(|first| damaged(&looked.host.name, name, first)));
        }
        findings
    }
}

/// That code was passed over, since it could not be read.
fn damaged(host: &str, name: &str, problem: &FatbinProblem) -> Finding {
    let message = format!("the GPU code of `{name}` cannot be read whole: {problem}");
    Finding::warning("gpu-code-damaged", Place::host(host), message)
        .remedy("build it anew; whether a card runs what was not read is not known")
}

impl<'a> Looked<'a> {
    /// The libraries that would be loaded: by what name, from which file.
    fn objects(&self) -> impl Iterator<Item = (&'a str, &'a Path)> + use<'a> {
        self.inspection.closure.objects.iter().map(|object| (object.name.as_str(), object.path.as_path()))
    }

    fn variant(&self) -> Option<VariantCode<'a>> {
        let libtorch = self.host.libtorch.as_ref()?;
        let lib = libtorch.root.join("lib");
        let lib = fs_err::canonicalize(lib.as_std_path()).unwrap_or_else(|_| lib.into());
        Some(VariantCode { lib, candidate: self.gpus.variant.as_ref()? })
    }
}

/// The GPU code of a variant, which was read before the build.
struct VariantCode<'a> {
    lib: PathBuf,
    candidate: &'a Candidate,
}

impl<'a> VariantCode<'a> {
    /// Whether a file is an entry of its folder, whatever links lead there.
    fn holds(&self, file: &Path) -> bool {
        file.parent().and_then(|folder| fs_err::canonicalize(folder).ok()).is_some_and(|folder| folder == self.lib)
    }

    /// Its libraries that would be loaded, now or by name later, but for its kernels.
    fn loaded(&self, looked: &Looked<'_>) -> Vec<LibraryCode<'a>> {
        let is_here = |(_, path): &(&str, &Path)| self.holds(path);
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let loaded: Vec<String> = looked.objects().filter(is_here).filter_map(|(_, path)| name(path)).collect();
        let loaded: BTreeSet<&str> = loaded.iter().map(String::as_str).collect();
        let there: Vec<String> = fs_err::read_dir(&self.lib)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        let by_name = followers(&self.candidate.version, &there.iter().map(String::as_str).collect(), &loaded);
        let is_loaded = |library: &LibraryCode<'_>| loaded.contains(library.name) || by_name.contains(library.name);
        let further = |library: &LibraryCode<'_>| library.role == Role::Further;
        self.candidate.libraries().into_iter().filter(is_loaded).filter(further).collect()
    }
}
