//! The file in which digests are remembered.
//!
//! One text file: a header, a line a record, and a last line with the digest of all before it. Whatever does not hold
//! together is as if it were not there: a cache may cost time and must never cost truth. It is renamed into place, so
//! that writers never mix; the one that loses a race loses only its new records.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{DigestError, FileDigest, FileState, hex, open, read};
use crate::clock;

/// First line of the file; another format gets another number and is then not read.
const HEADER: &str = "torchlift digests 1";
/// Records that are kept; the libraries of some twenty variants. The least recently used ones go first.
const MAX_RECORDS: usize = 1024;
/// Bytes of a file that is read at all: [`MAX_RECORDS`] lines of at most 256 bytes.
const MAX_FILE: u64 = MAX_RECORDS as u64 * 256;
/// A file whose stamps are younger than this is not remembered: it could be written again within one tick of its
/// file system's clock, which is up to 2 s coarse, and keep its stamps.
const SETTLED: Duration = Duration::from_secs(2);
/// Records that were used are marked so at most this often, so that a start with nothing new writes nothing.
const MARK_AGAIN: u64 = 24 * 60 * 60;

#[derive(Clone, Debug)]
struct Record {
    sha256: String,
    /// Seconds since 1970.
    used: u64,
}

/// Digests, remembered over runs.
#[derive(Debug)]
pub struct DigestCache {
    path: Option<PathBuf>,
    records: HashMap<FileState, Record>,
    is_changed: bool,
}

impl DigestCache {
    /// The cache in the file at `path`; empty when it is not there or damaged. `save` creates its folder.
    pub fn open(path: &Path) -> Self {
        Self { path: Some(path.to_owned()), records: load(path), is_changed: false }
    }

    /// A cache that is forgotten with the process.
    pub fn in_memory() -> Self {
        Self { path: None, records: HashMap::new(), is_changed: false }
    }

    /// The digest of the file at `path`: from its bytes, or from a record when nothing that the file system says of
    /// it has changed since.
    ///
    /// # Errors
    /// As [`super::digest`].
    pub fn digest(&mut self, path: &Path) -> Result<FileDigest, DigestError> {
        let (mut file, state) = open(path)?;
        if let Some(digest) = self.recall(&state) {
            return Ok(digest);
        }
        let digest = read(&mut file, state, path)?;
        self.remember(state, &digest, clock::wall());
        Ok(digest)
    }

