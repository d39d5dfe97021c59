//! The official libtorch archive for a CPU, by the machine's own `curl`.
//!
//! Asked first because it needs no Python; its host is often out of reach on closed networks, so that the question is
//! short and a refusal is only a note.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};

use super::archive::SLACK;
use super::event::{FetchEvent, Listener, human_size};
use super::tool::{self, Env};

/// Where the archives lie when `TORCHLIFT_LIBTORCH_URL` names no mirror.
const BASE: &str = "https://download.pytorch.org/libtorch";
/// Where torch's own wheels lie beside them, an index for each toolkit.
const WHEELS: &str = "https://download.pytorch.org/whl";
/// curl's exit code when a server does not give a part of a file.
const NO_RANGES: i32 = 33;

/// Why the official archive was not had.
#[derive(Debug, thiserror::Error)]
pub(super) enum OfficialError {
    /// There is none for this CPU.
    #[error("there is no official archive for Linux on {cpu_arch}")]
    NoArchive { cpu_arch: String },
    /// It has to be downloaded with curl.
    #[error("no `curl` on `PATH`")]
    NoCurl,
    /// The host is out of reach, or has no such file.
    #[error("`{url}` cannot be had: {said}")]
    Unreachable { url: String, said: String },
    /// The disk has no room.
    #[error("`{folder}` has {} free, and {} are needed", human_size(*available), human_size(*needed))]
    Space { folder: Utf8PathBuf, needed: u64, available: u64 },
    /// The download broke.
    #[error("the download of `{url}` broke: {said}")]
    Broken { url: String, said: String },
    /// It could not be run, or its file not be read.
    #[error("curl could not be run")]
    Io(#[from] io::Error),
}

/// The official archive of one version.
pub(super) struct Official<'a> {
    curl: Utf8PathBuf,
    env: &'a Env,
    url: String,
    /// Bytes; none when the server does not say.
    pub size: Option<u64>,
}

/// The archive's name: also that of the file in the folder of downloads.
pub(super) fn file_name(version: &str) -> String {
    format!("libtorch-shared-with-deps-{version}+cpu.zip")
}

/// The index of torch's wheels for a toolkit such as `cu126`; with a mirror, the one beside its archives.
pub(super) fn wheel_index(mirror: Option<&str>, label: &str) -> String {
    let wheels = match mirror.filter(|text| !text.is_empty()) {
        Some(mirror) => {
            let base = mirror.trim_end_matches('/');
            format!("{}/whl", base.strip_suffix("/libtorch").unwrap_or(base))
        }
        None => WHEELS.to_owned(),
    };
    format!("{wheels}/{label}")
}

impl<'a> Official<'a> {
    /// Asks the server for the archive's size; takes at most 10 s.
    pub(super) fn ask(version: &str, cpu_arch: &str, base: Option<&str>, env: &'a Env) -> Result<Self, OfficialError> {
        if cpu_arch != "x86_64" {
            return Err(OfficialError::NoArchive { cpu_arch: cpu_arch.to_owned() });
        }
        let base = base.filter(|text| !text.is_empty()).unwrap_or(BASE).trim_end_matches('/');
        let url = format!("{base}/cpu/{}", file_name(version).replace('+', "%2B"));
        let curl = tool::on_path(env, "curl").into_iter().next().ok_or(OfficialError::NoCurl)?;
        let args = [
            "--fail",
            "--silent",
            "--show-error",
            "--location",
            "--head",
            "--connect-timeout",
            "5",
            "--max-time",
            "10",
        ];
        let args: Vec<&str> = args.into_iter().chain(["--", url.as_str()]).collect();
        let head = tool::ask(&curl, &args, env, std::time::Duration::from_secs(12))
            .map_err(|error| OfficialError::Unreachable { url: url.clone(), said: error.to_string() })?;
        // After redirects the last answer is the one that counts.
        let size = head.lines().rev().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        Ok(Self { curl, env, url, size })
    }

    /// Where it comes from.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Downloads it to `partial`, going on where an earlier attempt stopped.
    pub(super) fn download(
        &self,
        partial: &Utf8Path,
        log: &Utf8Path,
        listen: Listener<'_>,
    ) -> Result<(), OfficialError> {
        let here = || fs_err::metadata(partial).map_or(0, |meta| meta.len());
        if self.size.is_none_or(|size| here() > size) {
            // Without a size, or with too much, nothing says that the bytes there are the beginning of this file.
            let _ = fs_err::remove_file(partial);
        }
        let already = here();
        if already > 0 {
            listen(FetchEvent::Note(format!("going on after {} that are there already", human_size(already))));
        }
        if let Some(size) = self.size {
            let folder = partial.parent().unwrap_or(partial);
            let needed = size.saturating_sub(already) + SLACK;
            if let Some(available) = tool::free_space(folder).filter(|free| *free < needed) {
                return Err(OfficialError::Space { folder: folder.to_owned(), needed, available });
            }
        }
        if self.size != Some(already) {
            let what = format!("downloading {}", self.url.rsplit('/').next().unwrap_or(&self.url));
            listen(FetchEvent::Begin { what, total: self.size });
            let args = ["--fail", "--silent", "--show-error", "--location", "--connect-timeout", "10"];
            // A connection that gives less than 1 kB/s for a minute is dead.
            let patience = ["--speed-limit", "1000", "--speed-time", "60", "--retry", "3", "--continue-at", "-"];
            let files = ["--output", partial.as_str(), "--", self.url.as_str()];
            let args: Vec<String> = args.into_iter().chain(patience).chain(files).map(str::to_owned).collect();
            let mut attempt = || {
                tool::watch(&self.curl, &args, self.env, log, &mut |_| {
                    listen(FetchEvent::Done(here()));
                    Ok::<(), OfficialError>(())
                })
            };
            let mut ended = attempt();
            if matches!(&ended, Ok(ended) if ended.code == Some(NO_RANGES)) {
                // This server cannot go on in the middle: from the beginning then.
                fs_err::remove_file(partial)?;
                ended = attempt();
            }
            listen(FetchEvent::End);
            let ended = ended?;
            if !ended.is_success {
                let said = tool::last_lines(&ended.output, 1);
                return Err(OfficialError::Broken { url: self.url.clone(), said });
            }
        }
        match self.size {
            Some(size) if here() != size => {
                let said = format!("{} came of {}", human_size(here()), human_size(size));
                Err(OfficialError::Broken { url: self.url.clone(), said })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_its_wheels_beside_its_archives() {
        assert_eq!(wheel_index(Some("http://mirror/libtorch/"), "cu126"), "http://mirror/whl/cu126");
        assert_eq!(wheel_index(Some("http://mirror/x"), "cpu"), "http://mirror/x/whl/cpu");
        assert_eq!(wheel_index(None, "cu126"), format!("{WHEELS}/cu126"));
    }
}
