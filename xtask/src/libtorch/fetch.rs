//! Getting a libtorch into the user's store: the official archive for a CPU, else the torch wheel.
//!
//! Owns the order of the steps: lock, ways, what counts as what was asked for. How a variant comes into the store is
//! `super::stage`'s. Must not print.

mod error;
mod wheels;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Accelerator, VariantId};

pub use error::{FetchError, NoWay};

use super::arch::Making;
use super::archive::{Archive, SLACK};
use super::cut::{self, Extent};
use super::downloads::{Download, Downloads};
use super::event::{FetchEvent, Listener, human_size};
use super::inspect::{VariantFacts, inspect};
use super::official::{self, Official};
use super::record::Source;
use super::stage::{self, Made, Stage};
use super::store::fetched_id;
use super::{Places, Stored, Stores, Variant, spec, tool};
use crate::toolchain::Env;

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Without a local part.
    pub version: String,
    /// As in a target triple.
    pub cpu_arch: String,
    /// How much of it.
    pub extent: Extent,
    /// The very accelerator, with the whole; none takes the one that the index has.
    pub accelerator: Option<Accelerator>,
    /// Where official archives lie, instead of their own host.
    pub mirror: Option<String>,
}

/// Gets the variant, or finds that it is there.
///
/// Several processes may call it at once: the others wait, and then find it.
///
/// # Errors
/// One variant for each thing that a person can mend; [`FetchError::NoWay`] when every way was tried.
pub fn fetch(request: &Request, places: &Places, env: &Env, listen: Listener<'_>) -> Result<Variant, FetchError> {
    if let Some(variant) = present(request, places)? {
        return Ok(variant);
    }
    let downloads = places.downloads();
    // The downloads first, then the store: a fixed order, since two stores may share the downloads.
    let _downloads_lock = stage::lock(&downloads, listen)?;
    let _store_lock = stage::lock(&places.store(), listen)?;
    if let Some(variant) = present(request, places)? {
        return Ok(variant);
    }
    stage::sweep(&places.store())?;
    let job = Job { request, places, env, downloads: Downloads::open(downloads)? };
    job.run(listen)
}

struct Job<'a> {
    request: &'a Request,
    places: &'a Places,
    env: &'a Env,
    downloads: Downloads,
}

/// What was put into the folder that becomes the variant.
struct Unpacked {
    is_cut: bool,
    sources: Vec<Source>,
}

