//! Memory stays bounded whatever the file is. Alone in its program, since the peak is one of the whole process.

use torchlift_schema::{EnvelopeError, read};

/// Peak resident memory of this process so far, in bytes.
fn peak() -> usize {
    let status = fs_err::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux has it");
    let kib: usize = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number of KiB");
    kib * 1024
}

/// Reads with every reader, and gives the error of `any` and how much the peak grew.
fn growth(bytes: &[u8]) -> (EnvelopeError, usize) {
    let before = peak();
    assert!(read::envelope(bytes).is_err() && read::per_host(bytes).is_err() && read::per_host_map(bytes).is_err());
    let error = read::any(bytes).expect_err("this is no envelope");
    (error, peak() - before)
}

#[test]
fn a_hostile_file_costs_little_memory() {
    const MIB: usize = 1024 * 1024;

    // 100 MB: refused by its size, not looked at.
    let text = format!(r#"{{"version": 1, "bin": "{}"}}"#, "a".repeat(100_000_000));
    let (error, grown) = growth(text.as_bytes());
    assert!(matches!(error, EnvelopeError::TooLarge { size, .. } if size == text.len()), "{error}");
    assert!(grown < MIB, "{grown} bytes");

    // 4 MiB of brackets: refused by their depth, on a small stack.
    let text = "[".repeat(read::MAX_BYTES);
    let (error, grown) = std::thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(move || growth(text.as_bytes()))
        .expect("a thread")
        .join()
        .expect("no overflow");
    assert!(matches!(error, EnvelopeError::TooDeep { .. }), "{error}");
    assert!(grown < MIB, "{grown} bytes");

    // The most values that fit into the size: parsed, since nothing forbids them, and still bounded.
    let list = vec!["0"; read::MAX_BYTES / 2 - 16].join(",");
    let text = format!(r#"{{"bin": 1, "x": [{list}]}}"#);
    let (error, grown) = growth(text.as_bytes());
    assert!(matches!(error, EnvelopeError::WrongType { .. }), "{error}");
    assert!(grown < 256 * MIB, "{grown} bytes");
}
