//! The files whose content makes a variant's ABI: its header tree and the libraries of `lib/`.
//!
//! Lists them with one `stat` each, so that facts read earlier can be known to hold without opening a file.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use walkdir::WalkDir;

use torchlift::preflight::digest::hex;

/// Headers of torch itself, where the tree shares its `include` with other software.
const OWN_HEADERS: [&str; 4] = ["ATen", "c10", "caffe2", "torch"];

/// All files that matter, sorted by their path.
#[derive(Debug)]
pub(super) struct Tree {
    root: Utf8PathBuf,
    headers: Vec<Entry>,
    others: Vec<Entry>,
    /// Names of `lib*.so*` in `lib/`, sorted.
    pub(super) libraries: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    /// Below the root.
    path: Utf8PathBuf,
    stat: [u64; 5],
    nanos: [i64; 2],
}

impl Tree {
    /// Lists the files of `root`.
    pub(super) fn list(root: &Utf8Path) -> io::Result<Self> {
        // A libtorch in a folder of its own says its version there; `/usr` or a conda environment does not, and its
        // `include` and `lib` hold much that is none of torch's ABI.
        let is_own = root.join("build-version").exists() || root.join("version.py").exists();
        let include = root.join("include");
        let starts: Vec<Utf8PathBuf> =
            if is_own { vec![include] } else { OWN_HEADERS.iter().map(|name| include.join(name)).collect() };
        let mut headers = Vec::with_capacity(10_000);
        for start in starts.iter().filter(|start| start.exists()) {
            for found in WalkDir::new(start).follow_links(true) {
                let found = found.map_err(io::Error::other)?;
                if found.file_type().is_dir() {
                    continue;
                }
                let path = Utf8Path::from_path(found.path())
                    .ok_or_else(|| io::Error::other(format!("`{}` is not UTF-8", found.path().display())))?;
                headers.push(Entry::of(root, path, &found.metadata().map_err(io::Error::other)?));
            }
        }
        headers.sort_unstable_by(|a, b| a.path.cmp(&b.path));

        let mut libraries: Vec<String> = root
            .join("lib")
            .read_dir_utf8()?
            .flatten()
            .map(|entry| entry.file_name().to_owned())
            .filter(|name| name.starts_with("lib") && (name.ends_with(".so") || name.contains(".so.")))
            .filter(|name| is_own || name.starts_with("libtorch") || name.starts_with("libc10"))
            .filter(|name| root.join("lib").join(name).is_file())
            .collect();
        libraries.sort_unstable();

        let mut others = Vec::new();
        let versions = ["build-version".to_owned(), "version.py".to_owned()];
        for name in libraries.iter().map(|name| format!("lib/{name}")).chain(versions) {
            let path = root.join(name);
            if let Ok(metadata) = fs_err::metadata(&path) {
                others.push(Entry::of(root, &path, &metadata));
            }
        }
        Ok(Self { root: root.to_owned(), headers, others, libraries })
    }

    /// A digest of path, device, inode, size, mtime and ctime of every file: equal means that nothing was touched.
    pub(super) fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        for entry in self.headers.iter().chain(&self.others) {
            digest.update(entry.path.as_str());
            digest.update([0]);
            for number in entry.stat {
                digest.update(number.to_le_bytes());
            }
            for number in entry.nanos {
                digest.update(number.to_le_bytes());
            }
        }
        hex(&digest.finalize())
    }

    /// The digest of paths and contents of the header tree.
    pub(super) fn header_digest(&self) -> io::Result<[u8; 32]> {
        let mut digest = Sha256::new();
        for entry in &self.headers {
            let content = crate::file::read(&self.root.join(&entry.path))?;
            digest.update(entry.path.as_str());
            digest.update([0]);
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(content);
        }
        Ok(digest.finalize().into())
    }
}

impl Entry {
    fn of(root: &Utf8Path, path: &Utf8Path, metadata: &std::fs::Metadata) -> Self {
        Self {
            path: path.strip_prefix(root).unwrap_or(path).to_owned(),
            stat: [
                metadata.dev(),
                metadata.ino(),
                metadata.size(),
                metadata.mtime().cast_unsigned(),
                metadata.ctime().cast_unsigned(),
            ],
            nanos: [metadata.mtime_nsec(), metadata.ctime_nsec()],
        }
    }
}