    /// The digests of `paths` in their order; what is not remembered is read by as many threads as there are cores.
    pub fn digest_all(&mut self, paths: &[PathBuf]) -> Vec<Result<FileDigest, DigestError>> {
        let mut results: Vec<Option<Result<FileDigest, DigestError>>> = Vec::with_capacity(paths.len());
        let mut work = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            results.push(match open(path) {
                Err(error) => Some(Err(error)),
                Ok((_, state)) => {
                    let known = self.recall(&state);
                    if known.is_none() {
                        work.push((state.size, index));
                    }
                    known.map(Ok)
                }
            });
        }
        // The largest first, so that no core ends up alone with the one that takes longest.
        work.sort_unstable_by(|a, b| b.cmp(a));
        for (index, state, result) in read_all(&work, paths) {
            if let (Some(state), Ok(digest)) = (state, &result) {
                self.remember(state, digest, clock::wall());
            }
            results[index] = Some(result);
        }
        let never_read = |index: usize| DigestError::Changed { path: paths[index].clone() };
        results
            .into_iter()
            .enumerate()
            .map(|(index, result)| result.unwrap_or_else(|| Err(never_read(index))))
            .collect()
    }

    /// The digest of the file at `path` from its bytes, whatever is remembered of it.
    ///
    /// For a digest that was not the expected one: before a person is told of a swapped file, the file itself speaks.
    ///
    /// # Errors
    /// As [`super::digest`].
    pub fn digest_anew(&mut self, path: &Path) -> Result<FileDigest, DigestError> {
        let (_, state) = open(path)?;
        if self.records.remove(&state).is_some() {
            self.is_changed = true;
        }
        self.digest(path)
    }

    /// Writes what is new, if anything is, together with what others wrote since.
    ///
    /// # Errors
    /// When the file cannot be written; the digests themselves are not affected.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(path) = self.path.clone().filter(|_| self.is_changed) else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs_err::create_dir_all(folder)?;
        for (state, record) in load(&path) {
            self.records.entry(state).or_insert(record);
        }
        let mut file = tempfile::Builder::new().prefix(".digests-").tempfile_in(folder)?;
        file.write_all(self.text().as_bytes())?;
        file.persist(&path).map_err(|error| error.error)?;
        self.is_changed = false;
        Ok(())
    }

    fn recall(&mut self, state: &FileState) -> Option<FileDigest> {
        let now = clock::wall().as_secs();
        let record = self.records.get_mut(state)?;
        if now.saturating_sub(record.used) > MARK_AGAIN {
            record.used = now;
            self.is_changed = true;
        }
        Some(FileDigest { size: state.size, sha256: record.sha256.clone() })
    }

    /// Remembers a digest that was read until `now` (time since 1970), if the file has settled by then.
    fn remember(&mut self, state: FileState, digest: &FileDigest, now: Duration) {
        let youngest = state.modified_ns.max(state.changed_ns);
        let age = i128::try_from(now.as_nanos()).unwrap_or(0) - youngest;
        if age < SETTLED.as_nanos() as i128 {
            return;
        }
        self.records.insert(state, Record { sha256: digest.sha256.clone(), used: now.as_secs() });
        self.is_changed = true;
    }

    /// The file's whole text, of the most recently used records.
    fn text(&self) -> String {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_unstable_by_key(|(state, record)| (std::cmp::Reverse(record.used), **state));
        let mut text = format!("{HEADER}\n");
        for (state, record) in records.into_iter().take(MAX_RECORDS) {
            let FileState { device, inode, size, modified_ns, changed_ns } = state;
            let Record { sha256, used } = record;
            text.push_str(&format!("{device} {inode} {size} {modified_ns} {changed_ns} {used} {sha256}\n"));
        }
        let end = hex(&Sha256::digest(&text));
        text.push_str(&format!("end {end}\n"));
        text
    }
}

/// One file that was read: its index, its state when it was opened, its digest.
type Reading = (usize, Option<FileState>, Result<FileDigest, DigestError>);

/// Reads the files whose index stands in `work`.
fn read_all(work: &[(u64, usize)], paths: &[PathBuf]) -> Vec<Reading> {
    let one = |index: usize| match open(&paths[index]) {
        Ok((mut file, state)) => (index, Some(state), read(&mut file, state, &paths[index])),
        Err(error) => (index, None, Err(error)),
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    if cores <= 1 {
        return work.iter().map(|(_, index)| one(*index)).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        while let Some((_, index)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push(one(*index));
        }
        done
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// The records in the file at `path`; none when it is not there or does not hold together.
fn load(path: &Path) -> HashMap<FileState, Record> {
    let is_small = fs_err::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_FILE);
    let text = if is_small { fs_err::read_to_string(path).unwrap_or_default() } else { String::new() };
    parse(&text).unwrap_or_default()
}

fn parse(text: &str) -> Option<HashMap<FileState, Record>> {
    let (body, end) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let body = &text[..=body.len()];
    if end.strip_prefix("end ")? != hex(&Sha256::digest(body)) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != HEADER {
        return None;
    }
    lines.map(record).collect()
}

fn record(line: &str) -> Option<(FileState, Record)> {
    let mut words = line.split(' ');
    let state = FileState {
        device: words.next()?.parse().ok()?,
        inode: words.next()?.parse().ok()?,
        size: words.next()?.parse().ok()?,
        modified_ns: words.next()?.parse().ok()?,
        changed_ns: words.next()?.parse().ok()?,
    };
    let used = words.next()?.parse().ok()?;
    let sha256 = words.next()?.to_owned();
    let is_digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_digest && words.next().is_none()).then_some((state, Record { sha256, used }))
}

#[cfg(test)]
mod tests;
