//! `--envelopes`: a folder of envelopes, one envelope, or the plain map of hosts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use torchlift_schema::envelope::FILE_NAME;
use torchlift_schema::error::EnvelopeError;
use torchlift_schema::read::{self, Reading};
use torchlift_schema::{Finding, Place, exit_code};

use crate::error::CommandError;
use crate::plan::Program;

/// The name of the host of a bare per-host envelope, which has none of its own.
const UNNAMED: &str = "local";

/// A host's name, and what it runs.
pub type NamedProgram = (String, Program);

/// Reads whatever `path` is: a folder of `<host>/envelope.json` or `<host>.json`, or a file that is an envelope, the
/// published three fields, or the map `{host: three fields}`. Hosts come in the order of their names.
///
/// # Errors
/// All files that cannot be read or used, each with its reason; 205 when one is not what was sealed, else 203.
/// A `path` that is not there is a mistake in the command line.
pub fn read(path: &Path) -> Result<Vec<NamedProgram>, CommandError> {
    let metadata = fs_err::metadata(path).map_err(|error| {
        CommandError::new(exit_code::USAGE, "`--envelopes` names nothing that can be read")
            .because(error)
            .hint("build first (`cargo xtask build`), then name `target/cluster`")
    })?;
    let files = if metadata.is_dir() { files_of(path)? } else { vec![(None, path.to_owned())] };
    let mut hosts = BTreeMap::new();
    let mut findings = Vec::new();
    let mut is_forged = false;
    for (name, file) in files {
        let place = Place::file(file.display().to_string());
        let reading = match read_file(&file, metadata.is_dir()) {
            Ok(reading) => reading,
            Err(ReadError::File(error)) => {
                findings.push(
                    Finding::error("envelope-unreadable", place, error.to_string())
                        .remedy("mend or remove it: a host is never left out in silence"),
                );
                continue;
            }
            Err(ReadError::Envelope(error)) => {
                is_forged |= matches!(error, EnvelopeError::Digest { .. });
                findings.extend(error.into_findings(&place));
                continue;
            }
        };
        for (host, program) in programs(name.as_deref(), reading) {
            if let (Program::Envelope(_), Some(name)) = (&program, name.as_deref().filter(|name| *name != host)) {
                let message = format!("is for host `{host}`, and lies where that of `{name}` belongs");
                findings.push(Finding::error("envelope-host", place.clone(), message).remedy("build again"));
                continue;
            }
            match hosts.entry(host) {
                Entry::Vacant(entry) => {
                    entry.insert(program);
                }
                Entry::Occupied(entry) => {
                    let message = format!("is one more envelope for host `{}`", entry.key());
                    findings.push(Finding::error("envelope-host", place.clone(), message).remedy("remove one of them"));
                }
            }
        }
    }
    if !findings.is_empty() {
        let code = if is_forged { exit_code::INTEGRITY } else { exit_code::VERIFY };
        let summary = format!("`{}` has envelopes that cannot be used", path.display());
        return Err(CommandError::findings(code, summary, findings));
    }
    if hosts.is_empty() {
        return Err(CommandError::new(exit_code::USAGE, format!("`{}` has no envelope in it", path.display()))
            .hint("a folder holds `<host>/envelope.json` or `<host>.json`"));
    }
    Ok(hosts.into_iter().collect())
}

enum ReadError {
    File(std::io::Error),
    Envelope(EnvelopeError),
}

/// Reads a file up to one byte beyond what an envelope may have. A pipe that was named itself, such as `/dev/stdin`, is
/// read to its end; one that lies in a folder would be waited for by mistake.
fn read_file(path: &Path, is_in_folder: bool) -> Result<Reading, ReadError> {
    if is_in_folder && !fs_err::metadata(path).map_err(ReadError::File)?.is_file() {
        let message = format!("`{}` is no regular file", path.display());
        return Err(ReadError::File(std::io::Error::new(std::io::ErrorKind::InvalidInput, message)));
    }
    let mut bytes = Vec::new();
    let limit = read::MAX_BYTES as u64 + 1;
    let file = fs_err::File::open(path).map_err(ReadError::File)?;
    file.take(limit).read_to_end(&mut bytes).map_err(ReadError::File)?;
    read::any(&bytes).map_err(ReadError::Envelope)
}

/// The envelopes in a folder with the hosts that their names state, sorted.
fn files_of(folder: &Path) -> Result<Vec<(Option<String>, PathBuf)>, CommandError> {
    let unreadable = |error| CommandError::new(exit_code::USAGE, "the envelopes cannot be listed").because(error);
    let mut files = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let envelope = path.join(FILE_NAME);
        if path.file_name().is_some_and(|name| name == FILE_NAME) {
            // The folder is one host's.
            files.push((None, path));
        } else if path.extension().is_some_and(|extension| extension == "json") && !path.is_dir() {
            files.push((path.file_stem().map(|stem| stem.to_string_lossy().into_owned()), path));
        } else if is_hosts_folder(&path, &envelope) {
            files.push((path.file_name().map(|name| name.to_string_lossy().into_owned()), envelope));
        }
    }
    files.sort();
    Ok(files)
}

/// Whether an entry stands for a host. One that cannot be looked into does, so that its host is told of as unreadable:
/// left out in silence it would be a run with fewer ranks.
fn is_hosts_folder(entry: &Path, envelope: &Path) -> bool {
    match fs_err::metadata(entry) {
        Ok(metadata) if metadata.is_dir() => fs_err::symlink_metadata(envelope)
            .map_or_else(|error| error.kind() != std::io::ErrorKind::NotFound, |_| true),
        Ok(_) => false,
        Err(_) => true,
    }
}

fn programs(name: Option<&str>, reading: Reading) -> Vec<NamedProgram> {
    match reading {
        Reading::Envelope(envelope) => vec![(envelope.host.clone(), Program::Envelope(envelope))],
        Reading::PerHost(envelope) => vec![(name.unwrap_or(UNNAMED).to_owned(), Program::PerHost(envelope))],
        Reading::Map(map) => map.into_iter().map(|(host, envelope)| (host, Program::PerHost(envelope))).collect(),
    }
}
