//! Wheels by the machine's own pip, so that any index, proxy or certificate that the user set up holds.
//!
//! Owns the command line and the reading of what pip says. Must not open the wheels.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};

use super::event::{FetchEvent, Listener, human_size};
use super::tool::{self, Env};

/// Pythons to ask wheels for, the most likely to have one first. Which Python a torch wheel is for changes nothing in
/// the libraries that are taken from it.
const PYTHON_VERSIONS: [&str; 7] = ["3.11", "3.12", "3.10", "3.13", "3.9", "3.14", "3.8"];
/// The newest glibc that a wheel's tag may name, as the minor version of glibc 2.
const NEWEST_GLIBC: u32 = 39;
/// Room that is left over when a download fills a disk: pip's own temporary files, and the digests.
const SLACK: u64 = 64_000_000;

/// Why pip gave no wheel.
#[derive(Debug, thiserror::Error)]
pub(super) enum PipError {
    /// No index that pip knows has it for this CPU.
    #[error("pip found no wheel of `{requirement}` for Linux on {cpu_arch}")]
    NoWheel { requirement: String, cpu_arch: String },
    /// No index could be reached.
    #[error("pip could not reach a package index: {said}")]
    Network { said: String },
    /// It failed in another way.
    #[error("pip failed (exit code {code}): {said}")]
    Failed { code: String, said: String },
    /// The disk has no room for what pip announced.
    #[error("`{folder}` has {} free, and {} are needed", human_size(*available), human_size(*needed))]
    Space { folder: Utf8PathBuf, needed: u64, available: u64 },
    /// It could not be run.
    #[error("pip could not be run")]
    Io(#[from] io::Error),
}

/// The pip of one Python.
pub(super) struct Pip<'a> {
    /// The Python that has it.
    pub python: Utf8PathBuf,
    /// The environment it gets.
    pub env: &'a Env,
    /// As in a target triple.
    pub cpu_arch: &'a str,
    /// A further index to ask, beside those that the user set up.
    pub index: Option<&'a str>,
}

