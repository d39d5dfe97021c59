//! The way by wheels: the torch wheel, cut or whole, and NVIDIA's wheels that its metadata names.

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::Accelerator;

use super::{FetchError, Job, Unpacked, source};
use crate::libtorch::archive::ArchiveError;
use crate::libtorch::cut::{self, Cut, Missing};
use crate::libtorch::downloads::Download;
use crate::libtorch::event::{FetchEvent, Listener};
use crate::libtorch::pip::{Pip, PipError};
use crate::libtorch::wheel::Wheel;
use crate::libtorch::{official, python, spec};

impl Job<'_> {
    /// A kept torch wheel that is what was asked for.
    pub(super) fn kept_wheel(&self, listen: Listener<'_>) -> Result<Option<Download>, FetchError> {
        let request = self.request;
        let kept = self.downloads.wheels("torch", &request.version, &request.cpu_arch);
        for path in kept {
            if let Some(accelerator) = &request.accelerator {
                // What a wheel is for, a glance into it tells; only one that is right is worth its digest.
                let is_it = Wheel::open(&path).and_then(|mut wheel| wheel.torch_version());
                if !is_it.is_ok_and(|version| is_for(&version, accelerator)) {
                    continue;
                }
            }
            if let Some(download) = self.downloads.kept(&path, listen)? {
                return Ok(Some(download));
            }
        }
        Ok(None)
    }

    /// Downloads the torch wheel, from wherever one of the right sort is.
    pub(super) fn torch_wheel(&self, listen: Listener<'_>) -> Result<Download, FetchError> {
        let version = &self.request.version;
        let plain = format!("torch=={version}");
        let Some(accelerator) = &self.request.accelerator else { return self.one(&plain, None, listen) };
        let label = spec::label(accelerator);
        let local = format!("{plain}+{label}");
        let index = official::wheel_index(self.request.mirror.as_deref(), &label);
        let is_plain = spec::plain(version, &self.request.cpu_arch);
        let mut ways = vec![(local.as_str(), None), (local.as_str(), Some(index.as_str()))];
        match is_plain {
            Some(known) if known == label => ways.insert(0, (plain.as_str(), None)),
            Some(_) => {}
            // A version that nobody knew yet: the wheel is looked at when it is there.
            None => ways.push((plain.as_str(), None)),
        }
        let mut tried = Vec::new();
        for (requirement, index) in ways {
            match self.one(requirement, index, listen) {
                Ok(download) => {
                    let stated = Wheel::open(&download.path)?.torch_version()?;
                    if is_for(&stated, accelerator) {
                        return Ok(download);
                    }
                    tried.push(format!("`{requirement}` is torch {stated}"));
                }
                Err(FetchError::Way(why)) => tried.push(why),
                Err(error) => return Err(error),
            }
        }
        tried.dedup();
        Err(FetchError::Way(tried.join("; ")))
    }

    fn one(&self, requirement: &str, index: Option<&str>, listen: Listener<'_>) -> Result<Download, FetchError> {
        let mut downloads = self.download(&[requirement.to_owned()], index, listen)?;
        match downloads.pop() {
            Some(download) => Ok(download),
            None => Err(FetchError::Way(format!("pip gave no wheel of `{requirement}`"))),
        }
    }

    /// Makes a variant of a torch wheel in `root`.
    pub(super) fn unpack_wheel(
        &self,
        download: &Download,
        root: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<Unpacked, FetchError> {
        let mut wheel = Wheel::open(&download.path)?;
        let version = wheel.torch_version()?;
        let extent = self.request.extent;
        let mut cut = Cut { wheel: &mut wheel, extent, root, cpu_arch: &self.request.cpu_arch };
        self.room(cut.size())?;
        let is_cut = cut.is_cut();
        let missing = cut.unpack(listen)?;
        let mut sources = vec![source(download, "pip")];
        for download in self.add_missing(missing, root, listen)? {
            sources.push(source(&download, "pip"));
        }
        cut::write(&root.join("build-version"), format!("{version}\n").as_bytes())?;
        Ok(Unpacked { is_cut, sources })
    }

    /// Gets the other wheels and takes from them what is wanted.
    fn add_missing(
        &self,
        mut missing: Missing,
        root: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<Vec<Download>, FetchError> {
        let mut all = Vec::new();
        let mut specs = Vec::new();
        for requirement in &missing.requirements {
            let version = requirement.version.as_deref().unwrap_or_default();
            match self.downloads.wheel(&requirement.name, version, &self.request.cpu_arch, listen)? {
                Some(download) => all.push(download),
                None => specs.push(requirement.spec()),
            }
        }
        if !specs.is_empty() {
            listen(FetchEvent::Note(format!("torch needs libraries of {}", specs.join(", "))));
            all.extend(self.download(&specs, None, listen)?);
        }
        for download in &all {
            let mut wheel = Wheel::open(&download.path)?;
            self.room(wheel.archive.files().map(|(_, size)| size).sum())?;
            let taken = missing.take_from(&mut wheel, self.request.extent, root, &mut |_| {});
            if let Err(error) = taken {
                if error.is_damage() {
                    self.downloads.forget(&download.path)?;
                }
                return Err(error.into());
            }
        }
        match missing.first() {
            Some(library) => Err(FetchError::MissingLibrary { library: library.clone() }),
            None => Ok(all),
        }
    }

    /// Downloads wheels by pip and takes them in.
    fn download(
        &self,
        requirements: &[String],
        index: Option<&str>,
        listen: Listener<'_>,
    ) -> Result<Vec<Download>, FetchError> {
        let python = python::with_pip(self.env).map_err(|tried| FetchError::Way(tried.join(", ")))?;
        let pip = Pip { python, env: self.env, cpu_arch: &self.request.cpu_arch, index };
        listen(FetchEvent::Note(format!(
            "asking the pip of `{}` for {} (its size is known when the index answers)",
            pip.python,
            requirements.join(", ")
        )));
        let scratch = self.downloads.partial()?;
        let folder = Utf8PathBuf::from(scratch.path().to_string_lossy().into_owned());
        let out = folder.join("out");
        let in_folder = |source| FetchError::Store { folder: self.downloads.folder.clone(), source };
        fs_err::create_dir_all(&out).map_err(in_folder)?;
        let files = pip.download(requirements, &out, &folder, listen).map_err(|error| match error {
            PipError::Space { folder, needed, available } => FetchError::Space { folder, needed, available },
            PipError::Io(source) => in_folder(source),
            other => FetchError::Way(other.to_string()),
        })?;
        let kept: Result<Vec<Download>, ArchiveError> =
            files.iter().map(|file| self.downloads.keep(file, listen)).collect();
        Ok(kept?)
    }
}

/// Whether a version's local part says this accelerator; one without says nothing, and its libraries will.
fn is_for(version: &str, accelerator: &Accelerator) -> bool {
    version.split_once('+').is_none_or(|(_, label)| spec::accelerator(label).as_ref() == Some(accelerator))
}
