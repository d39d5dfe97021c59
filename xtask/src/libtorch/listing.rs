//! The list of a variant's files with their digests: `torchlift.sha256` in its folder, in the form that
//! `sha256sum --check` reads. Links are in the variant's record, since that form has no place for them.
//!
//! Owns the form, the digests of a whole tree, and how two lists differ. Nothing here is cached: whoever asks wants the
//! bytes read.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use camino::Utf8Path;
use torchlift::preflight::digest::{DigestError, FileDigest, digest};

use super::event::{FetchEvent, Listener};
use super::{record, small};

/// The file's name in a variant's folder.
pub const FILE: &str = "torchlift.sha256";
/// Bytes: some 100 for each of the files that an archive may have.
const LIMIT: u64 = 64 << 20;

/// Digests and links, by their paths below the variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// SHA-256 in lower-case hex.
    pub files: BTreeMap<String, String>,
    /// What each link says.
    pub links: BTreeMap<String, String>,
}

/// What a tree holds now.
#[derive(Debug, Default)]
pub struct Tree {
    /// Regular files, read whole; or why one could not be.
    pub files: BTreeMap<String, Result<FileDigest, DigestError>>,
    /// What each link says.
    pub links: BTreeMap<String, String>,
    /// Pipes, devices and sockets, with what they are.
    pub specials: BTreeMap<String, &'static str>,
}

/// One way in which a variant is not what it was.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "what")]
pub enum Difference {
    /// Another content, or another kind.
    Changed {
        /// Below the variant.
        path: String,
        /// What it was: a digest, or a link and where it led.
        expected: String,
        /// What it is.
        found: String,
    },
    /// It is gone.
    Missing {
        /// Below the variant.
        path: String,
    },
    /// It was not there.
    Added {
        /// Below the variant.
        path: String,
    },
    /// It cannot be read, so that nobody knows.
    Unreadable {
        /// Below the variant.
        path: String,
        /// Why.
        reason: String,
    },
}

impl Tree {
    /// Reads every file below `root`, on all cores.
    ///
    /// # Errors
    /// When a folder cannot be listed. A file that cannot be read is an entry with its reason.
    pub fn read(root: &Utf8Path, listen: Listener<'_>) -> io::Result<Self> {
        let mut tree = Self::default();
        let mut sizes: Vec<(String, u64)> = Vec::new();
        for entry in walkdir::WalkDir::new(root).min_depth(1) {
            let entry = entry.map_err(io::Error::other)?;
            let below = entry.path().strip_prefix(root).unwrap_or(entry.path()).to_string_lossy().into_owned();
            if [record::FILE, FILE].contains(&below.as_str()) || entry.file_type().is_dir() {
                continue;
            }
            let kind = entry.file_type();
            if kind.is_file() {
                sizes.push((below, entry.metadata().map_or(0, |metadata| metadata.len())));
            } else if kind.is_symlink() {
                let target = fs_err::read_link(entry.path())?;
                tree.links.insert(below, target.to_string_lossy().into_owned());
            } else {
                let what = match () {
                    () if kind.is_fifo() => "a pipe",
                    () if kind.is_socket() => "a socket",
                    () => "a device",
                };
                tree.specials.insert(below, what);
            }
        }
        tree.files = digests(root, sizes, listen);
        Ok(tree)
    }

    /// The list of it.
    ///
    /// # Errors
    /// When a file could not be read.
    pub fn listing(self) -> Result<Listing, DigestError> {
        let files = self.files.into_iter().map(|(path, digest)| Ok((path, digest?.sha256)));
        Ok(Listing { files: files.collect::<Result<_, _>>()?, links: self.links })
    }

    /// Bytes of all regular files.
    pub fn size(&self) -> u64 {
        self.files.values().flatten().map(|digest| digest.size).sum()
    }
}

/// Reads files on all cores, the largest first, so that no core has one left when the others are done.
fn digests(
    root: &Utf8Path,
    mut sizes: Vec<(String, u64)>,
    listen: Listener<'_>,
) -> BTreeMap<String, Result<FileDigest, DigestError>> {
    sizes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let total = sizes.iter().map(|(_, size)| size).sum();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(sizes.len().max(1));
    let (sender, receiver) = mpsc::channel();
    listen(FetchEvent::Begin { what: format!("reading {} files", sizes.len()), total: Some(total) });
    let digests = std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, next, sizes) = (sender.clone(), &next, &sizes);
            scope.spawn(move || {
                while let Some((path, size)) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = digest(root.join(path).as_std_path());
                    // The receiver goes away only when this thread's scope does.
                    let _ = sender.send((path.clone(), *size, result));
                }
            });
        }
        drop(sender);
        let mut done = 0;
        let mut digests = BTreeMap::new();
        for (path, size, result) in receiver {
            done += size;
            listen(FetchEvent::Done(done));
            digests.insert(path, result);
        }
        digests
    });
    listen(FetchEvent::End);
    digests
}

impl Listing {
    /// The file's content: one line a file. As `sha256sum` does, a path with a line break or a backslash is escaped, and
    /// a backslash in front of the line says so.
    pub fn text(&self) -> String {
        let line = |(path, sha256): (&String, &String)| {
            if path.contains(['\n', '\\', '\r']) {
                let path = path.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
                format!("\\{sha256}  {path}\n")
            } else {
                format!("{sha256}  {path}\n")
            }
        };
        self.files.iter().map(line).collect()
    }

