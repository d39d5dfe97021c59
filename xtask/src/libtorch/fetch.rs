//! Getting a libtorch into the user's store: the official archive for a CPU, else the torch wheel.
//!
//! Owns the order of the steps: lock, ways, unpacking beside the store's variants, the rename that makes it one. Whatever
//! ends it before that rename leaves no variant; what it left otherwise the next fetch takes away. Must not print.

mod error;
mod wheels;

use std::fs::TryLockError;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::VariantId;

pub use error::{FetchError, NoWay};

use super::archive::Archive;
use super::cut::{self, Extent};
use super::downloads::{Download, Downloads};
use super::event::{FetchEvent, Listener, human_size};
use super::inspect::{VariantFacts, inspect};
use super::official::{self, Official};
use super::record::{self, FetchRecord, Source};
use super::store::fetched_id;
use super::{Places, Stored, Stores, Variant, tool};
use crate::toolchain::Env;

/// Begins the name of a variant that is being unpacked; no variant id begins with a dot.
const UNPACK: &str = ".unpack-";
/// Left free on the store's disk.
const SLACK: u64 = 64_000_000;

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Without a local part.
    pub version: String,
    /// As in a target triple.
    pub cpu_arch: String,
    /// How much of it.
    pub extent: Extent,
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
    let _downloads_lock = lock(&downloads, listen)?;
    let _store_lock = lock(&places.store(), listen)?;
    if let Some(variant) = present(request, places)? {
        return Ok(variant);
    }
    sweep(&places.store())?;
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
        if let Some(download) = self.downloads.wheel("torch", &request.version, &request.cpu_arch, listen)? {
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
        let in_store = |source| FetchError::Store { folder: store.clone(), source };
        let temporary = tempfile::Builder::new()
            .prefix(UNPACK)
            // Other users of the machine may read a store; the umask still has its word.
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .tempdir_in(&store)
            .map_err(in_store)?;
        let root = Utf8PathBuf::from_path_buf(temporary.path().to_owned())
            .map_err(|path| in_store(std::io::Error::other(format!("`{}` is not UTF-8", path.display()))))?;
        let unpacked = unpack(self, download, &root, listen).map_err(|error| error.on_disk(&store))?;
        listen(FetchEvent::Note("reading what it is".to_owned()));
        let facts = inspect(&root, None)?;
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
        self.describe(&root, &id, &facts, unpacked).map_err(|error| error.on_disk(&store))?;
        if let Some(family) = home.parent() {
            fs_err::create_dir_all(family).map_err(in_store)?;
        }
        if home.exists() {
            // It has no `lib`: a person's own doing, which is not overwritten.
            return Err(FetchError::Occupied { folder: home });
        }
        fs_err::rename(&root, &home).map_err(in_store)?;
        // Its folder is the variant now.
        let _ = temporary.keep();
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
        fetched_id(&facts.accelerator, &facts.version, &facts.cpu_arch)
            .ok_or_else(|| wrong(&facts.version, "a version"))
    }

    /// Writes what belongs to a variant beside its files: `.arch`, and what it was made of.
    fn describe(
        &self,
        root: &Utf8Path,
        id: &VariantId,
        facts: &VariantFacts,
        unpacked: Unpacked,
    ) -> Result<(), FetchError> {
        use torchlift_schema::Accelerator;
        let cuda = if let Accelerator::Cuda(toolkit) = &facts.accelerator { toolkit.as_str() } else { "none" };
        let mut arch = format!("torch={}\ncuda={cuda}\n", facts.version);
        // GPU architectures are not guessed from a version: without the key, a reader looks into the libraries.
        if matches!(facts.accelerator, Accelerator::Cpu) {
            arch.push_str("archs=cpu\n");
        }
        arch.push_str(&format!("source=precompiled\nvariant={id}\nplatform={}\n", facts.cpu_arch));
        cut::write(&root.join(".arch"), arch.as_bytes())?;
        let record = FetchRecord {
            version: record::VERSION,
            id: id.clone(),
            torch: facts.version.clone(),
            is_cut: unpacked.is_cut,
            fetched_at: torchlift::clock::wall().as_secs(),
            torchlift: env!("CARGO_PKG_VERSION").to_owned(),
            sources: unpacked.sources,
        };
        let mut text = serde_json::to_string_pretty(&record)
            .map_err(|error| FetchError::Store { folder: root.to_owned(), source: error.into() })?;
        text.push('\n');
        cut::write(&root.join(record::FILE), text.as_bytes())?;
        Ok(())
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
    let suffix = {
        let id = fetched_id(&torchlift_schema::Accelerator::Cpu, &request.version, &request.cpu_arch);
        id.map(|id| id.as_str().trim_start_matches("precompiled/cpu").to_owned()).unwrap_or_default()
    };
    let is_it = |stored: &Stored| {
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

/// Takes the lock of a folder, making the folder first; says so when it has to wait.
fn lock(folder: &Utf8Path, listen: Listener<'_>) -> Result<fs_err::File, FetchError> {
    let in_folder = |source| FetchError::Store { folder: folder.to_owned(), source };
    fs_err::create_dir_all(folder).map_err(in_folder)?;
    let path = folder.join(".lock");
    let file = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(in_folder)?;
    match file.file().try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            listen(FetchEvent::Note(format!("waiting for another process that holds `{path}`")));
            file.file().lock().map_err(in_folder)?;
        }
        Err(TryLockError::Error(source)) => return Err(in_folder(source)),
    }
    Ok(file)
}

/// Takes away what unpacking left that was killed. Under the lock nobody else unpacks.
fn sweep(store: &Utf8Path) -> Result<(), FetchError> {
    let in_store = |source| FetchError::Store { folder: store.to_owned(), source };
    for entry in store.read_dir_utf8().map_err(in_store)?.flatten() {
        if entry.file_name().starts_with(UNPACK) {
            fs_err::remove_dir_all(entry.path()).map_err(in_store)?;
        }
    }
    Ok(())
}
