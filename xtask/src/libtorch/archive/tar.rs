//! Reading a tar archive of somebody else's making, plain or packed with gzip or zstd.
//!
//! Its entries come one after the other, so that nothing is known of the whole before its end: each is looked at before
//! it is written, and what was written is thrown away when a later one is refused. Must not know what the entries mean.

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use tar::EntryType;

use super::name::{MAX_BYTES, MAX_ENTRIES, SLACK, is_inside, stays_inside};
use super::{ArchiveError, CHUNK, regular};
use crate::libtorch::event::{FetchEvent, Listener};
use crate::libtorch::tool::free_space;

/// Between two looks at the free space of the disk, in bytes written.
const LOOK_EVERY: u64 = 256 << 20;

/// How the bytes of a tar archive are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::libtorch) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What lies at a place of the folder that is unpacked into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
}

/// Unpacks all entries of `archive` into the folder `root`, which is there and empty.
pub(in crate::libtorch) fn unpack(
    archive: &Utf8Path,
    packing: Packing,
    root: &Utf8Path,
    listen: Listener<'_>,
) -> Result<(), ArchiveError> {
    let packed = regular(archive)?.len();
    let in_file = |source| ArchiveError::File { file: archive.to_owned(), source };
    let file = BufReader::with_capacity(CHUNK, fs_err::File::open(archive).map_err(in_file)?);
    let what = format!("unpacking {}", archive.file_name().unwrap_or_default());
    listen(FetchEvent::Begin { what, total: Some(packed) });
    let counted = Counted { inner: file, count: 0, listen };
    let broken = |source| ArchiveError::BrokenTar { archive: archive.to_owned(), source };
    let mut counted = counted;
    let result = match packing {
        Packing::Plain => Unpack::new(archive, root).run(&mut counted),
        Packing::Gzip => Unpack::new(archive, root).run(flate2::read::MultiGzDecoder::new(&mut counted)),
        // Its window is bounded by the library to 128 MiB.
        Packing::Zstd => match zstd::stream::read::Decoder::with_buffer(&mut counted) {
            Ok(decoder) => Unpack::new(archive, root).run(decoder),
            Err(source) => Err(broken(source)),
        },
    };
    (counted.listen)(FetchEvent::End);
    result
}

/// Tells how much of the packed file was read.
struct Counted<'a> {
    inner: BufReader<fs_err::File>,
    count: u64,
    listen: Listener<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        (self.listen)(FetchEvent::Done(self.count));
        Ok(count)
    }
}

impl io::BufRead for Counted<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.count += count as u64;
        (self.listen)(FetchEvent::Done(self.count));
        self.inner.consume(count);
    }
}

struct Unpack<'a> {
    archive: &'a Utf8Path,
    root: &'a Utf8Path,
    /// By their places below the root.
    there: BTreeMap<Utf8PathBuf, Kind>,
    written: u64,
    looked: u64,
}

impl<'a> Unpack<'a> {
    fn new(archive: &'a Utf8Path, root: &'a Utf8Path) -> Self {
        Self { archive, root, there: BTreeMap::new(), written: 0, looked: 0 }
    }

    fn run(mut self, reader: impl Read) -> Result<(), ArchiveError> {
        let archive = self.archive.to_owned();
        let broken = |source| ArchiveError::BrokenTar { archive: archive.clone(), source };
        self.room(0)?;
        let mut tar = tar::Archive::new(reader);
        for (index, entry) in tar.entries().map_err(broken)?.enumerate() {
            if index >= MAX_ENTRIES {
                return Err(ArchiveError::TooMany { archive, limit: MAX_ENTRIES });
            }
            self.entry(entry.map_err(broken)?)?;
        }
        // What follows the end mark is only read so that the check sum of the packing is looked at.
        let rest = io::copy(&mut tar.into_inner().take(MAX_BYTES), &mut io::sink());
        rest.map_err(broken).map(drop)
    }

