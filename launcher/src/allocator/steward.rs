//! An allocator with all that it holds, whatever the way to it.
//!
//! Owns what [`super::state`] decides with and the [`Engine`] of each allocation: it feeds the one and has the other act. Who is
//! told, and where output goes, is [`Surroundings`]: [`super::server`] has them for clients that come over a channel,
//! `crate::dispatcher` for the run of its own process. Must not decide, and must not wait.
//!
//! When you change this: dropping it drops the engines, and with them every rank.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use torchlift_schema::control::Holder;
use torchlift_schema::state::{AllocKey, WorldId};
use torchlift_schema::{ChannelAddr, RemoteProcessProcStateMessage as Told};

use super::engine::{Engine, Host, OpenError, Outlet};
use super::state::{Action, Input, Reply, Request, Rules, State};
use crate::clock::{Clock, Moment};
use crate::error::one_line;
use crate::process::handle::{Guard, GuardError};

/// Events taken in one look.
const EVENTS: usize = 64;

/// Whom an allocator works for.
pub(crate) trait Surroundings {
    /// A record begins, of an allocation that this owner holds from now on.
    fn hold(&mut self, key: &AllocKey, owner: String, world: &WorldId, request: &Request);
    /// Its output is about to begin.
    ///
    /// # Errors
    /// When it would have no place; nothing is started then.
    fn open(&mut self, key: &AllocKey) -> Result<(), OpenError>;
    /// Where its output goes; none of one that is not held.
    fn outlet(&mut self, key: &AllocKey) -> Option<&mut dyn Outlet>;
    /// The next message of its record.
    fn record(&mut self, key: &AllocKey, message: Told);
    /// Its record is needed no more.
    fn forget(&mut self, key: &AllocKey);
    /// Whoever waits at this address was never given an allocation.
    fn refuse(&mut self, bootstrap_addr: ChannelAddr, messages: Vec<Told>);
    /// A guard is gone: what it left behind comes to this process. These are the guards of this allocator that live.
    fn kill_strays(&mut self, guards: Vec<i32>);
}

/// One that is held, beside what decides about it.
#[derive(Debug)]
struct Kept {
    world: WorldId,
    request: Request,
    /// None before it is opened and once it is over.
    engine: Option<Engine>,
    token: u64,
}

/// An allocator.
#[derive(Debug)]
pub(crate) struct Steward {
    state: State,
    host: Host,
    clock: Clock,
    kept: BTreeMap<AllocKey, Kept>,
    by_token: BTreeMap<u64, AllocKey>,
    tokens: u64,
    epoll: Epoll,
    /// A guard for what comes next, so that its start is not waited for.
    spare: Option<Guard>,
    /// Whether one is to be started; not again where it could not be.
    is_spare_wanted: bool,
    is_over: bool,
}

impl Steward {
    /// An allocator by these rules, at the time that this clock tells.
    ///
    /// # Errors
    /// When the system has no epoll for it.
    pub(crate) fn new(rules: Rules, host: Host, clock: Clock) -> nix::Result<Self> {
        Ok(Self {
            state: State::new(rules, clock.now()),
            host,
            clock,
            kept: BTreeMap::new(),
            by_token: BTreeMap::new(),
            tokens: 0,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            spare: None,
            is_spare_wanted: true,
            is_over: false,
        })
    }

