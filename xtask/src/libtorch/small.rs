//! Reading the small files of a store that people or other programs may have put there.
//!
//! A pipe in a file's place would be waited for without end, and a large file has no business in memory: both are errors.

use std::io::{self, Read as _};

use camino::Utf8Path;

use crate::file;

/// The content of a regular file of at most `limit` bytes; none when nothing is there.
pub(super) fn read(path: &Utf8Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("`{path}` has more than {limit} bytes")));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_a_folder_and_a_large_file_are_errors_and_nothing_there_is_none() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        assert_eq!(read(&base.join("nothing"), 9).unwrap(), None);
        let pipe = base.join("pipe");
        nix::unistd::mkfifo(pipe.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [base, &pipe] {
            assert!(read(path, 9).unwrap_err().to_string().contains("and not a file"));
        }
        fs_err::write(base.join("large"), "0123456789").unwrap();
        assert!(read(&base.join("large"), 9).unwrap_err().to_string().contains("more than 9 bytes"));
        assert_eq!(read(&base.join("large"), 10).unwrap().unwrap(), b"0123456789");
    }
}
