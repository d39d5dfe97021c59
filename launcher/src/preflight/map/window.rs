//! A window onto a part of a file, for what is read from its beginning to its end.

use std::io;

use fs_err::File;
use memmap2::{Advice, MmapOptions};

use super::guard::Watch;

/// Shows `look` the `length` bytes of `file` from `offset` on; none when some of them could not be read: then the file has
/// become shorter, or its file system has failed, and what `look` gave is not told.
///
/// # Errors
/// When they cannot be mapped, which says nothing of the file: some file systems and some sandboxes have no maps.
pub(crate) fn through<T>(
    file: &File,
    offset: u64,
    length: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> io::Result<Option<T>> {
    // SAFETY: the map is read-only and does not outlive this call. Another process may write into the file meanwhile, so that
    // bytes change under `look`, which takes them as they come; whoever reads a file for good looks at its time stamps
    // afterwards. That it is cut short is what the watch is for.
    let map = unsafe { MmapOptions::new().offset(offset).len(length).map(file.file()) }?;
    // All at once is less work than a fault every few pages. Kernels before 5.14 do not know it, and whatever keeps a page from
    // coming shows when it is read.
    let _ = map.advise(Advice::PopulateRead);
    // Declared after the map, and so gone before it.
    let watch = Watch::over(&map)?;
    let seen = look(&map);
    Ok((!watch.is_damaged()).then_some(seen))
}

/// Asks the CPU for bytes that are wanted soon, and once. A CPU fetches ahead by itself up to the end of a page, and the next
/// page of a file lies anywhere: without this, hashing a map is slower than hashing a copy.
#[cfg(target_arch = "x86_64")]
pub(crate) fn fetch(bytes: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_NTA, _mm_prefetch};
    /// Bytes that it fetches at a time.
    const LINE: usize = 64;
    for line in bytes.chunks(LINE) {
        // SAFETY: a hint, which reads nothing and cannot fail, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_NTA>(line.as_ptr().cast()) };
    }
}

/// Elsewhere Rust offers no such hint yet.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn fetch(_: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &std::path::Path, length: usize) -> File {
        let path = folder.join("Bücher é");
        fs_err::write(&path, (0..length).map(|at| at as u8).collect::<Vec<u8>>()).unwrap();
        File::options().read(true).write(true).open(path).unwrap()
    }

    const PAGE: usize = 4096;

    #[test]
    fn a_window_shows_its_part_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), 5 * PAGE + 7);
        let seen = through(&file, 4 * PAGE as u64, PAGE + 7, |bytes| (bytes.len(), bytes[PAGE + 6])).unwrap();
        assert_eq!(seen, Some((PAGE + 7, (5 * PAGE + 6) as u8)));
    }

    #[test]
    fn a_window_onto_what_was_cut_off_shows_nothing_and_the_process_lives() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path(), 16 * PAGE);
        let cut = |bytes: &[u8]| {
            file.set_len(3 * PAGE as u64 + 1).unwrap();
            bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>()
        };
        assert_eq!(through(&file, 0, 16 * PAGE, cut).unwrap(), None);
        // All of it gone before, and read in the other direction.
        let backwards = |bytes: &[u8]| bytes.iter().rev().fold(0_u8, |all, byte| all ^ byte);
        assert_eq!(through(&file, 8 * PAGE as u64, 8 * PAGE, backwards).unwrap(), None);
        // The next window is none the worse for it.
        assert_eq!(through(&file, 0, 3 * PAGE, |bytes| bytes[1]).unwrap(), Some(1));
    }

    #[test]
    fn threads_do_not_share_their_damage() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let folder = folder.path().join(number.to_string());
                scope.spawn(move || {
                    fs_err::create_dir(&folder).unwrap();
                    let file = file(&folder, 64 * PAGE);
                    let is_cut = number % 2 == 0;
                    for _ in 0..50 {
                        file.set_len(64 * PAGE as u64).unwrap();
                        let seen = through(&file, 0, 64 * PAGE, |bytes| {
                            if is_cut {
                                file.set_len(10).unwrap();
                            }
                            bytes.iter().fold(0_u64, |all, byte| all.wrapping_add(u64::from(*byte)))
                        });
                        assert_eq!(seen.unwrap().is_none(), is_cut);
                    }
                });
            }
        });
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error_and_not_a_damage() {
        let pipe = File::open("/dev/null").unwrap();
        assert!(through(&pipe, 0, PAGE, <[u8]>::len).is_err());
    }
}
