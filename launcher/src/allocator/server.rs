//! An allocator as a service: clients come over channels, allocations are held, their records are read.
//!
//! Owns the one loop in which everything happens: requests, guards, output, signals, deadlines. [`super::state`] decides,
//! [`super::engine`] acts for one allocation, `routes` speaks HTTP. Must not decide, and must not wait for a client in the loop.
//!
//! When you change this: whatever way the loop ends, the engines are dropped, and with them every rank.

mod deliver;
mod facts;
mod reader;
mod routes;
mod sessions;
mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::sync::{mpsc, oneshot, watch};
use torchlift_schema::control::{ControlReply, Holder, RemoteProcessAllocatorMessage as Asked};
use torchlift_schema::state::{AllocKey, WorldId};
use torchlift_schema::{ChannelAddr, RemoteProcessProcStateMessage as Told};

use super::engine::{Engine, Host, OpenError};
use super::record::Record;
use super::state::{Action, Asker, Input, Refusal, Reply, Request, Rules, State};
use crate::channel::dial::Dialler;
use crate::clock::{self, Clock};
use crate::error::one_line;
use crate::process::handle::{Guard, Household};
use crate::process::readiness::Readiness;
use crate::process::signal::Signals;

pub(crate) use facts::{Facts, Gather};
pub(crate) use routes::{Connection, Service, router};
#[cfg(test)]
pub(crate) use sessions::Order;
pub(crate) use sessions::Sessions;
pub(crate) use tally::Traffic;
use tally::{Course, Tally};

/// Requests that wait for the loop, at most; a client that asks beyond that waits with its connection.
const QUEUE: usize = 256;
/// The token of the signals; engines count from 0.
const SIGNALS: u64 = u64::MAX;
/// Pause before a guard whose socket was full is tried again.
const RETRY: Duration = Duration::from_millis(2);
/// While many ranks start, their guard has something to tell all the time, and waking up for each takes a core from what
/// starts: what comes within this time is taken together. The guard has enough to do for longer than that.
const GATHER: Duration = Duration::from_millis(2);
/// How long nothing has to be held before a guard is started for what comes next.
const CALM: Duration = Duration::from_millis(5);
/// Looks at what is ready in one turn: a rank that writes without end keeps no client waiting.
const ROUNDS: usize = 4;
/// Events taken in one look.
const EVENTS: usize = 64;

/// What the loop is asked.
#[derive(Debug)]
pub(crate) enum Command {
    /// A message of a client.
    Ask { by: Asker, message: Asked, reply: oneshot::Sender<ControlReply> },
    /// Something that happened outside of the loop.
    Input(Input),
    /// The record of an allocation, if it is this owner's.
    Find { key: AllocKey, owner: String, found: oneshot::Sender<Option<Found>> },
    /// What lives here.
    Status { status: oneshot::Sender<Status> },
    /// The one connection that it was started for is closed.
    Leave,
}

/// An allocation, as somebody who reads it needs it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) record: Record,
    /// Tells of new output; closed when nothing more comes.
    pub(crate) output: watch::Receiver<u64>,
    pub(crate) ranks: usize,
}

/// What lives here.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) incarnation: String,
    pub(crate) holders: Vec<Holder>,
    tally: Tally,
}

/// How the loop is asked.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
}

impl Handle {
    /// Asks; a loop that has ended is draining for good.
    pub(crate) async fn ask(&self, by: Asker, message: Asked) -> ControlReply {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Ask { by, message, reply }).await;
        answer.await.unwrap_or_else(|_| Reply::Refused(Refusal::Draining).into())
    }

    /// Tells of something that happened.
    pub(crate) async fn tell(&self, input: Input) {
        let _ = self.commands.send(Command::Input(input)).await;
    }

    pub(crate) async fn find(&self, key: AllocKey, owner: String) -> Option<Found> {
        let (found, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Find { key, owner, found }).await;
        answer.await.ok().flatten()
    }

    pub(crate) async fn status(&self) -> Option<Status> {
        let (status, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Status { status }).await;
        answer.await.ok()
    }

    pub(crate) async fn leave(&self) {
        let _ = self.commands.send(Command::Leave).await;
    }
}

/// One that is held, beside what decides about it.
struct Kept {
    record: Record,
    owner: String,
    world: WorldId,
    request: Request,
    /// None before it is opened and once it is over.
    engine: Option<Engine>,
    token: u64,
    /// Counts what its ranks wrote.
    output: watch::Sender<u64>,
    course: Course,
}

/// An allocator that serves.
pub(crate) struct Server {
    state: State,
    incarnation: String,
    host: Host,
    dialler: Dialler,
    clock: Clock,
    kept: BTreeMap<AllocKey, Kept>,
    tally: Tally,
    by_token: BTreeMap<u64, AllocKey>,
    tokens: u64,
    epoll: Readiness,
    signals: Signals,
    household: Household,
    /// A guard for what comes next, so that its start is not waited for.
    spare: Option<Guard>,
    /// Whether one is to be started; not again where it could not be.
    is_spare_wanted: bool,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    /// Whether the last turn left something that the runtime will not tell of again.
    is_unfinished: bool,
    is_over: bool,
}

