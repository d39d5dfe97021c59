//! The names of a zip archive's central directory, as they stand there.
//!
//! The reader that unpacks keeps one entry a name, so that a name which is there twice would not be seen.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};

use camino::Utf8Path;

use super::name::MAX_ENTRIES;

/// Begins each entry.
const SIGNATURE: [u8; 4] = *b"PK\x01\x02";
/// Bytes of an entry before its name.
const FIXED: usize = 46;

/// The names from `start` on, at most one more than are believed.
pub(super) fn names(archive: &Utf8Path, start: u64) -> io::Result<Vec<Vec<u8>>> {
    let mut reader = BufReader::new(fs_err::File::open(archive)?);
    reader.seek(SeekFrom::Start(start))?;
    let mut names = Vec::new();
    let mut fixed = [0; FIXED];
    while names.len() <= MAX_ENTRIES {
        match reader.read_exact(&mut fixed) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        if fixed[..4] != SIGNATURE {
            break;
        }
        let length = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let mut name = vec![0; length(28).into()];
        reader.read_exact(&mut name)?;
        reader.seek_relative(i64::from(length(30)) + i64::from(length(32)))?;
        names.push(name);
    }
    Ok(names)
}

/// The first name that is there twice.
pub(super) fn repeated(names: &[Vec<u8>]) -> Option<String> {
    let mut seen = BTreeSet::new();
    names.iter().find(|name| !seen.insert(name.as_slice())).map(|name| String::from_utf8_lossy(name).into_owned())
}
