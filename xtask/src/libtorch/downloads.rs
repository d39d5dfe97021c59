//! The folder of downloads: whole files only, each with its digest beside it.
//!
//! A file comes in by a rename once it is whole, so that one that is there was downloaded to its end. Its `.sha256`
//! beside it is what a later use is held against.

use camino::{Utf8Path, Utf8PathBuf};

use super::archive::{ArchiveError, file_digest};
use super::event::{FetchEvent, Listener};
use super::wheel::FileName;

/// One download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Download {
    /// Where it lies.
    pub path: Utf8PathBuf,
    /// Bytes.
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// Whether it was there before.
    pub is_kept: bool,
}

/// Bytes of a digest with its file's name.
const DIGEST_LIMIT: u64 = 4096;
/// Begins the name of what is not whole yet.
const PARTIAL: &str = ".partial-";

/// The folder of downloads.
pub(super) struct Downloads {
    /// Absolute.
    pub folder: Utf8PathBuf,
}

impl Downloads {
    /// Makes the folder and takes away what interrupted downloads left. Call it under the fetch lock only.
    pub(super) fn open(folder: Utf8PathBuf) -> Result<Self, ArchiveError> {
        let in_folder = |source| ArchiveError::File { file: folder.clone(), source };
        fs_err::create_dir_all(&folder).map_err(in_folder)?;
        for entry in folder.read_dir_utf8().map_err(in_folder)?.flatten() {
            if entry.file_name().starts_with(PARTIAL) && entry.path().is_dir() {
                fs_err::remove_dir_all(entry.path()).map_err(in_folder)?;
            }
        }
        Ok(Self { folder })
    }

    /// A fresh folder for a download that is under way; gone when it is dropped.
    pub(super) fn partial(&self) -> Result<tempfile::TempDir, ArchiveError> {
        tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(&self.folder)
            .map_err(|source| ArchiveError::File { file: self.folder.clone(), source })
    }

    /// A kept wheel of this package, version (with any local part) and CPU architecture that is still what it was.
    pub(super) fn wheel(
        &self,
        name: &str,
        version: &str,
        cpu_arch: &str,
        listen: Listener<'_>,
    ) -> Result<Option<Download>, ArchiveError> {
        for path in self.wheels(name, version, cpu_arch) {
            if let Some(download) = self.kept(&path, listen)? {
                return Ok(Some(download));
            }
        }
        Ok(None)
    }

    /// The wheels of this package, version (with any local part) and CPU architecture that lie here, by their names.
    pub(super) fn wheels(&self, name: &str, version: &str, cpu_arch: &str) -> Vec<Utf8PathBuf> {
        let is_it = |path: &Utf8PathBuf| {
            path.file_name().and_then(FileName::parse).is_some_and(|file| {
                file.name == name
                    && super::inspect::public_version(&file.version) == super::inspect::public_version(version)
                    && file.is_for(cpu_arch)
            })
        };
        let entries = self.folder.read_dir_utf8().into_iter().flatten().flatten();
        let mut files: Vec<Utf8PathBuf> = entries.map(camino::Utf8DirEntry::into_path).filter(is_it).collect();
        files.sort();
        files
    }

    /// A file that is kept here, held against its digest; a damaged one is taken away and said.
    pub(super) fn kept(&self, path: &Utf8Path, listen: Listener<'_>) -> Result<Option<Download>, ArchiveError> {
        let Ok(meta) = fs_err::metadata(path) else { return Ok(None) };
        if !meta.is_file() {
            return Ok(None);
        }
        let sha256 = digest_told(path, meta.len(), listen)?;
        let beside = beside(path);
        match super::small::read(&beside, DIGEST_LIMIT).map(|text| text.unwrap_or_default()) {
            // Put there by hand, or the power went between two renames: its own lists decide.
            Ok(text) if text.is_empty() => write_beside(path, &sha256)?,
            Ok(text) if String::from_utf8_lossy(&text).split_whitespace().next() != Some(sha256.as_str()) => {
                listen(FetchEvent::Note(format!("`{path}` is not what was downloaded, so it is fetched again")));
                self.forget(path)?;
                return Ok(None);
            }
            Ok(_) => {}
            Err(source) => return Err(ArchiveError::File { file: beside, source }),
        }
        Ok(Some(Download { path: path.to_owned(), size: meta.len(), sha256, is_kept: true }))
    }

    /// Takes a whole file in.
    pub(super) fn keep(&self, whole: &Utf8Path, listen: Listener<'_>) -> Result<Download, ArchiveError> {
        let path = self.folder.join(whole.file_name().unwrap_or_default());
        let in_file = |source| ArchiveError::File { file: path.clone(), source };
        let size = fs_err::metadata(whole).map_err(in_file)?.len();
        let sha256 = digest_told(whole, size, listen)?;
        write_beside(&path, &sha256)?;
        fs_err::rename(whole, &path).map_err(in_file)?;
        Ok(Download { path, size, sha256, is_kept: false })
    }

    /// Takes a damaged file away, so that the next fetch gets a new one.
    pub(super) fn forget(&self, path: &Utf8Path) -> Result<(), ArchiveError> {
        let in_file = |source| ArchiveError::File { file: path.to_owned(), source };
        // The digest goes last: without it the file would be taken as put there by hand.
        fs_err::remove_file(path).map_err(in_file)?;
        let _ = fs_err::remove_file(beside(path));
        Ok(())
    }
}

fn digest_told(path: &Utf8Path, size: u64, listen: Listener<'_>) -> Result<String, ArchiveError> {
    // Below this a check takes no time that anybody would wonder about.
    let is_long = size > 100_000_000;
    if is_long {
        let name = path.file_name().unwrap_or_default();
        listen(FetchEvent::Note(format!("checking {name} ({})", super::event::human_size(size))));
    }
    file_digest(path)
}

fn beside(path: &Utf8Path) -> Utf8PathBuf {
    Utf8PathBuf::from(format!("{path}.sha256"))
}

/// In the form that `sha256sum --check` reads.
fn write_beside(path: &Utf8Path, sha256: &str) -> Result<(), ArchiveError> {
    let file = beside(path);
    fs_err::write(&file, format!("{sha256}  {}\n", path.file_name().unwrap_or_default()))
        .map_err(|source| ArchiveError::File { file, source })
}
