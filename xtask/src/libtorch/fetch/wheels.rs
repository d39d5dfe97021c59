//! The way by wheels: the torch wheel, cut or whole, and NVIDIA's wheels that its metadata names.

use camino::{Utf8Path, Utf8PathBuf};

use super::{FetchError, Job, Unpacked, source};
use crate::libtorch::archive::ArchiveError;
use crate::libtorch::cut::{self, Cut, Missing};
use crate::libtorch::downloads::Download;
use crate::libtorch::event::{FetchEvent, Listener};
use crate::libtorch::pip::{Pip, PipError};
use crate::libtorch::python;
use crate::libtorch::wheel::Wheel;

impl Job<'_> {
    /// Downloads the torch wheel.
    pub(super) fn torch_wheel(&self, listen: Listener<'_>) -> Result<Download, FetchError> {
        let requirement = format!("torch=={}", self.request.version);
        let mut downloads = self.download(std::slice::from_ref(&requirement), listen)?;
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
        let version = torch_version(&mut wheel)?;
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
            all.extend(self.download(&specs, listen)?);
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
    fn download(&self, requirements: &[String], listen: Listener<'_>) -> Result<Vec<Download>, FetchError> {
        let python = python::with_pip(self.env).map_err(|tried| FetchError::Way(tried.join(", ")))?;
        let pip = Pip { python, env: self.env, cpu_arch: &self.request.cpu_arch };
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

/// The version with its local part, as the wheel's own `torch/version.py` has it; its metadata leaves that out.
fn torch_version(wheel: &mut Wheel) -> Result<String, ArchiveError> {
    let text = match wheel.archive.has("torch/version.py") {
        true => wheel.archive.read("torch/version.py")?,
        false => Vec::new(),
    };
    let text = String::from_utf8_lossy(&text);
    let stated = text.lines().find_map(|line| line.strip_prefix("__version__ = "));
    Ok(stated.map_or_else(|| wheel.version.clone(), |version| version.trim().trim_matches(['\'', '"']).to_owned()))
}