    fn entry<R: Read>(&mut self, mut entry: tar::Entry<'_, R>) -> Result<(), ArchiveError> {
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let archive = || self.archive.to_owned();
        let kind = entry.header().entry_type();
        // `./` in front of every name is how `tar -C folder .` writes them; the folder itself is one of them.
        let plain = name.strip_prefix("./").unwrap_or(&name).trim_end_matches('/');
        if kind == EntryType::XGlobalHeader || (kind.is_dir() && ["", "."].contains(&plain)) {
            return Ok(());
        }
        if name.contains('\u{fffd}') || !is_inside(plain) {
            return Err(ArchiveError::Escapes { archive: archive(), entry: name });
        }
        let place: Utf8PathBuf = Utf8Path::new(plain).components().collect();
        if let Some(link) = place.ancestors().skip(1).find(|above| self.there.get(*above) == Some(&Kind::Link)) {
            let link = link.to_string();
            return Err(ArchiveError::ThroughLink { archive: archive(), entry: name, link });
        }
        match self.there.get(&place) {
            // Folders are often listed twice, and nothing is lost by it.
            Some(Kind::Folder) if kind.is_dir() => return Ok(()),
            Some(_) => return Err(ArchiveError::Twice { archive: archive(), entry: name }),
            None => {}
        }
        let to = self.root.join(&place);
        self.folders(&place)?;
        let made = match kind {
            EntryType::Directory => {
                self.folder(&place)?;
                return Ok(());
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&mut entry, &name, &to)?;
                Kind::File
            }
            EntryType::Symlink => {
                self.link(&entry, &name, &to)?;
                Kind::Link
            }
            EntryType::Link => {
                self.hard_link(&entry, &name, &to)?;
                Kind::File
            }
            EntryType::Char | EntryType::Block => {
                return Err(ArchiveError::Special { archive: archive(), entry: name, what: "a device" });
            }
            EntryType::Fifo => return Err(ArchiveError::Special { archive: archive(), entry: name, what: "a pipe" }),
            _ => {
                let what = "of a kind that no libtorch has";
                return Err(ArchiveError::Special { archive: archive(), entry: name, what });
            }
        };
        self.there.insert(place, made);
        Ok(())
    }

    /// Makes the folders above a place.
    fn folders(&mut self, place: &Utf8Path) -> Result<(), ArchiveError> {
        let mut above: Vec<&Utf8Path> = place.ancestors().skip(1).filter(|folder| *folder != "").collect();
        above.reverse();
        above.into_iter().try_for_each(|folder| self.folder(folder))
    }

    /// With the mode of a new folder: what an archive says of them has locked people out before.
    fn folder(&mut self, place: &Utf8Path) -> Result<(), ArchiveError> {
        if self.there.get(place) == Some(&Kind::Folder) {
            return Ok(());
        }
        let to = self.root.join(place);
        fs_err::create_dir(&to).map_err(|source| ArchiveError::File { file: to.clone(), source })?;
        self.there.insert(place.to_owned(), Kind::Folder);
        Ok(())
    }

    fn file<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, name: &str, to: &Utf8Path) -> Result<(), ArchiveError> {
        let in_file = |source| ArchiveError::File { file: to.to_owned(), source };
        let stated = entry.size();
        if self.written.saturating_add(stated) > MAX_BYTES {
            return Err(ArchiveError::TooLarge { archive: self.archive.to_owned(), limit: MAX_BYTES });
        }
        self.room(stated)?;
        let mode = (entry.header().mode().unwrap_or(0o644) & 0o777) | 0o600;
        let file = fs_err::OpenOptions::new().write(true).create_new(true).open(to).map_err(in_file)?;
        let mut file = BufWriter::with_capacity(CHUNK, file);
        let mut chunk = vec![0; CHUNK];
        let mut size = 0;
        loop {
            let count = entry.read(&mut chunk).map_err(|source| ArchiveError::Entry {
                archive: self.archive.to_owned(),
                entry: name.to_owned(),
                source,
            })?;
            if count == 0 {
                break;
            }
            size += count as u64;
            self.written += count as u64;
            if size > stated {
                return Err(ArchiveError::Grows { archive: self.archive.to_owned(), entry: name.to_owned(), stated });
            }
            file.write_all(&chunk[..count]).map_err(in_file)?;
        }
        if size < stated {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of it");
            return Err(ArchiveError::Entry { archive: self.archive.to_owned(), entry: name.to_owned(), source });
        }
        let file = file.into_inner().map_err(|error| in_file(error.into_error()))?;
        file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(in_file)
    }

    fn link<R: Read>(&self, entry: &tar::Entry<'_, R>, name: &str, to: &Utf8Path) -> Result<(), ArchiveError> {
        let target = target(entry);
        if target.contains('\u{fffd}') || !stays_inside(self.root, to, &target) {
            let entry = format!("{name} -> {target}");
            return Err(ArchiveError::Escapes { archive: self.archive.to_owned(), entry });
        }
        fs_err::os::unix::fs::symlink(&target, to).map_err(|source| ArchiveError::File { file: to.to_owned(), source })
    }

    /// A second name of a file that came before; its target counts from the archive's root.
    fn hard_link<R: Read>(&self, entry: &tar::Entry<'_, R>, name: &str, to: &Utf8Path) -> Result<(), ArchiveError> {
        let target = target(entry);
        let plain = target.strip_prefix("./").unwrap_or(&target);
        let place: Utf8PathBuf = Utf8Path::new(plain).components().collect();
        let entry = format!("{name} -> {target}");
        let archive = self.archive.to_owned();
        if !is_inside(plain) {
            return Err(ArchiveError::Escapes { archive, entry });
        }
        match self.there.get(&place) {
            Some(Kind::File) => {}
            Some(Kind::Link) => return Err(ArchiveError::ThroughLink { archive, entry, link: place.to_string() }),
            _ => return Err(ArchiveError::Absent { archive, entry: target }),
        }
        fs_err::hard_link(self.root.join(&place), to)
            .map_err(|source| ArchiveError::File { file: to.to_owned(), source })
    }

    /// Whether so many more bytes fit; asked of the disk for large files, and now and then for many small ones.
    fn room(&mut self, more: u64) -> Result<(), ArchiveError> {
        let is_due = self.written == 0 || self.written - self.looked >= LOOK_EVERY || more >= LOOK_EVERY;
        if !is_due {
            return Ok(());
        }
        self.looked = self.written;
        let needed = more.saturating_add(SLACK);
        match free_space(self.root) {
            Some(available) if available < needed => {
                Err(ArchiveError::Space { folder: self.root.to_owned(), needed, available })
            }
            _ => Ok(()),
        }
    }
}

fn target<R: Read>(entry: &tar::Entry<'_, R>) -> String {
    entry.link_name_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
