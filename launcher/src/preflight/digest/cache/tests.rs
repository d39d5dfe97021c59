use std::os::unix::fs::MetadataExt;

use super::*;

/// sha256 of `abc`, from FIPS 180-4's examples.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn state(path: &Path) -> FileState {
    open(path).unwrap().1
}

/// A moment at which the file at `path` has long settled.
fn later(path: &Path) -> Duration {
    let metadata = fs_err::metadata(path).unwrap();
    Duration::from_secs(u64::try_from(metadata.ctime().max(metadata.mtime())).unwrap() + 3)
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs_err::write(&path, bytes).unwrap();
    path
}

/// Puts a digest that is not true into the cache, so that a hit can be told from a reading.
fn plant(cache: &mut DigestCache, path: &Path, sha256: &str) {
    let digest = FileDigest { size: state(path).size, sha256: sha256.to_owned() };
    cache.remember(state(path), &digest, later(path));
}

#[test]
fn a_digest_is_that_of_the_bytes_in_order_of_the_paths() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..20).map(|index| file(folder.path(), &format!("{index} é"), &vec![b'a'; index * 40_000])).collect();
    let mut cache = DigestCache::in_memory();
    let all = cache.digest_all(&paths);
    for (path, found) in paths.iter().zip(all) {
        let bytes = fs_err::read(path).unwrap();
        let expected = FileDigest { size: bytes.len() as u64, sha256: hex(&Sha256::digest(&bytes)) };
        assert_eq!(found.unwrap(), expected);
        assert_eq!(super::super::digest(path).unwrap(), expected);
    }
    assert_eq!(cache.digest(&file(folder.path(), "abc", b"abc")).unwrap().sha256, ABC);
}

#[test]
fn what_has_no_digest_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut cache = DigestCache::in_memory();
    let there = file(folder.path(), "abc", b"abc");
    let all = cache.digest_all(&[folder.path().join("gone"), there, folder.path().to_owned()]);
    assert!(matches!(all[0], Err(DigestError::Unreadable { .. })));
    assert_eq!(all[1].as_ref().unwrap().sha256, ABC);
    assert!(matches!(all[2], Err(DigestError::NotAFile { .. })));
}

#[test]
fn a_file_that_is_replaced_or_removed_while_it_is_read_has_no_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "program", b"abc");
    let (mut reading, state) = open(&path).unwrap();
    fs_err::rename(file(folder.path(), "new", b"abc"), &path).unwrap();
    assert!(matches!(read(&mut reading, state, &path), Err(DigestError::Replaced { .. })));
    let (mut reading, state) = open(&path).unwrap();
    fs_err::remove_file(&path).unwrap();
    assert!(matches!(read(&mut reading, state, &path), Err(DigestError::Replaced { .. })));
}

#[test]
fn a_file_that_is_written_to_while_it_is_read_has_no_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "program", b"abc");
    // Long ago, so that the clock of the file system has ticked by the time of the next write.
    let past = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs_err::OpenOptions::new().write(true).open(&path).unwrap().file().set_modified(past).unwrap();
    let (mut reading, state) = open(&path).unwrap();
    let mut writer = fs_err::OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all(b"xyz").unwrap();
    assert!(matches!(read(&mut reading, state, &path), Err(DigestError::Changed { .. })));
}

#[test]
fn a_file_that_has_not_settled_is_not_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "abc", b"abc");
    let digest = super::super::digest(&path).unwrap();
    let mut cache = DigestCache::in_memory();
    let written = Duration::from_nanos(u64::try_from(state(&path).changed_ns).unwrap());
    cache.remember(state(&path), &digest, written + Duration::from_millis(1999));
    assert!(cache.records.is_empty());
    // A clock that runs behind the file server's makes a file from the future: it has not settled either.
    cache.remember(state(&path), &digest, written.saturating_sub(Duration::from_secs(60)));
    assert!(cache.records.is_empty());
    cache.remember(state(&path), &digest, written + SETTLED);
    assert_eq!(cache.records.len(), 1);
}

