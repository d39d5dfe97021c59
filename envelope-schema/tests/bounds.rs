//! Memory stays bounded whatever the file is. Alone in its program, since the allocator counts for the whole process.

use peak_alloc::PeakAlloc;
use torchlift_schema::{EnvelopeError, read};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Reads with every reader, and gives the error of `any` and the most bytes that were allocated at one time.
fn growth(bytes: &[u8]) -> (EnvelopeError, usize) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    assert!(read::envelope(bytes).is_err() && read::per_host(bytes).is_err() && read::per_host_map(bytes).is_err());
    let error = read::any(bytes).expect_err("this is no envelope");
    (error, ALLOCATOR.peak_usage() - before)
}

#[test]
fn a_hostile_file_costs_little_memory() {
    const KIB: usize = 1024;

    // 100 MB: refused by its size, not looked at.
    let text = format!(r#"{{"version": 1, "bin": "{}"}}"#, "a".repeat(100_000_000));
    let (error, grown) = growth(text.as_bytes());
    assert!(matches!(error, EnvelopeError::TooLarge { size, .. } if size == text.len()), "{error}");
    assert!(grown < 4 * KIB, "{grown} bytes");

    // 4 MiB of brackets: refused by their depth, on a small stack.
    let text = "[".repeat(read::MAX_BYTES);
    let (error, grown) = std::thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(move || growth(text.as_bytes()))
        .expect("a thread")
        .join()
        .expect("no overflow");
    assert!(matches!(error, EnvelopeError::TooDeep { .. }), "{error}");
    assert!(grown < 4 * KIB, "{grown} bytes");

    // The most values that fit into the size: parsed, since nothing forbids them, and still bounded.
    let list = vec!["0"; read::MAX_BYTES / 2 - 16].join(",");
    let text = format!(r#"{{"bin": 1, "x": [{list}]}}"#);
    let (error, grown) = growth(text.as_bytes());
    assert!(matches!(error, EnvelopeError::WrongType { .. }), "{error}");
    assert!(grown < 128 * KIB * KIB, "{grown} bytes");
}