impl Server {
    /// An allocator by these rules, which dials clients with an address of their own as this one. Has to be made within a runtime, and there may be one in a process.
    ///
    /// # Errors
    /// When the system has no epoll or no signals for it.
    pub(crate) fn new(rules: Rules, host: Host, dialler: Dialler) -> io::Result<Self> {
        let signals = Signals::listen().map_err(io::Error::from)?;
        let signals = signals.ok_or_else(|| io::Error::other("another run is going on in this process"))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS)).map_err(io::Error::from)?;
        let clock = Clock::start();
        let (sender, commands) = mpsc::channel(QUEUE);
        Ok(Self {
            incarnation: rules.incarnation.clone(),
            state: State::new(rules, clock.now()),
            host,
            dialler,
            clock,
            kept: BTreeMap::new(),
            tally: Tally::new(),
            by_token: BTreeMap::new(),
            tokens: 0,
            epoll: Readiness::of(epoll)?,
            signals,
            household: Household::take_over(),
            spare: None,
            is_spare_wanted: true,
            commands,
            handle: Handle { commands: sender },
            is_unfinished: false,
            is_over: false,
        })
    }

    /// How it is asked.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until it is drained, idle for too long, or left. Nothing that it started is alive when this returns.
    ///
    /// # Errors
    /// When the system fails the loop itself.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        while !self.is_over {
            let now = self.clock.now();
            let deadline = self.state.deadline().map(|deadline| deadline.since(now));
            if deadline == Some(Duration::ZERO) {
                // Not left to the wait below: output without end would always come first.
                self.feed(Input::Tick);
                continue;
            }
            let retry = self.engines().any(Engine::is_behind).then_some(RETRY);
            let is_calm = self.is_spare_wanted && self.engines().next().is_none();
            let pause = deadline.into_iter().chain(retry).min();
            tokio::select! {
                biased;
                ready = self.epoll.ready() => {
                    ready?;
                    if self.engines().any(Engine::is_busy) {
                        clock::pause(GATHER);
                    }
                    self.turn()?;
                }
                Some(command) = self.commands.recv() => self.take(command),
                () = tokio::task::yield_now(), if self.is_unfinished => self.turn()?,
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    if retry.is_some() {
                        self.turn()?;
                    }
                }
                () = tokio::time::sleep(CALM), if is_calm => {
                    // Whoever cannot have one now hears of it when it is needed.
                    self.spare = Guard::start(&self.incarnation).ok();
                    self.is_spare_wanted = false;
                }
            }
        }
        // What is asked now is answered: nothing is taken any more.
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.take(command);
        }
        Ok(())
    }

    fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.kept.values().filter_map(|kept| kept.engine.as_ref())
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        self.is_unfinished = true;
        for _ in 0..ROUNDS {
            let count = match self.epoll.epoll().wait(&mut events, EpollTimeout::ZERO) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let tokens: Vec<u64> = events[..count].iter().map(EpollEvent::data).collect();
            for token in tokens.iter().filter(|token| **token != SIGNALS) {
                if let Some(key) = self.by_token.get(token).cloned() {
                    self.turn_of(&key);
                }
            }
            if tokens.contains(&SIGNALS) {
                while self.signals.next().is_some() {
                    self.feed(Input::Terminate);
                }
            }
            // The runtime tells once: what it has told of has to be found empty before it is asked again.
            if count == 0 {
                self.is_unfinished = false;
                break;
            }
        }
        let behind: Vec<AllocKey> = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.engine.as_ref().is_some_and(Engine::is_behind))
            .map(|(key, _)| key.clone())
            .collect();
        for key in behind {
            self.turn_of(&key);
        }
        Ok(())
    }

    fn turn_of(&mut self, key: &AllocKey) {
        let now = self.clock.now();
        let inputs = self.kept.get_mut(key).and_then(|kept| kept.engine.as_mut()).map(|engine| engine.turn(now));
        for input in inputs.into_iter().flatten() {
            if matches!(input, Input::GuardLost { .. }) {
                self.kill_strays(key);
            }
            self.feed(input);
        }
    }

    /// What a dead guard left behind comes to this process.
    fn kill_strays(&self, of: &AllocKey) {
        let living = self.kept.iter().filter(|(key, _)| *key != of);
        let guards = living.filter_map(|(_, kept)| Some(kept.engine.as_ref()?.guard_pid()));
        let guards: Vec<i32> = guards.chain(self.spare.as_ref().map(Guard::pid)).collect();
        self.household.kill_strays(&guards);
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Ask { by, message, reply } => {
                // Nobody may wait for the answer any more.
                let _ = match self.feed(Input::Asked { by, message }) {
                    Some(answer) => reply.send(answer.into()),
                    None => Ok(()),
                };
            }
            Command::Input(input) => drop(self.feed(input)),
            Command::Find { key, owner, found } => {
                let kept = self.kept.get(&key).filter(|kept| kept.owner == owner);
                let answer = kept.map(|kept| Found {
                    record: kept.record.clone(),
                    output: kept.output.subscribe(),
                    ranks: kept.request.view.num_ranks(),
                });
                let _ = found.send(answer);
            }
            Command::Status { status } => {
                let (incarnation, holders) = (self.incarnation.clone(), self.state.holders());
                let _ = status.send(Status { incarnation, holders, tally: self.tally.clone() });
            }
            Command::Leave => drop(self.feed(Input::Terminate)),
        }
    }

    /// Gives the state what happened and does what it says, until nothing more follows. Gives the answer to a message.
    fn feed(&mut self, input: Input) -> Option<Reply> {
        let mut inputs = VecDeque::from([input]);
        let mut reply = None;
        while let Some(input) = inputs.pop_front() {
            for action in self.state.step(input, self.clock.now()) {
                self.act(action, &mut inputs, &mut reply);
            }
        }
        reply
    }

    fn act(&mut self, action: Action, inputs: &mut VecDeque<Input>, reply: &mut Option<Reply>) {
        let mut with = |key: &AllocKey, act: &mut dyn FnMut(&mut Engine) -> Vec<Input>| {
            if let Some(engine) = self.kept.get_mut(key).and_then(|kept| kept.engine.as_mut()) {
                inputs.extend(act(engine));
            }
        };
        match action {
            Action::Reply(answer) => {
                self.tally.answered(&answer);
                *reply = Some(answer);
            }
            Action::Start { key } => with(&key, &mut Engine::start),
            Action::Stop { key, signal } => with(&key, &mut |engine| engine.stop(signal)),
            Action::StopLeftovers { key } => with(&key, &mut Engine::stop_leftovers),
            Action::Kill { key } => with(&key, &mut Engine::kill),
            Action::Refuse { bootstrap_addr, messages } => {
                let record = Record::new();
                messages.into_iter().for_each(|message| record.append(message));
                tokio::spawn(deliver::all(
                    self.dialler.clone(),
                    bootstrap_addr,
                    self.incarnation.clone(),
                    record,
                    None,
                ));
            }
            Action::Hold { key, owner, world, request } => self.hold(key, owner, world, *request),
            Action::Open { key } => {
                if let Err(error) = self.open(&key) {
                    inputs.push_back(Input::NotOpened { key, why: one_line(&error) });
                }
            }
            Action::Close { key } => {
                if let Some(kept) = self.kept.get_mut(&key)
                    && let Some(engine) = kept.engine.take()
                {
                    let _ = self.epoll.epoll().delete(engine.as_fd());
                    engine.close(self.clock.now());
                }
            }
            Action::Record { key, message } => self.record(&key, message),
            Action::Forget { key } => {
                if let Some(kept) = self.kept.remove(&key) {
                    self.by_token.remove(&kept.token);
                    // What cannot be removed does no harm.
                    let _ = fs_err::remove_dir_all(self.host.spool.join(key.as_str()));
                }
            }
            Action::Exit => self.is_over = true,
        }
    }

    fn hold(&mut self, key: AllocKey, owner: String, world: WorldId, request: Request) {
        self.tokens += 1;
        let (record, token, output) = (Record::new(), self.tokens, watch::Sender::new(0));
        if request.bootstrap_addr != ChannelAddr::Caller {
            let told = deliver::Told { key: key.clone(), handle: self.handle.clone() };
            let to = request.bootstrap_addr.clone();
            let (dialler, session) = (self.dialler.clone(), world.0.clone());
            tokio::spawn(deliver::all(dialler, to, session, record.clone(), Some(told)));
        }
        self.by_token.insert(token, key.clone());
        self.kept.insert(
            key,
            Kept { record, owner, world, request, engine: None, token, output, course: Course::default() },
        );
    }

    fn open(&mut self, key: &AllocKey) -> Result<(), OpenError> {
        let Some(kept) = self.kept.get_mut(key) else { return Ok(()) };
        let spare = self.spare.take().filter(Guard::is_alive);
        self.is_spare_wanted = true;
        let engine = Engine::open(key.clone(), &kept.world.0, &kept.request, &self.host, kept.output.clone(), spare)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, kept.token);
        let watched = self.epoll.epoll().add(engine.as_fd(), event);
        watched.map_err(|source| OpenError::System { step: "watch an allocation", source })?;
        kept.engine = Some(engine);
        Ok(())
    }

    fn record(&mut self, key: &AllocKey, message: Told) {
        if let Some(kept) = self.kept.get_mut(key) {
            self.tally.told(&mut kept.course, &message);
            kept.record.append(message);
        }
    }
}