#[test]
fn a_remembered_digest_is_used_until_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "abc", b"abc");
    let mut cache = DigestCache::in_memory();
    let planted = "0".repeat(64);
    plant(&mut cache, &path, &planted);
    assert_eq!(cache.digest(&path).unwrap().sha256, planted);
    assert_eq!(cache.digest_all(std::slice::from_ref(&path))[0].as_ref().unwrap().sha256, planted);
    // Renamed over: another inode.
    let new = file(folder.path(), "new", b"abc");
    fs_err::rename(&new, &path).unwrap();
    assert_eq!(cache.digest(&path).unwrap().sha256, ABC);
    // Written in place with its times put back: the time of the change stays.
    plant(&mut cache, &path, &planted);
    let old = fs_err::metadata(&path).unwrap();
    let times = std::fs::FileTimes::new().set_modified(old.modified().unwrap());
    let before = state(&path).changed_ns;
    let writer = fs_err::OpenOptions::new().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &writer, b"abd").unwrap();
    // Two changes within one tick of the file system's clock look alike; in use, only settled files are remembered.
    let is_later = (0..10_000_000).any(|_| {
        writer.file().set_times(times).unwrap();
        state(&path).changed_ns != before
    });
    assert!(is_later);
    assert_eq!(fs_err::metadata(&path).unwrap().modified().unwrap(), old.modified().unwrap());
    assert_ne!(cache.digest(&path).unwrap().sha256, planted);
}

#[test]
fn reading_anew_forgets_a_wrong_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "abc", b"abc");
    let mut cache = DigestCache::in_memory();
    plant(&mut cache, &path, &"0".repeat(64));
    assert_eq!(cache.digest_anew(&path).unwrap().sha256, ABC);
    assert_eq!(cache.digest(&path).unwrap().sha256, ABC);
}

#[test]
fn what_is_saved_is_there_again_with_what_others_saved() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("new folder/é/digests");
    let (one, two) = (file(folder.path(), "one", b"1"), file(folder.path(), "two", b"2"));
    let (mut a, mut b) = (DigestCache::open(&store), DigestCache::open(&store));
    plant(&mut a, &one, &"1".repeat(64));
    plant(&mut b, &two, &"2".repeat(64));
    a.save().unwrap();
    b.save().unwrap();
    let mut both = DigestCache::open(&store);
    assert_eq!(both.digest(&one).unwrap().sha256, "1".repeat(64));
    assert_eq!(both.digest(&two).unwrap().sha256, "2".repeat(64));
    let left = fs_err::read_dir(store.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "no temporary file stays");
}

#[test]
fn saving_with_nothing_new_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("digests");
    DigestCache::open(&store).save().unwrap();
    assert!(!store.exists());
}

#[test]
fn a_damaged_store_is_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("digests");
    let path = file(folder.path(), "abc", b"abc");
    let mut cache = DigestCache::open(&store);
    plant(&mut cache, &path, &"0".repeat(64));
    cache.save().unwrap();
    let whole = fs_err::read(&store).unwrap();
    assert_eq!(DigestCache::open(&store).records.len(), 1);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs_err::write(&store, &bytes).unwrap();
        assert!(DigestCache::open(&store).records.is_empty(), "byte {at}");
        fs_err::write(&store, &whole[..at]).unwrap();
        assert!(DigestCache::open(&store).records.is_empty(), "cut at {at}");
    }
    fs_err::write(&store, [0xff, 0xfe]).unwrap();
    assert_eq!(DigestCache::open(&store).digest(&path).unwrap().sha256, ABC);
}

#[test]
fn writers_at_the_same_time_leave_a_whole_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("digests");
    let paths: Vec<PathBuf> = (0..8).map(|index| file(folder.path(), &index.to_string(), b"x")).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut cache = DigestCache::open(&store);
                    plant(&mut cache, path, &"3".repeat(64));
                    cache.save().unwrap();
                }
            });
        }
    });
    let text = fs_err::read_to_string(&store).unwrap();
    assert!(!parse(&text).unwrap().is_empty());
}

#[test]
fn the_store_keeps_the_most_recently_used_records_and_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut cache = DigestCache::open(&folder.path().join("digests"));
    for inode in 0..(MAX_RECORDS as u64 + 500) {
        let state = FileState { device: u64::MAX, inode, size: u64::MAX, modified_ns: i128::MAX, changed_ns: 0 };
        cache.records.insert(state, Record { sha256: "4".repeat(64), used: inode });
    }
    cache.is_changed = true;
    cache.save().unwrap();
    assert!(fs_err::metadata(folder.path().join("digests")).unwrap().len() <= MAX_FILE);
    let kept = load(&folder.path().join("digests"));
    assert_eq!(kept.len(), MAX_RECORDS);
    assert!(kept.keys().all(|state| state.inode >= 500));
}
