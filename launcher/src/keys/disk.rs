//! The files of a folder of keys: read within bounds, and written whole, for this user alone.
//!
//! Owns that nothing half is ever there: a file is written beside its place, brought to the disk, and renamed.

use std::io::{self, Read as _};
use std::path::Path;

use super::error::KeysError;
use super::index::{self, Index};
use super::place;

/// Reads a whole file.
///
/// # Errors
/// When it is no file, has more than `most` bytes, or cannot be read.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, KeysError> {
    let unreadable = |source| KeysError::Unreadable { path: path.to_owned(), source };
    // Asked before it is opened: a pipe would be waited for.
    if !fs_err::metadata(path).map_err(unreadable)?.is_file() {
        return Err(KeysError::Content { path: path.to_owned(), what: "is no file".to_owned(), source: None });
    }
    let mut bytes = Vec::new();
    fs_err::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(KeysError::Content {
            path: path.to_owned(),
            what: format!("has more than {most} bytes"),
            source: None,
        });
    }
    Ok(bytes)
}

/// The index of a folder; none where there is none.
///
/// # Errors
/// When it cannot be read, or is none that this version knows.
pub(super) fn read_index(folder: &Path) -> Result<Option<Index>, KeysError> {
    let path = folder.join(place::INDEX);
    match fs_err::symlink_metadata(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        _ => {}
    }
    let bytes = read(&path, index::MAX_BYTES)?;
    Index::parse(&bytes).map(Some).map_err(|source| KeysError::Index { path, source })
}

/// Writes a whole file of mode 0600 into a folder.
///
/// # Errors
/// When it cannot be written; then what was there is there still.
#[cfg(feature = "net")]
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<(), KeysError> {
    use std::io::Write as _;

    #[cfg(test)]
    cut_off(&folder.join(name))?;
    let unwritable = |source| KeysError::Unwritable { path: folder.join(name), source };
    // Temporary files are their owner's alone from their first moment on.
    let mut file = tempfile::Builder::new().prefix(".").suffix(name).tempfile_in(folder).map_err(unwritable)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(unwritable)?;
    file.persist(folder.join(name)).map_err(|error| unwritable(error.error))?;
    sync(folder)
}

/// Makes a folder of mode 0700, and those above it; one that is there stays as it is.
///
/// # Errors
/// When it cannot be made.
#[cfg(feature = "net")]
pub(super) fn make_folder(folder: &Path) -> Result<(), KeysError> {
    let made = crate::folder::make_private(folder);
    made.map_err(|source| KeysError::Unwritable { path: folder.to_owned(), source })
}

/// Removes a file, and is content when there is none.
///
/// # Errors
/// When it stays.
#[cfg(feature = "net")]
pub(super) fn remove(folder: &Path, name: &str) -> Result<(), KeysError> {
    match fs_err::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(KeysError::Unwritable { path: folder.join(name), source: error })
        }
        _ => sync(folder),
    }
}

/// Brings a folder's names to the disk.
#[cfg(feature = "net")]
fn sync(folder: &Path) -> Result<(), KeysError> {
    let synced = fs_err::File::open(folder).and_then(|folder| folder.sync_all());
    match synced {
        // Some network file systems know no such thing, and have the name on the disk by then.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput || error.kind() == io::ErrorKind::Unsupported => {
            Ok(())
        }
        other => other.map_err(|source| KeysError::Unwritable { path: folder.to_owned(), source }),
    }
}

#[cfg(test)]
thread_local! {
    /// Writes of this thread that still succeed; none where nothing is cut off.
    static LEFT: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// Does something whose writes fail after so many.
#[cfg(test)]
pub(super) fn cut_off_after<T>(writes: u32, command: impl FnOnce() -> T) -> T {
    LEFT.set(Some(writes));
    let result = command();
    LEFT.set(None);
    result
}

#[cfg(test)]
fn cut_off(path: &Path) -> Result<(), KeysError> {
    match LEFT.get() {
        Some(0) => Err(KeysError::Unwritable { path: path.to_owned(), source: io::ErrorKind::StorageFull.into() }),
        left => {
            LEFT.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}
