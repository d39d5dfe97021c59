//! Files on a file system that another machine serves, and what is believed of files.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sha2::{Digest as _, Sha256};
use torchlift_schema::{Artifact, Envelope, PerHostEnvelope, write};

use crate::skip::skip;
use crate::stage::{Stage, within};

const RIGHT: &str = "#!/bin/sh\necho right\n";
/// As long as the right one.
const OTHER: &str = "#!/bin/sh\necho wrong\n";

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the envelope of `bin/train`, which is to be [`RIGHT`].
fn envelope(stage: &Stage) {
    let own = PerHostEnvelope { bin: "bin/train".into(), ld_library_path: String::new(), cwd_subpath: String::new() };
    let artifact = Artifact::new("x86_64-unknown-linux-gnu", RIGHT.len() as u64, sha256(RIGHT), "0123abcd", "source");
    stage.write(
        "cluster/node-a/envelope.json",
        &write::to_text(&write::seal(Envelope::new("node-a", own, artifact))),
        0o644,
    );
}

/// A folder shown through FUSE, as sshfs and GlusterFS show theirs.
struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Shows `folder`; none where this machine cannot.
    fn of(folder: &Path, at: PathBuf) -> Option<Self> {
        fs_err::create_dir_all(&at).unwrap();
        let bindfs = Command::new("bindfs").arg("--no-allow-other").arg(folder).arg(&at).output();
        bindfs.is_ok_and(|output| output.status.success()).then_some(Self { at })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").arg("-u").arg("-z").arg(&self.at).status();
    }
}

#[test]
fn a_network_file_system_that_shows_the_old_program_for_a_while_is_waited_for() {
    let stage = Stage::new();
    envelope(&stage);
    let served = stage.write("served/bin/train", OTHER, 0o755);
    let Some(_mount) = Mount::of(&stage.folder.join("served"), stage.folder.join("shown")) else {
        skip(
            "a_network_file_system_that_shows_the_old_program_for_a_while_is_waited_for",
            "a folder cannot be shown through FUSE",
            "`apt-get install bindfs fuse3`, on a machine with `/dev/fuse`",
        );
        return;
    };
    let mut command = stage.command();
    command.args(["run", "--envelopes", "cluster", "--path", "node-a=shown"]);
    let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    stderr.read_line(&mut told).unwrap();
    assert!(told.contains("shown/bin/train") && told.contains("looking again for up to 60 s"), "{told}");
    let new = stage.write("served/bin/.new", RIGHT, 0o755);
    fs_err::rename(new, served).unwrap();
    let rest = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap());
    let output = within(child, Child::wait_with_output);
    let rest = rest.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{rest}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[node-a:0] right\n");
}

#[test]
fn a_program_on_this_machines_disk_is_refused_at_once() {
    let stage = Stage::new();
    envelope(&stage);
    stage.write("bin/train", OTHER, 0o755);
    let seen = stage.run(["run", "--envelopes", "cluster"]);
    seen.code(205).says("error[program-changed]");
    assert!(!seen.stderr.contains("looking again"), "{}", seen.stderr);
}

#[test]
fn paranoid_reads_every_byte_whatever_is_remembered() {
    let stage = Stage::new();
    envelope(&stage);
    let program = stage.write("bin/train", OTHER, 0o755);
    // What a file system that lies about its time stamps would lead to: a record of other bytes.
    let file = fs_err::metadata(&program).unwrap();
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let (modified, changed) =
        (nanoseconds(file.mtime(), file.mtime_nsec()), nanoseconds(file.ctime(), file.ctime_nsec()));
    let (device, inode, size, digest) = (file.dev(), file.ino(), file.size(), sha256(RIGHT));
    let records = format!("torchlift digests 1\n{device} {inode} {size} {modified} {changed} 0 {digest}\n");
    stage.write(".cache/torchlift/digests", &format!("{records}end {}\n", sha256(&records)), 0o644);
    let believed = stage.run(["run", "--envelopes", "cluster"]);
    assert_eq!(believed.code(0).stdout, "[node-a:0] wrong\n", "the record is believed, or this test tests nothing");
    stage.run(["run", "--envelopes", "cluster", "--paranoid"]).code(205).says("error[program-changed]");
}