impl Job<'_> {
    fn run(&self, listen: Listener<'_>) -> Result<Variant, FetchError> {
        let request = self.request;
        let mut tried = Vec::new();
        if request.extent == Extent::Cpu && request.cpu_arch == "x86_64" {
            let whole = self.downloads.folder.join(official::file_name(&request.version));
            if let Some(download) = self.downloads.kept(&whole, listen)? {
                return self.once_more(&download, listen, Self::unpack_official);
            }
        }
        // A kept wheel needs no network at all, so it comes before a question to a distant host.
        if let Some(download) = self.kept_wheel(listen)? {
            return self.once_more(&download, listen, Self::unpack_wheel);
        }
        if request.extent == Extent::Cpu {
            match self.official(listen)? {
                Ok(download) => return self.once_more(&download, listen, Self::unpack_official),
                Err(why) => {
                    listen(FetchEvent::Note(format!("no official archive: {why}")));
                    tried.push(why);
                }
            }
        }
        match self.torch_wheel(listen) {
            Ok(download) => self.once_more(&download, listen, Self::unpack_wheel),
            Err(FetchError::Way(why)) => {
                tried.push(why);
                Err(FetchError::NoWay(Box::new(NoWay {
                    version: request.version.clone(),
                    cpu_arch: request.cpu_arch.clone(),
                    tried,
                    store: self.places.store(),
                    downloads: self.downloads.folder.clone(),
                })))
            }
            Err(error) => Err(error),
        }
    }

    /// Unpacks and stores; a kept download that turns out damaged is thrown away and the whole is done once more.
    fn once_more(
        &self,
        download: &Download,
        listen: Listener<'_>,
        unpack: impl Fn(&Self, &Download, &Utf8Path, Listener<'_>) -> Result<Unpacked, FetchError>,
    ) -> Result<Variant, FetchError> {
        match self.store(download, listen, unpack) {
            Err(FetchError::Archive(error)) if error.is_damage() => {
                self.downloads.forget(&download.path)?;
                if !download.is_kept {
                    return Err(FetchError::Archive(error));
                }
                listen(FetchEvent::Note(format!("{error}; it is fetched again")));
                self.run(listen)
            }
            result => result,
        }
    }

    fn store(
        &self,
        download: &Download,
        listen: Listener<'_>,
        unpack: impl Fn(&Self, &Download, &Utf8Path, Listener<'_>) -> Result<Unpacked, FetchError>,
    ) -> Result<Variant, FetchError> {
        let store = self.places.store();
        let stage = Stage::open(&store)?;
        let unpacked = unpack(self, download, &stage.root, listen).map_err(|error| error.on_disk(&store))?;
        listen(FetchEvent::Note("reading what it is".to_owned()));
        let facts = inspect(&stage.root, None)?;
        let id = self.check(&facts)?;
        if request_is_wider(self.request, &facts) {
            listen(FetchEvent::Note(format!(
                "torch {} of this wheel has no GPU libraries: it is for a CPU",
                facts.version
            )));
        }
        let home = store.join(id.as_str());
        if home.join("lib").is_dir() {
            // Only the unpacked libraries told what the wheel is, and the store has exactly that already.
            let facts = inspect(&home, Some(&self.places.facts()))?;
            return Ok(Variant { id: Some(id), root: home, facts });
        }
        let Unpacked { is_cut, sources } = unpacked;
        let made = Made { id: &id, facts: &facts, making: Making::Precompiled, is_cut, sources };
        let home = stage.publish(made, listen)?.root;
        let facts = inspect(&home, Some(&self.places.facts()))?;
        Ok(Variant { id: Some(id), root: home, facts })
    }

    fn check(&self, facts: &VariantFacts) -> Result<VariantId, FetchError> {
        let wrong =
            |found: &str, wanted: &str| FetchError::Other { found: found.to_owned(), wanted: wanted.to_owned() };
        if facts.public_version() != self.request.version {
            return Err(wrong(&facts.version, &self.request.version));
        }
        if facts.cpu_arch != self.request.cpu_arch {
            return Err(wrong(&facts.cpu_arch, &self.request.cpu_arch));
        }
        if let Some(wanted) = self.request.accelerator.as_ref().filter(|wanted| **wanted != facts.accelerator) {
            return Err(wrong(&spec::label(&facts.accelerator), &spec::label(wanted)));
        }
        fetched_id(&facts.accelerator, &facts.version, &facts.cpu_arch)
            .ok_or_else(|| wrong(&facts.version, "a version"))
    }

    /// Downloads the official archive; the inner error says why there is none.
    fn official(&self, listen: Listener<'_>) -> Result<Result<Download, String>, FetchError> {
        let request = self.request;
        let official = match Official::ask(&request.version, &request.cpu_arch, request.mirror.as_deref(), self.env) {
            Ok(official) => official,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let size = official.size.map_or_else(|| "of unknown size".to_owned(), human_size);
        listen(FetchEvent::Note(format!("libtorch {} for a CPU: `{}`, {size}", request.version, official.url())));
        let scratch = self.downloads.partial()?;
        let log = Utf8PathBuf::from(scratch.path().to_string_lossy().into_owned()).join("curl.log");
        // Outside the scratch folder, so that an interrupted download can go on; renamed once it is whole.
        let partial = self.downloads.folder.join(format!("{}.part", official::file_name(&request.version)));
        match official.download(&partial, &log, listen) {
            Ok(()) => {}
            Err(official::OfficialError::Space { folder, needed, available }) => {
                return Err(FetchError::Space { folder, needed, available });
            }
            Err(error) => return Ok(Err(error.to_string())),
        }
        let staged = Utf8PathBuf::from(scratch.path().to_string_lossy().into_owned())
            .join(official::file_name(&request.version));
        fs_err::rename(&partial, &staged)
            .map_err(|source| FetchError::Store { folder: self.downloads.folder.clone(), source })?;
        Ok(Ok(self.downloads.keep(&staged, listen)?))
    }

    fn unpack_official(
        &self,
        download: &Download,
        root: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<Unpacked, FetchError> {
        let mut archive = Archive::open(&download.path)?;
        self.room(archive.files().map(|(_, size)| size).sum())?;
        cut::unpack_official(&mut archive, root, listen)?;
        Ok(Unpacked { is_cut: false, sources: vec![source(download, "official archive")] })
    }

    /// Whether the store's disk has room for so many bytes.
    fn room(&self, bytes: u64) -> Result<(), FetchError> {
        let folder = self.places.store();
        let needed = bytes + SLACK;
        match tool::free_space(&folder) {
            Some(available) if available < needed => Err(FetchError::Space { folder, needed, available }),
            _ => Ok(()),
        }
    }
}

/// Whether GPU libraries were asked for and a variant without any came: on some CPUs an index has no other.
fn request_is_wider(request: &Request, facts: &VariantFacts) -> bool {
    request.extent == Extent::Whole && matches!(facts.accelerator, torchlift_schema::Accelerator::Cpu)
}

fn source(download: &Download, origin: &str) -> Source {
    Source {
        file: download.path.file_name().unwrap_or_default().to_owned(),
        size: download.size,
        sha256: download.sha256.clone(),
        origin: if download.is_kept { "kept download" } else { origin }.to_owned(),
    }
}

/// The variant that the request would make, when the user's store has it already.
fn present(request: &Request, places: &Places) -> Result<Option<Variant>, FetchError> {
    let stores = Stores::new(None, places);
    let id = |accelerator: &Accelerator| fetched_id(accelerator, &request.version, &request.cpu_arch);
    let suffix = id(&Accelerator::Cpu);
    let suffix = suffix.map(|id| id.as_str().trim_start_matches("precompiled/cpu").to_owned()).unwrap_or_default();
    let is_it = |stored: &Stored| {
        if let Some(accelerator) = &request.accelerator {
            return id(accelerator).as_ref() == Some(&stored.id);
        }
        let Some(name) = stored.id.as_str().strip_prefix("precompiled/") else { return false };
        let Some(toolkit) = name.strip_suffix(&suffix) else { return false };
        match request.extent {
            Extent::Cpu => toolkit == "cpu",
            Extent::Whole => toolkit.starts_with("cu") || toolkit.starts_with("rocm"),
        }
    };
    match stores.list().into_iter().find(is_it) {
        Some(stored) => {
            let facts = inspect(&stored.root, Some(&places.facts()))?;
            Ok(Some(Variant { id: Some(stored.id), root: stored.root, facts }))
        }
        None => Ok(None),
    }
}
