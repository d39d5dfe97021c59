//! Maps a file into memory, read-only.
//!
//! Purpose: a library of a gigabyte is looked into where it lies, and only the pages that are looked at are read.
//! Owns the one unsafe call of `preflight`. Must not be used to read a whole file: [`super::digest`] streams.

#![expect(unsafe_code, reason = "mapping a file is unsafe; the reasons why it holds stand at the call")]

use std::io;
use std::ops::Deref;
use std::path::Path;

use fs_err::File;
use memmap2::Mmap;

/// A file's bytes, mapped read-only and private.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: Option<Mmap>,
}

impl MappedFile {
    /// Maps the regular file at `path`.
    ///
    /// # Errors
    /// When it cannot be opened or mapped; [`io::ErrorKind::InvalidInput`] when it is no regular file.
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
        // SAFETY: the map is private and read-only, and no reference into it outlives `MappedFile`. What remains is
        // another process that cuts the file short while it is read, which ends this process by SIGBUS, or that writes
        // into it, which changes bytes under us. The dynamic loader itself maps the same files with the same exposure,
        // whatever we publish is renamed into place and never written again, and readers of the map treat every
        // value in it as untrusted and copy it out before they use it twice.
        let map = unsafe { Mmap::map(file.file())? };
        Ok(Self { map: Some(map) })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
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
    fn a_pipe_without_a_writer_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(MappedFile::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