    /// Reads a list; links are put in by whoever has the record. None when a line is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut files = BTreeMap::new();
        for line in text.lines() {
            let (line, is_escaped) = line.strip_prefix('\\').map_or((line, false), |line| (line, true));
            let (sha256, path) = line.split_once("  ")?;
            let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_digest {
                return None;
            }
            let path = if is_escaped { unescape(path)? } else { path.to_owned() };
            files.insert(path, sha256.to_ascii_lowercase());
        }
        Some(Self { files, links: BTreeMap::new() })
    }

    /// The list of the variant in `root`, as bytes; none when it has none.
    ///
    /// # Errors
    /// When there is something of that name that is no file of a believable size.
    pub fn bytes(root: &Utf8Path) -> io::Result<Option<Vec<u8>>> {
        small::read(&root.join(FILE), LIMIT)
    }

    /// Every difference between this list and what is there now, sorted by path.
    pub fn differences(&self, tree: &Tree) -> Vec<Difference> {
        let mut found = BTreeMap::new();
        let mut put = |path: &str, difference: Difference| drop(found.insert(path.to_owned(), difference));
        let now = |path: &str| match (tree.files.get(path), tree.links.get(path), tree.specials.get(path)) {
            (Some(Ok(digest)), ..) => Some(format!("sha256 {}", digest.sha256)),
            (Some(Err(_)), ..) => None,
            (_, Some(target), _) => Some(format!("a link to `{target}`")),
            (.., Some(what)) => Some((*what).to_owned()),
            _ => Some(String::new()),
        };
        let was = self.files.iter().map(|(path, sha256)| (path, format!("sha256 {sha256}")));
        let was = was.chain(self.links.iter().map(|(path, target)| (path, format!("a link to `{target}`"))));
        for (path, expected) in was {
            let path = path.clone();
            match now(&path) {
                Some(found) if found == expected => {}
                Some(found) if found.is_empty() => put(&path.clone(), Difference::Missing { path }),
                Some(found) => put(&path.clone(), Difference::Changed { path, expected, found }),
                None => {
                    let reason = match &tree.files[&path] {
                        Err(error) => with_source(error),
                        Ok(_) => String::new(),
                    };
                    put(&path.clone(), Difference::Unreadable { path, reason });
                }
            }
        }
        let there = tree.files.keys().chain(tree.links.keys()).chain(tree.specials.keys());
        for path in there.filter(|path| !self.files.contains_key(*path) && !self.links.contains_key(*path)) {
            put(path, Difference::Added { path: path.clone() });
        }
        found.into_values().collect()
    }
}

fn with_source(error: &DigestError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Utf8Path) -> Tree {
        Tree::read(root, &mut |_| {}).unwrap()
    }

    #[test]
    fn the_list_is_what_sha256sum_checks_and_each_difference_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        fs_err::create_dir_all(root.join("lib/a b")).unwrap();
        for name in ["lib/ü.so", "lib/a b/odd\\na\nme", "lib/gone.so", "lib/x.so"] {
            fs_err::write(root.join(name), name).unwrap();
        }
        fs_err::os::unix::fs::symlink("x.so", root.join("lib/link.so")).unwrap();
        let listing = tree(root).listing().unwrap();
        fs_err::write(root.join(FILE), listing.text()).unwrap();
        duct::cmd!("sha256sum", "--check", "--strict", FILE).dir(root).stdout_null().run().unwrap();

        let mut read = Listing::parse(&String::from_utf8(Listing::bytes(root).unwrap().unwrap()).unwrap()).unwrap();
        read.links = listing.links.clone();
        assert_eq!(read, listing);
        assert_eq!(read.differences(&tree(root)), []);

        fs_err::write(root.join("lib/ü.so"), "other").unwrap();
        fs_err::remove_file(root.join("lib/gone.so")).unwrap();
        fs_err::remove_file(root.join("lib/link.so")).unwrap();
        fs_err::write(root.join("lib/link.so"), "now a file").unwrap();
        fs_err::remove_file(root.join("lib/x.so")).unwrap();
        nix::unistd::mkfifo(root.join("lib/x.so").as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs_err::write(root.join("lib/new.so"), "").unwrap();
        let told: Vec<String> = read
            .differences(&tree(root))
            .into_iter()
            .map(|difference| match difference {
                Difference::Changed { path, found, .. } => format!("changed {path}: {}", &found[..6]),
                Difference::Missing { path } => format!("missing {path}"),
                Difference::Added { path } => format!("added {path}"),
                Difference::Unreadable { path, .. } => format!("unreadable {path}"),
            })
            .collect();
        assert_eq!(
            told,
            [
                "missing lib/gone.so",
                "changed lib/link.so: sha256",
                "added lib/new.so",
                "changed lib/x.so: a pipe",
                "changed lib/ü.so: sha256"
            ]
        );
    }

    #[test]
    fn what_is_no_list_is_none() {
        for text in ["x", "00  a", "\\\u{e9}", &format!("\\{}  a\\q", "0".repeat(64))] {
            assert_eq!(Listing::parse(text), None, "{text:?}");
        }
    }
}