    /// Starts a guard for what comes next. One that cannot be had now is not tried again until another was needed.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn start_spare(&mut self, mark: &str) -> Result<(), GuardError> {
        self.is_spare_wanted = false;
        self.spare = Some(Guard::start(mark)?);
        Ok(())
    }

    /// Whether a guard is to be started for what comes next, as soon as there is time for it.
    pub(crate) fn is_spare_wanted(&self) -> bool {
        self.is_spare_wanted && self.engines().next().is_none()
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// When it wants an [`Input::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.state.deadline()
    }

    /// What lives here, for people and machines.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.state.holders()
    }

    /// Whether a guard has yet to be told something, so that a turn is worth while though nothing was heard.
    pub(crate) fn is_behind(&self) -> bool {
        self.engines().any(Engine::is_behind)
    }

    /// Whether many ranks are being started at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.engines().any(Engine::is_busy)
    }

    /// The guards that live.
    pub(crate) fn guards(&self) -> impl Iterator<Item = i32> + '_ {
        self.engines()
            .filter(|engine| !engine.is_lost())
            .map(Engine::guard_pid)
            .chain(self.spare.as_ref().map(Guard::pid))
    }

    fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.kept.values().filter_map(|kept| kept.engine.as_ref())
    }

    /// Takes what is there now, a bounded part of it.
    ///
    /// # Errors
    /// When the system fails the look itself.
    pub(crate) fn turn(&mut self, around: &mut dyn Surroundings) -> nix::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error),
        };
        for token in events[..count].iter().map(EpollEvent::data) {
            if let Some(key) = self.by_token.get(&token).cloned() {
                self.turn_of(&key, around);
            }
        }
        let behind = self.kept.iter().filter(|(_, kept)| kept.engine.as_ref().is_some_and(Engine::is_behind));
        let behind: Vec<AllocKey> = behind.map(|(key, _)| key.clone()).collect();
        for key in behind {
            self.turn_of(&key, around);
        }
        Ok(())
    }

    fn turn_of(&mut self, key: &AllocKey, around: &mut dyn Surroundings) {
        loop {
            let now = self.clock.now();
            let Some(engine) = self.kept.get_mut(key).and_then(|kept| kept.engine.as_mut()) else { return };
            let Some(outlet) = around.outlet(key) else { return };
            let inputs = engine.turn(now, outlet);
            let is_unfinished = engine.is_unfinished();
            if inputs.iter().any(|input| matches!(input, Input::GuardLost { .. })) {
                around.kill_strays(self.guards().collect());
            }
            for input in inputs {
                self.feed(input, around);
            }
            if !is_unfinished {
                return;
            }
        }
    }

    /// Gives the state what happened and does what it says, until nothing more follows. Gives the answer to a message.
    pub(crate) fn feed(&mut self, input: Input, around: &mut dyn Surroundings) -> Option<Reply> {
        let mut inputs = VecDeque::from([input]);
        let mut reply = None;
        while let Some(input) = inputs.pop_front() {
            for action in self.state.step(input, self.clock.now()) {
                self.act(action, around, &mut inputs, &mut reply);
            }
        }
        reply
    }

    fn act(
        &mut self,
        action: Action,
        around: &mut dyn Surroundings,
        inputs: &mut VecDeque<Input>,
        reply: &mut Option<Reply>,
    ) {
        let mut with = |key: &AllocKey, act: &mut dyn FnMut(&mut Engine) -> Vec<Input>| {
            if let Some(engine) = self.kept.get_mut(key).and_then(|kept| kept.engine.as_mut()) {
                inputs.extend(act(engine));
            }
        };
        match action {
            Action::Reply(answer) => *reply = Some(answer),
            Action::Start { key } => with(&key, &mut Engine::start),
            Action::Stop { key, signal } => with(&key, &mut |engine| engine.stop(signal)),
            Action::StopLeftovers { key } => with(&key, &mut Engine::stop_leftovers),
            Action::Kill { key } => with(&key, &mut Engine::kill),
            Action::Refuse { bootstrap_addr, messages } => around.refuse(bootstrap_addr, messages),
            Action::Hold { key, owner, world, request } => {
                around.hold(&key, owner, &world, &request);
                self.tokens += 1;
                self.by_token.insert(self.tokens, key.clone());
                self.kept.insert(key, Kept { world, request: *request, engine: None, token: self.tokens });
            }
            Action::Open { key } => {
                if let Err(error) = self.open(&key, around) {
                    inputs.push_back(Input::NotOpened { key, why: one_line(&error) });
                }
            }
            Action::Close { key } => {
                if let Some(engine) = self.kept.get_mut(&key).and_then(|kept| kept.engine.take()) {
                    let _ = self.epoll.delete(engine.as_fd());
                    if let Some(outlet) = around.outlet(&key) {
                        engine.close(self.clock.now(), outlet);
                    }
                }
            }
            Action::Record { key, message } => around.record(&key, message),
            Action::Forget { key } => {
                if let Some(kept) = self.kept.remove(&key) {
                    self.by_token.remove(&kept.token);
                    around.forget(&key);
                }
            }
            Action::Exit => self.is_over = true,
        }
    }

    /// Ends everything at once: the guards kill what is left, and what the pipes still hold is all that comes.
    pub(crate) fn shut(&mut self, around: &mut dyn Surroundings) {
        let now = self.clock.now();
        let mut engines: Vec<(AllocKey, Engine)> =
            self.kept.iter_mut().filter_map(|(key, kept)| Some((key.clone(), kept.engine.take()?))).collect();
        // All are told before the first is waited for.
        engines.iter_mut().for_each(|(_, engine)| engine.hang_up());
        for (key, engine) in engines {
            if let Some(outlet) = around.outlet(&key) {
                engine.close(now, outlet);
            }
        }
        self.is_over = true;
    }

    fn open(&mut self, key: &AllocKey, around: &mut dyn Surroundings) -> Result<(), OpenError> {
        let Some(kept) = self.kept.get_mut(key) else { return Ok(()) };
        let spare = self.spare.take().filter(Guard::is_alive);
        self.is_spare_wanted = true;
        let engine = Engine::open(key.clone(), &kept.world.0, &kept.request, &self.host, spare)?;
        around.open(key)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, kept.token);
        let watched = self.epoll.add(engine.as_fd(), event);
        watched.map_err(|source| OpenError::System { step: "watch an allocation", source })?;
        kept.engine = Some(engine);
        Ok(())
    }
}

/// Readable when a turn is worth while.
impl AsFd for Steward {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}
