//! Reads files from places where a person, or another program, may have put something else.
//!
//! A pipe would wait for its writer, and a device may never end: what is no regular file is an error here and is not
//! opened at all. Must not write.

use std::io::{self, Read as _};

use camino::{Utf8Path, Utf8PathBuf};

/// What lies at a path is no regular file. It comes inside of an [`io::Error`] of the kind `Other`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is a {what}, and not a file")]
pub struct NotAFile {
    /// The path.
    pub path: Utf8PathBuf,
    /// What it is, in words: `folder`, `pipe`.
    pub what: &'static str,
}

/// Opens the regular file at `path`, whatever links lead to it.
///
/// # Errors
/// When it cannot be opened, or is no regular file ([`is_not_a_file`]).
pub fn open(path: &Utf8Path) -> io::Result<fs_err::File> {
    // The kind is asked before the file is opened: to open a pipe is to wait for whoever writes into it.
    regular(path, fs_err::metadata(path)?.file_type())?;
    let file = fs_err::File::open(path)?;
    // It may have been replaced in between.
    regular(path, file.metadata()?.file_type())?;
    Ok(file)
}

/// All bytes of the regular file at `path`.
///
/// # Errors
/// As [`open`], and when it cannot be read.
pub fn read(path: &Utf8Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the regular file at `path`.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_to_string(path: &Utf8Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Whether an error says that something is no regular file.
pub fn is_not_a_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotAFile>())
}

/// What a file type is, in words.
pub fn in_words(kind: std::fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "folder"
    } else if kind.is_symlink() {
        "link"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

fn regular(path: &Utf8Path, kind: std::fs::FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    Err(io::Error::other(NotAFile { path: path.to_owned(), what: in_words(kind) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read_and_what_else_lies_there_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap().join("ein Ordner – ü");
        fs_err::create_dir(&folder).unwrap();
        let (file, link, pipe, socket) =
            (folder.join("file"), folder.join("link"), folder.join("pipe"), folder.join("socket"));
        fs_err::write(&file, "text").unwrap();
        fs_err::os::unix::fs::symlink(&file, &link).unwrap();
        nix::unistd::mkfifo(pipe.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(read_to_string(&file).unwrap(), "text");
        assert_eq!(read(&link).unwrap(), b"text");
        let device = Utf8PathBuf::from("/dev/zero");
        for (path, what) in [(&folder, "folder"), (&pipe, "pipe"), (&socket, "socket"), (&device, "device")] {
            let error = read(path).unwrap_err();
            assert!(is_not_a_file(&error), "{error}");
            assert_eq!(error.to_string(), format!("`{path}` is a {what}, and not a file"));
        }
        assert_eq!(read(&folder.join("nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
