//! The table of mounts.

use std::path::{Path, PathBuf};

/// Where it is.
pub(super) const TABLE: &str = "/proc/self/mountinfo";

/// The type of the file system that `path` is on, by the text of [`TABLE`].
pub(super) fn filesystem(table: &str, path: &Path) -> Option<String> {
    // Of mounts one above the other the last one is seen.
    let mounts = table.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.place));
    mounts.max_by_key(|mount| mount.place.as_os_str().len()).map(|mount| mount.kind)
}

/// One line of it, as far as it matters here.
pub(super) struct Mount {
    /// The part of the file system that is mounted.
    pub(super) root: PathBuf,
    /// Where.
    pub(super) place: PathBuf,
    /// The file system's type, such as `ext4`.
    pub(super) kind: String,
    /// Its own options.
    pub(super) options: String,
}

impl Mount {
    /// `36 35 98:0 /root /place options… - type source options`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let (root, place) = (unescape(head.next()?), unescape(head.next()?));
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next()?.to_owned(), tail.nth(1).unwrap_or_default().to_owned());
        Some(Self { root, place, kind, options })
    }
}

/// A path of mountinfo: blanks, tabs, line feeds and backslashes are written as `\` and three octal digits.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let value = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_nearest_mount_and_there_on_the_last_one() {
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                     25 22 0:23 / /dev/shm rw shared:1 master:2 - tmpfs tmpfs rw,size=1k\n\
                     26 22 0:24 / /mnt/a\\040b rw - nfs4 server:/x rw\n\
                     27 22 0:25 / /mnt/a\\040b rw - xfs /dev/vdb rw\n\
                     no line of the table\n";
        let of = |path: &str| filesystem(table, Path::new(path));
        assert_eq!(of("/home/x").as_deref(), Some("ext4"));
        assert_eq!(of("/dev/shm").as_deref(), Some("tmpfs"));
        assert_eq!(of("/dev/shmem").as_deref(), Some("ext4"));
        assert_eq!(of("/mnt/a b/c").as_deref(), Some("xfs"));
        assert_eq!(filesystem("", Path::new("/")), None);
    }

    #[test]
    fn a_place_with_blanks_is_read_as_it_is() {
        assert_eq!(unescape("/a\\040b\\134\\x"), Path::new("/a b\\\\x"));
    }
}
