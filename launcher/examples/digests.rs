//! Takes the digests of files, and of all files in folders, twice, and prints what each time took: the first time every byte is
//! read, the second time what is remembered serves.
//!
//! The bench starts it to learn what one core reads in a second, so that it says too how much of the cores' time it took.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use torchlift::clock::Clock;
use torchlift::preflight::DigestCache;

fn main() -> ExitCode {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).flat_map(files).collect();
    files.sort();
    let mut cache = DigestCache::in_memory();
    let clock = Clock::start();
    let mut bytes = 0;
    for time in ["read", "remembered"] {
        let (start, used) = (clock.now(), core_time_us());
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
        println!("{time}, time of cores: {} us", core_time_us() - used);
    }
    println!("bytes: {bytes}");
    println!("cores: {}", thread::available_parallelism().map_or(1, usize::from));
    ExitCode::SUCCESS
}

/// The files in a folder, or the file itself.
fn files(path: PathBuf) -> Vec<PathBuf> {
    match fs_err::read_dir(&path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect(),
        Err(_) => vec![path],
    }
}

/// What this process has had of all cores so far, in microseconds; 0 where the kernel does not say.
fn core_time_us() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0, |usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}
