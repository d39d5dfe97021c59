//! Takes the digests of all files in folders twice, and prints what each time took: the first time every byte is read, the
//! second time what is remembered serves.
//!
//! The bench starts it to learn what one core reads in a second.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use torchlift::clock::Clock;
use torchlift::preflight::DigestCache;

fn main() -> ExitCode {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs_err::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let mut cache = DigestCache::in_memory();
    let clock = Clock::start();
    let mut bytes = 0;
    for time in ["read", "remembered"] {
        let start = clock.now();
        let digests = cache.digest_all(&files);
        let taken = clock.now().since(start);
        bytes = 0;
        for digest in digests {
            match digest {
                Ok(digest) => bytes += digest.size,
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        println!("{time}: {} us", taken.as_micros());
    }
    println!("bytes: {bytes}");
    println!("cores: {}", thread::available_parallelism().map_or(1, usize::from));
    ExitCode::SUCCESS
}
