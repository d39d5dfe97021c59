//! Asking a run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message::{Answer, Over, Request, Status};
use super::place;
use crate::folder;

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read: some for each of many thousand ranks.
const MOST: u64 = 64 * 1024 * 1024;

/// A run that lives.
#[derive(Clone, Debug)]
pub(crate) struct Living {
    /// Its socket.
    pub socket: PathBuf,
    /// How it goes.
    pub status: Status,
}

/// The runs of this user on this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Those that live, by their ids.
    pub living: Vec<Living>,
    /// The ids of those that take a question and give no answer, as a launcher does that was suspended.
    pub silent: Vec<String>,
    /// The sockets of those that ended without taking them away, as a launcher does that was killed.
    pub left: Vec<PathBuf>,
}

/// Looks for runs, as far as this environment says where they have their sockets.
pub(crate) fn look(env: &BTreeMap<OsString, OsString>) -> Look {
    let mut look = Look::default();
    for socket in sockets(env) {
        match ask(&socket, Request::Status) {
            Ok(Answer::Status(status)) => look.living.push(Living { socket, status: *status }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => look.left.push(socket),
            // Over since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => look.silent.push(id_of(&socket)),
        }
    }
    look.living.sort_by(|one, other| one.status.run_id.cmp(&other.status.run_id));
    look.silent.sort();
    look
}

fn id_of(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Takes away what runs left that were killed; gives their ids.
pub(crate) fn sweep(left: &[PathBuf]) -> Vec<String> {
    left.iter().filter(|socket| fs_err::remove_file(socket).is_ok()).map(|socket| id_of(socket)).collect()
}

fn sockets(env: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let place = place::of(env);
    let entries = folder::trust(&place).and_then(|()| fs_err::read_dir(place));
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|ending| ending == place::ENDING);
    entries.into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_socket).collect()
}

/// Tells a run to end; what comes of it is for [`watch`] to say.
///
/// # Errors
/// When it is not there any more, or gives no answer.
pub(crate) fn stop(socket: &Path, is_at_once: bool) -> io::Result<()> {
    match ask(socket, Request::Stop { kill: is_at_once })? {
        Answer::Stopping => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// A connection over which a run says that it is over.
#[derive(Debug)]
pub(crate) struct Watch {
    stream: BufReader<UnixStream>,
    /// What has come of the answer.
    line: Vec<u8>,
}

/// Begins to watch a run.
///
/// # Errors
/// When it is not there any more.
pub(crate) fn watch(socket: &Path) -> io::Result<Watch> {
    Ok(Watch { stream: BufReader::new(send(socket, Request::Watch)?), line: Vec::new() })
}

impl Watch {
    /// Waits for the end of the run, at most this long; none when it goes on.
    ///
    /// # Errors
    /// When the launcher is gone without having said how the run ended.
    pub(crate) fn wait(&mut self, time: Option<Duration>) -> io::Result<Option<Over>> {
        self.stream.get_ref().set_read_timeout(time)?;
        match answer(&mut self.stream, &mut self.line) {
            Ok(Answer::Over(over)) => Ok(Some(over)),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn ask(socket: &Path, request: Request) -> io::Result<Answer> {
    let stream = send(socket, request)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    answer(&mut BufReader::new(stream), &mut Vec::new())
}

fn send(socket: &Path, request: Request) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(&request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    Ok(stream)
}

fn answer(stream: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<Answer> {
    stream.take(MOST).read_until(b'\n', line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its launcher is gone and said nothing of its end"));
    }
    Ok(serde_json::from_slice(line)?)
}

fn unexpected(answer: &Answer) -> io::Error {
    let message = match answer {
        Answer::Refused { message } => message.clone(),
        _ => "it answered what was not asked".to_owned(),
    };
    io::Error::new(io::ErrorKind::InvalidData, message)
}
