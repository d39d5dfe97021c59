use super::*;

/// Bytes that differ from page to page.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 61) as u8).collect()
}

fn file(folder: &Path, length: usize) -> PathBuf {
    let path = folder.join("lib é.so");
    fs_err::write(&path, bytes(length)).unwrap();
    path
}

fn resize(path: &Path, length: usize) {
    fs_err::OpenOptions::new().write(true).open(path).unwrap().set_len(length as u64).unwrap();
}

#[test]
fn a_file_of_any_size_has_the_digest_of_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for length in [0, 1, 511, 512, 4095, 4096, 4097, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 5000] {
        let found = digest(&file(folder.path(), length)).unwrap();
        assert_eq!(found, FileDigest { size: length as u64, sha256: hex(&Sha256::digest(bytes(length))) }, "{length}");
    }
}

#[test]
fn what_is_read_and_what_is_looked_through_have_one_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), WINDOW + 5000);
    let (mut file, state) = open(&path).unwrap();
    let mut copied = Sha256::new();
    assert_eq!(copy_from(&mut file, 0, &mut copied).unwrap(), state.size);
    let mut mixed = Sha256::new();
    assert!(matches!(look_through(&file, WINDOW as u64, &mut mixed), Seen::To(offset) if offset == WINDOW as u64));
    assert_eq!(copy_from(&mut file, WINDOW as u64, &mut mixed).unwrap(), 5000);
    assert_eq!(hex(&copied.finalize()), hex(&mixed.finalize()));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_has_no_digest_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // At a window's end, within a page, within a window, and all of it.
    for left in [WINDOW, WINDOW + 5000, 3 * WINDOW / 2, 4096, 1, 0] {
        let path = file(folder.path(), 2 * WINDOW + 5000);
        let (mut reading, state) = open(&path).unwrap();
        resize(&path, left);
        let error = read(&mut reading, state, &path).unwrap_err();
        assert!(matches!(error, DigestError::Changed { .. }), "{left}: {error}");
    }
}

#[test]
fn a_file_that_grows_while_it_is_read_has_no_digest() {
    let folder = tempfile::tempdir().unwrap();
    for (length, grown) in [(5000, 5001), (0, WINDOW), (WINDOW, WINDOW + 1)] {
        let path = file(folder.path(), length);
        let (mut reading, state) = open(&path).unwrap();
        resize(&path, grown);
        let error = read(&mut reading, state, &path).unwrap_err();
        assert!(matches!(error, DigestError::Changed { .. }), "{length}: {error}");
    }
}

#[test]
fn what_cannot_be_read_is_unreadable_only_when_the_file_is_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), 5000);
    let failed = || Err(nix::errno::Errno::EIO.into());
    let (opened, state) = open(&path).unwrap();
    let judged = || judged(failed(), &opened, state, &path).unwrap_err();
    let error = judged();
    assert!(matches!(&error, DigestError::Unreadable { source, .. } if source.raw_os_error() == Some(5)), "{error}");
    resize(&path, 100);
    assert!(matches!(judged(), DigestError::Changed { .. }));
    fs_err::remove_file(&path).unwrap();
    assert!(matches!(judged(), DigestError::Replaced { .. }));
}

#[test]
fn files_that_are_cut_short_do_not_touch_those_that_other_threads_read() {
    let folder = tempfile::tempdir().unwrap();
    let expected = hex(&Sha256::digest(bytes(WINDOW + 1)));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (folder, expected) = (folder.path().join(number.to_string()), expected.as_str());
            scope.spawn(move || {
                fs_err::create_dir(&folder).unwrap();
                for _ in 0..5 {
                    let path = file(&folder, WINDOW + 1);
                    let (mut reading, state) = open(&path).unwrap();
                    if number % 2 == 0 {
                        resize(&path, 100);
                        read(&mut reading, state, &path).unwrap_err();
                    } else {
                        assert_eq!(read(&mut reading, state, &path).unwrap().sha256, *expected);
                    }
                }
            });
        }
    });
}
