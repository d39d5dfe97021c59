//! A whole file in memory.

use std::io;
use std::ops::Deref;
use std::path::Path;

use fs_err::File;
use memmap2::Mmap;

use super::guard::Watch;

/// Shows `look` the bytes of the regular file at `path`.
///
/// # Errors
/// As [`MappedFile::open`] and [`MappedFile::check`].
pub(crate) fn look<T>(path: &Path, look: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
    let file = MappedFile::open(path)?;
    let seen = look(&file);
    file.check().map(|()| seen)
}

/// A file's bytes, mapped read-only and private.
///
/// They are the file's as long as [`MappedFile::check`] says so, which is asked after they were looked at.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Option<Watched>,
}

/// The fields are dropped in this order.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    map: Mmap,
}

impl MappedFile {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, mapped or watched; [`io::ErrorKind::InvalidInput`] when it is no regular file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let regular = |metadata: std::fs::Metadata| match metadata.is_file() {
            true => Ok(metadata),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        };
        // A pipe would wait for its writer, so that the kind is asked before the file is opened.
        regular(fs_err::metadata(path)?)?;
        let file = File::open(path)?;
        let metadata = regular(file.metadata()?)?;
        // The kernel refuses to map nothing.
        if metadata.len() == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the map is private and read-only, and no reference into it outlives `MappedFile`. Another process that cuts
        // the file short while it is read is what the watch is for. What remains is one that writes into it, which changes
        // bytes under us. The dynamic loader itself maps the same files with the same exposure, whatever we publish is
        // renamed into place and never written again, and readers of the map treat every value in it as untrusted and copy
        // it out before they use it twice.
        let map = unsafe { Mmap::map(file.file())? };
        let watch = Watch::over(&map)?;
        Ok(Self { map: Some(Watched { watch, map }) })
    }

    /// Says whether all that was looked at was the file's.
    ///
    /// # Errors
    /// When some of it could not be read.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.map {
            Some(watched) if watched.watch.is_damaged() => {
                Err(io::Error::other("it was cut short while it was read, or its file system does not give all of it"))
            }
            _ => Ok(()),
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], |watched| &watched.map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_maps_to_no_bytes_and_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leer é");
        fs_err::write(&path, b"").unwrap();
        assert_eq!(&*MappedFile::open(&path).unwrap(), b"");
        fs_err::write(&path, b"abc").unwrap();
        assert_eq!(&*MappedFile::open(&path).unwrap(), b"abc");
        assert_eq!(MappedFile::open(folder.path()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error_and_no_death() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib é.so");
        fs_err::write(&path, vec![7; 100_000]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert_eq!(file[99_999], 7);
        file.check().unwrap();
        fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert_eq!(file[99_999], 0);
        assert!(file.check().unwrap_err().to_string().contains("cut short"));
        let cut = look(&path, |bytes| {
            fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
            bytes[9]
        });
        assert!(cut.is_err());
    }

    #[test]
    fn a_pipe_without_a_writer_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(MappedFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
