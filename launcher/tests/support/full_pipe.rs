//! A pipe that is full: a program that writes to it stands still until the test reads.
//!
//! So a test can hold a program at the first line that it prints, without a hook in it. Needs `nix` and nothing else
//! beyond `std`, so that tests of other packages can take this file by its path.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// The longest wait for anything: never reached unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct FullPipe {
    reader: PipeReader,
    writer: PipeWriter,
    /// Bytes that fill it.
    filling: usize,
}

impl FullPipe {
    pub(crate) fn new() -> Self {
        let (reader, mut writer) = std::io::pipe().unwrap();
        // The flag belongs to what the child gets too, so it is taken back.
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut filling = 0;
        while let Ok(written) = writer.write(&[b'\n'; 4096]) {
            filling += written;
        }
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        Self { reader, writer, filling }
    }

    /// The end for a child.
    pub(crate) fn stdio(&self) -> Stdio {
        self.writer.try_clone().unwrap().into()
    }

    /// Lets what was held go on; gives all that it wrote, once every writer is gone.
    pub(crate) fn drain(self) -> JoinHandle<String> {
        let Self { mut reader, writer, filling } = self;
        drop(writer);
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            String::from_utf8(bytes.split_off(filling)).unwrap()
        })
    }
}

/// Waits, for a bounded time, until some folder in `folder` has a file of this name.
#[expect(clippy::disallowed_methods, reason = "the time bounds the wait, and no clock of the product is at hand")]
pub(crate) fn wait_for_file_in_a_folder_of(folder: &Path, name: &str) {
    let limit = Instant::now() + PATIENCE;
    let is_there = || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(name)).any(|file| file.exists())
    };
    while !is_there() {
        assert!(Instant::now() < limit, "still waiting for `{name}` in `{}`", folder.display());
        let _ = nix::poll::poll(&mut [], 5_u8);
    }
}
