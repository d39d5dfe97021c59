//! Every reader of an ELF file against the same bytes.

#![no_main]

mod cost;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use torchlift::preflight::{elf, fatbin, symbols};

fuzz_target!(|bytes: &[u8]| cost::bounded(|| read(bytes)));

fn read(bytes: &[u8]) {
    let path = Path::new("input");
    let _symbols = symbols::parse(bytes, path);
    if let Ok(Some(found)) = fatbin::parse(bytes, path) {
        let _shares = found.coverage();
    }
    if let Ok(facts) = elf::parse(bytes, path) {
        let _floors = (facts.glibc(), facts.libstdcxx());
        // What looks up one file's references in another takes paths.
        let (_file, path) = in_memory(bytes);
        let _missing = symbols::unresolved(&[&path, &path]);
    }
}

/// A file that never reaches a disk, and its path for as long as it is open.
fn in_memory(bytes: &[u8]) -> (File, PathBuf) {
    let mut file = File::from(memfd_create("input", MFdFlags::MFD_CLOEXEC).expect("memory for a file"));
    file.write_all(bytes).expect("room for an input");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}
