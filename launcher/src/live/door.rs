//! The thread that answers for a run, beside the one that carries it out.
//!
//! Owns the socket's file, and how many may ask at once. Whoever asks is of the same user, and may be slow, silent or out of its
//! mind: no answer is waited for longer than [`TAKING`], and the run itself never waits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use super::message::{Answer, MOST, Over, Request, Status};
use super::{place, snapshot};
use crate::clock::{self, Clock, Moment};
use crate::event::{Event, Observer};
use crate::plan::LaunchPlan;
use crate::process::signal;

/// How long a request may take to come.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take to be taken.
const TAKING: Duration = Duration::from_millis(100);
/// Pause where nobody can be let in.
const PAUSE: Duration = Duration::from_millis(10);
/// Who may ask at once; more wait until there is room, which is soon.
const MOST_ASKING: usize = 64;
/// Who may watch at once; more are refused, so that there is always room to ask.
const MOST_WATCHING: usize = 64;
/// Signals that end everything at once: a first one asks, a second one kills.
const KILL: u32 = 2;

/// What both threads know.
#[derive(Debug)]
struct Shared {
    status: Mutex<Status>,
    over: Mutex<Option<Over>>,
    /// Signals that were sent to this process for those who asked: two who ask for a stop do not make it a kill.
    signals: AtomicU32,
}

/// A run that can be asked. Dropping it takes the socket away.
#[derive(Debug)]
pub(crate) struct Live {
    shared: Arc<Shared>,
    socket: PathBuf,
    /// Closed to wake the thread for the last time.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Makes the run's socket and answers on it from now on. `wall` is the wall clock at its start.
    ///
    /// # Errors
    /// When there is no place for a socket, or no thread to be had.
    pub(crate) fn open(plan: &LaunchPlan, env: &BTreeMap<OsString, OsString>, wall: Duration) -> io::Result<Self> {
        let (listener, socket) = listen(env, &plan.run_id)?;
        let status = Mutex::new(snapshot::of(plan, wall));
        let shared = Arc::new(Shared { status, over: Mutex::default(), signals: AtomicU32::new(0) });
        let (wake, woken) = UnixStream::pair()?;
        let door = Door {
            listener,
            woken,
            shared: Arc::clone(&shared),
            clock: Clock::start(),
            asking: Vec::new(),
            watching: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("torchlift-live".to_owned()).spawn(move || door.serve());
        let mut live = Self { shared, socket, wake: Some(wake), thread: None };
        live.thread = Some(thread?);
        Ok(live)
    }

    /// The run is over, and nothing of it is alive: whoever watches is told.
    pub(crate) fn finish(self, over: Over) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = Some(over);
    }
}

impl Observer for Live {
    fn observe(&mut self, _: Moment, event: &Event<'_>) {
        if let Event::Output { .. } | Event::OutputClosed { .. } = event {
            return;
        }
        snapshot::note(&mut self.shared.status.lock().unwrap_or_else(PoisonError::into_inner), event);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // First, so that nobody comes any more.
        let _ = fs_err::remove_file(&self.socket);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(env: &BTreeMap<OsString, OsString>, run_id: &str) -> io::Result<(UnixListener, PathBuf)> {
    let folder = place::of(env);
    place::make(&folder)?;
    let socket = place::socket(&folder, run_id);
    let listener = UnixListener::bind(&socket)?;
    fs_err::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((listener, socket))
}

/// One whose request has not come whole.
struct Asking {
    stream: UnixStream,
    bytes: Vec<u8>,
    until: Moment,
}

struct Door {
    listener: UnixListener,
    woken: UnixStream,
    shared: Arc<Shared>,
    clock: Clock,
    asking: Vec<Asking>,
    watching: Vec<UnixStream>,
}

impl Door {
    fn serve(mut self) {
        while let Ok(ready) = self.wait() {
            let [is_woken, is_asked] = ready.own;
            if is_woken {
                break;
            }
            if is_asked {
                self.accept();
            }
            self.hear(&ready.asking);
            // One who watches has nothing to say: what is readable there is the end.
            let mut ready = ready.watching.into_iter();
            self.watching.retain(|_| !ready.next().unwrap_or(false));
        }
        let over = self.shared.over.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without a word of the end it was given up: closing says that.
        let Some(over) = over else { return };
        // Whoever came just before the end is told too.
        while self.asking.len() < MOST_ASKING && self.accept() {}
        let late = self.asking.into_iter().filter_map(|mut asking| match read(&mut asking) {
            Heard::Asked(Request::Watch | Request::Stop { .. }) => Some(asking.stream),
            _ => None,
        });
        for stream in self.watching.into_iter().chain(late) {
            tell(stream, &Answer::Over(over.clone()));
        }
    }

    /// Waits until somebody has something to say.
    fn wait(&self) -> nix::Result<Ready> {
        let mut fds = vec![readable(&self.woken)];
        let listened = if self.asking.len() < MOST_ASKING { PollFlags::POLLIN } else { PollFlags::empty() };
        fds.push(PollFd::new(self.listener.as_fd(), listened));
        fds.extend(self.asking.iter().map(|asking| readable(&asking.stream)));
        fds.extend(self.watching.iter().map(readable));
        let now = self.clock.now();
        let until = self.asking.iter().map(|asking| asking.until.since(now)).min();
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            PollTimeout::try_from(until.as_millis() as i64 + 1).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
        let mut next = || ready.next().unwrap_or(false);
        let own = [next(), next()];
        let asking = self.asking.iter().map(|_| next()).collect();
        let watching = self.watching.iter().map(|_| next()).collect();
        Ok(Ready { own, asking, watching })
    }

    /// Takes one who comes; says whether there was one.
    fn accept(&mut self) -> bool {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Without a descriptor to be had whoever waits stays: asking again at once would take a core.
                if error.kind() != io::ErrorKind::WouldBlock {
                    clock::pause(PAUSE);
                }
                return false;
            }
        };
        let peer = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
        // The folder keeps others out already, but for the superuser, who may do as this user does.
        if peer.is_ok_and(|uid| uid == geteuid().as_raw() || uid == 0) && stream.set_nonblocking(true).is_ok() {
            let until = self.clock.now().plus(PATIENCE);
            self.asking.push(Asking { stream, bytes: Vec::new(), until });
        }
        true
    }

