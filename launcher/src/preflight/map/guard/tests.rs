use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};

use super::*;
use crate::preflight::map;

/// Says to a test that it is the process which is to end.
const VICTIM: &str = "TORCHLIFT_TEST_VICTIM";

fn is_victim() -> bool {
    std::env::var_os(VICTIM).is_some()
}

/// Runs the test `name` again, in a process of its own.
fn ended(name: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("preflight::map::guard::tests::{name}"), "--nocapture"]);
    command.env(VICTIM, "yes").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap()
}

fn file(length: u64) -> fs_err::File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(length).unwrap();
    fs_err::File::from_parts(file, "a file without a name")
}

fn no_core() {
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0).unwrap();
}

#[test]
fn an_access_outside_of_what_is_watched_ends_the_process_as_before() {
    if !is_victim() {
        let status = ended("an_access_outside_of_what_is_watched_ends_the_process_as_before");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    no_core();
    // The guard works, so that it is there.
    let guarded = file(1 << 16);
    let seen = map::through(&guarded, 0, 1 << 16, |bytes| {
        guarded.set_len(0).unwrap();
        bytes[5000]
    });
    assert_eq!(seen.unwrap(), None);
    let other = file(1 << 16);
    // SAFETY: that it is cut short is what this is about.
    let bytes = unsafe { memmap2::Mmap::map(other.file()) }.unwrap();
    other.set_len(0).unwrap();
    assert_eq!(std::hint::black_box(&bytes)[5000], 0, "the page is not there");
}

#[test]
fn a_signal_that_is_sent_is_not_swallowed() {
    if !is_victim() {
        let status = ended("a_signal_that_is_sent_is_not_swallowed");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    no_core();
    // Rust's own handler passes over the first that is sent.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe { sigaction(Signal::SIGBUS, &default) }.unwrap();
    assert_eq!(map::through(&file(1), 0, 1, <[u8]>::len).unwrap(), Some(1));
    raise(Signal::SIGBUS).unwrap();
}

#[test]
fn a_full_table_refuses_and_a_freed_slot_is_taken_again() {
    let table = Table::<2>::new();
    let bytes = [0_u8; 64];
    let [first, second] = [0, 1].map(|_| table.watch(&bytes, 4096).unwrap());
    assert!(!std::ptr::eq(first, second));
    assert!(table.watch(&bytes, 4096).is_none());
    second.is_damaged.store(true, Ordering::SeqCst);
    second.start.store(FREE, Ordering::SeqCst);
    let again = table.watch(&bytes, 4096).unwrap();
    assert!(std::ptr::eq(again, second));
    assert!(!again.is_damaged.load(Ordering::SeqCst), "the mark was that of the range before");
}

#[test]
fn a_range_goes_to_the_end_of_its_last_page() {
    let table = Table::<4>::new();
    let bytes = [0_u8; 64];
    assert!(table.find(bytes.as_ptr().addr()).is_none());
    let slot = table.watch(&bytes, 4096).unwrap();
    let start = bytes.as_ptr().addr();
    let end = (start + 64).next_multiple_of(4096);
    let found = |address| table.find(address).map(|(_, end)| end);
    assert_eq!([found(start), found(end - 1)], [Some(end); 2]);
    assert_eq!([found(start - 1), found(end), found(0), found(usize::MAX)], [None; 4]);
    slot.start.store(FREE, Ordering::SeqCst);
    assert_eq!(found(start), None);
}