impl Pip<'_> {
    /// Downloads one wheel for each requirement (`name==version`) into `out`, with all that pip needs below `scratch`.
    pub(super) fn download(
        &self,
        requirements: &[String],
        out: &Utf8Path,
        scratch: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<Vec<Utf8PathBuf>, PipError> {
        for version in PYTHON_VERSIONS {
            match self.attempt(requirements, version, out, scratch, listen) {
                Err(PipError::NoWheel { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let mut files: Vec<Utf8PathBuf> = out
                        .read_dir_utf8()?
                        .flatten()
                        .map(camino::Utf8DirEntry::into_path)
                        .filter(|path| path.extension() == Some("whl"))
                        .collect();
                    files.sort();
                    return Ok(files);
                }
            }
        }
        Err(PipError::NoWheel { requirement: requirements.join(" "), cpu_arch: self.cpu_arch.to_owned() })
    }

    fn attempt(
        &self,
        requirements: &[String],
        python_version: &str,
        out: &Utf8Path,
        scratch: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<(), PipError> {
        let temporary = scratch.join("tmp");
        fs_err::create_dir_all(&temporary)?;
        // pip unpacks nothing, but it downloads into TMPDIR, and /tmp is often small or in memory.
        let mut env = self.env.clone();
        env.insert("TMPDIR".into(), temporary.as_str().into());
        env.insert("PYTHONUNBUFFERED".into(), "1".into());
        let args = self.arguments(requirements, python_version, out);
        let mut progress = Progress { announced: None, before: 0, size: 0, lines: 0 };
        let ended = tool::watch(&self.python, &args, &env, &scratch.join("pip.log"), &mut |output| {
            progress.look(output, scratch, listen)
        });
        progress.end(listen);
        let ended = ended?;
        if ended.is_success {
            return Ok(());
        }
        Err(self.failure(requirements, &ended))
    }

    fn arguments(&self, requirements: &[String], python_version: &str, out: &Utf8Path) -> Vec<String> {
        let mut args: Vec<String> = [
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
            // Older pips hold the whole file in memory to put it into their cache; ours is the folder of downloads.
            "--no-cache-dir",
            // Without a network the user should not wait for five growing pauses.
            "--retries=2",
            "--implementation=cp",
        ]
        .map(str::to_owned)
        .into();
        args.push(format!("--python-version={python_version}"));
        args.extend(platforms(self.cpu_arch).into_iter().map(|tag| format!("--platform={tag}")));
        args.extend(self.index.map(|index| format!("--extra-index-url={index}")));
        args.push(format!("--dest={out}"));
        args.push("--".to_owned());
        args.extend(requirements.iter().cloned());
        args
    }

    fn failure(&self, requirements: &[String], ended: &tool::Ended) -> PipError {
        let output = &ended.output;
        let said = |marks: &[&str]| {
            output
                .lines()
                .rev()
                .find(|line| marks.iter().any(|mark| line.contains(mark)))
                .map(|line| line.trim().to_owned())
        };
        // A full disk is told by what pip says, since it is pip that writes.
        if output.contains("No space left on device") || output.contains("Disk quota exceeded") {
            return PipError::Io(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        // pip ends with "no matching distribution" after a network failure too: its warnings say which it was.
        let network = ["Retrying (", "ConnectionError", "NewConnectionError", "ProxyError", "SSLError", "ReadTimeout"];
        if let Some(line) = said(&network) {
            return PipError::Network { said: line };
        }
        if said(&["No matching distribution found", "Could not find a version"]).is_some() {
            let requirement = requirements.join(" ");
            return PipError::NoWheel { requirement, cpu_arch: self.cpu_arch.to_owned() };
        }
        let code = ended.code.map_or_else(|| "none, a signal".to_owned(), |code| code.to_string());
        let error = said(&["ERROR:"]).unwrap_or_else(|| tool::last_lines(output, 2));
        PipError::Failed { code, said: error }
    }
}

/// Platform tags, best first: what torch is built for today, then older, then newer glibc, then the plain tag of
/// torch's own indexes.
fn platforms(cpu_arch: &str) -> Vec<String> {
    let older = (17..=28).rev().map(|minor| format!("manylinux_2_{minor}_{cpu_arch}"));
    let newer = (29..=NEWEST_GLIBC).map(|minor| format!("manylinux_2_{minor}_{cpu_arch}"));
    older.chain([format!("manylinux2014_{cpu_arch}")]).chain(newer).chain([format!("linux_{cpu_arch}")]).collect()
}

/// Follows pip's lines and the bytes that it has written.
struct Progress {
    announced: Option<u64>,
    /// What lay there when the file was announced.
    before: u64,
    size: u64,
    lines: usize,
}

impl Progress {
    fn look(&mut self, output: &str, scratch: &Utf8Path, listen: Listener<'_>) -> Result<(), PipError> {
        // The last line may be half written: only whole ones are read.
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        let lines: Vec<&str> = whole.lines().collect();
        for line in &lines[self.lines.min(lines.len())..] {
            if let Some((what, size)) = announced(line) {
                self.end(listen);
                // Files of the same call that are down already; of this one hardly anything is.
                self.before += std::mem::take(&mut self.size);
                self.size = size;
                self.announced = Some(size);
                // pip moves the file across after it downloaded it, so that for a moment there are two.
                let needed = size * 2 + SLACK;
                if let Some(available) = tool::free_space(scratch).filter(|free| *free < needed) {
                    return Err(PipError::Space {
                        folder: scratch.parent().unwrap_or(scratch).to_owned(),
                        needed,
                        available,
                    });
                }
                listen(FetchEvent::Begin { what: format!("downloading {what}"), total: Some(size) });
            }
        }
        self.lines = lines.len();
        if let Some(size) = self.announced {
            listen(FetchEvent::Done(tool::folder_size(scratch).saturating_sub(self.before).min(size)));
        }
        Ok(())
    }

    fn end(&mut self, listen: Listener<'_>) {
        if self.announced.take().is_some() {
            listen(FetchEvent::End);
        }
    }
}

/// The file and size of `Downloading torch-2.9.0-….whl (899.8 MB)`; metadata files are not told.
fn announced(line: &str) -> Option<(&str, u64)> {
    let rest = line.trim().strip_prefix("Downloading ")?;
    let (what, size) = rest.rsplit_once(" (")?;
    // Some versions of pip print the whole address.
    let what = what.rsplit('/').next().unwrap_or(what);
    if what.ends_with(".metadata") {
        return None;
    }
    let (number, unit) = size.strip_suffix(')')?.split_once(' ')?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = whole.parse::<u64>().ok()? * 10 + tenth.get(..1)?.parse::<u64>().ok()?;
    let unit = match unit {
        "bytes" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    Some((what, tenths * unit / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_read_from_the_line_that_announces_it() {
        let line = "  Downloading torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl (899.8 MB)";
        assert_eq!(announced(line), Some(("torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl", 899_800_000)));
        assert_eq!(announced("Downloading http://mirror/a%2Bb.whl (57 kB)"), Some(("a%2Bb.whl", 57_000)));
        assert_eq!(announced("Downloading x.whl.metadata (30 kB)"), None);
        assert_eq!(announced("Saved ./x.whl"), None);
    }

    #[test]
    fn wheels_of_older_and_newer_glibc_are_asked_for() {
        let tags = platforms("aarch64");
        for tag in ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_34_aarch64", "linux_aarch64"] {
            assert!(tags.iter().any(|have| have == tag), "{tag}");
        }
        assert_eq!(tags[0], "manylinux_2_28_aarch64");
    }
}