    fn hear(&mut self, ready: &[bool]) {
        let now = self.clock.now();
        // Those who came in this turn are looked at in the next.
        let all = std::mem::take(&mut self.asking).into_iter().enumerate();
        for (index, mut asking) in all {
            let is_ready = ready.get(index).copied().unwrap_or(false);
            match if is_ready { read(&mut asking) } else { Heard::More } {
                Heard::More if now < asking.until => self.asking.push(asking),
                Heard::More | Heard::Gone => {}
                Heard::Asked(request) => self.answer(asking.stream, request),
                Heard::Nonsense(message) => tell(asking.stream, &Answer::Refused { message }),
            }
        }
    }

    fn answer(&mut self, stream: UnixStream, request: Request) {
        match request {
            Request::Status => {
                let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
                tell(stream, &Answer::Status(Box::new(status)));
            }
            Request::Watch if self.watching.len() < MOST_WATCHING => self.watching.push(stream),
            Request::Watch => {
                let message = format!("{MOST_WATCHING} watch it already");
                tell(stream, &Answer::Refused { message });
            }
            Request::Stop { kill: is_at_once } => {
                let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
                // One that is being ended needs no word more, whoever ended it: that would be the second, which kills.
                let wanted = if is_at_once { KILL } else { u32::from(!status.is_stopping) };
                drop(status);
                let sent = self.shared.signals.fetch_max(wanted, Ordering::SeqCst);
                signal::terminate_self(wanted.saturating_sub(sent));
                tell(stream, &Answer::Stopping);
            }
        }
    }
}

fn readable(stream: &UnixStream) -> PollFd<'_> {
    PollFd::new(stream.as_fd(), PollFlags::POLLIN)
}

/// Who has something to say.
struct Ready {
    /// That the run is over; that somebody comes.
    own: [bool; 2],
    asking: Vec<bool>,
    watching: Vec<bool>,
}

enum Heard {
    More,
    Gone,
    Asked(Request),
    Nonsense(String),
}

fn read(asking: &mut Asking) -> Heard {
    let mut bytes = [0; MOST];
    match asking.stream.read(&mut bytes) {
        Ok(0) => return Heard::Gone,
        Ok(length) => asking.bytes.extend_from_slice(&bytes[..length]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::More,
        Err(_) => return Heard::Gone,
    }
    let Some(end) = memchr::memchr(b'\n', &asking.bytes) else {
        let is_too_long = asking.bytes.len() >= MOST;
        return if is_too_long { Heard::Nonsense(format!("more than {MOST} bytes")) } else { Heard::More };
    };
    match serde_json::from_slice(&asking.bytes[..end]) {
        Ok(request) => Heard::Asked(request),
        Err(error) => Heard::Nonsense(error.to_string()),
    }
}

/// Gives an answer, and waits for a slow reader a little: everybody else waits with it.
fn tell(mut stream: UnixStream, answer: &Answer) {
    let mut text = serde_json::to_vec(answer).unwrap_or_default();
    text.push(b'\n');
    let clock = Clock::start();
    let until = clock.now().plus(TAKING);
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = until.since(clock.now()).as_millis();
                let timeout = PollTimeout::try_from(left as i64).unwrap_or(PollTimeout::ZERO);
                if left == 0 || poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)], timeout).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
