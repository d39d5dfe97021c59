//! This machine: the allocator lives in the launcher's own process, and the connection to it is a call.
//!
//! It is the allocator that `serve` has, and the client speaks to it with the same messages; only what ranks write goes the
//! short way, to whoever observes the run. Must not decide.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use torchlift_schema::control::{RecordLine, RemoteProcessAllocatorMessage as Asked};
use torchlift_schema::state::{AllocKey, WorldId};
use torchlift_schema::{ChannelAddr, RemoteProcessProcStateMessage as Told};

use crate::allocator::engine::{Host, OpenError, Outlet};
use crate::allocator::state::{Asker, Input, Request, Rules};
use crate::allocator::steward::{Steward, Surroundings};
use crate::client::Patience;
use crate::client::link::{Action, Input as Heard, Sent};
use crate::clock::{Clock, Moment};
use crate::event::{Event, Observer, Rank};
use crate::process::handle::GuardError;

/// Who asks, in a process that has one client only.
const OWNER: &str = "run";
/// A call is answered at once: no silence of either side means anything, and a launcher that was suspended for a night goes on.
const ENDLESS: Duration = Duration::from_secs(u32::MAX as u64);
/// What a client of such allocators waits for.
pub(crate) const PATIENCE: Patience = Patience { interval: ENDLESS, limit: ENDLESS, wait: Duration::ZERO };

/// Why there is no allocator in this process.
#[derive(Debug, thiserror::Error)]
pub enum BringUpError {
    /// Its guard.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The system.
    #[error("cannot make an epoll")]
    Epoll(#[from] nix::errno::Errno),
}

/// An allocator of this process, with the one connection to it.
#[derive(Debug)]
pub(crate) struct Local {
    steward: Steward,
    session: String,
    /// The rank in the whole that its first one is.
    first: Rank,
    mailbox: Mailbox,
    /// The connection that stands; none before the first and after the last.
    connection: Option<u64>,
    /// How many lines of the record were read, where it is read.
    read: Option<u64>,
    /// What the client has not been told, by connection.
    heard: VecDeque<(u64, Heard)>,
}

/// What the allocator tells beside its answers.
#[derive(Debug, Default)]
struct Mailbox {
    record: Vec<RecordLine>,
    /// Whether a guard is gone, and something that it left behind may have come to this process.
    has_lost_guard: bool,
}

impl Local {
    /// Brings one up for one host of a run, whose ranks count from this one. Its guard starts now and is not waited for.
    ///
    /// # Errors
    /// When the guard cannot be started, or the system has no epoll.
    pub(crate) fn bring_up(run_id: &str, first: Rank, open_files: u64, clock: Clock) -> Result<Self, BringUpError> {
        let rules = Rules {
            incarnation: run_id.to_owned(),
            slots: None,
            most_ranks: usize::MAX,
            has_program: false,
            patience: ENDLESS,
            idle_timeout: None,
        };
        let host = Host {
            program: None,
            roots: Vec::new(),
            cwd: PathBuf::from("/"),
            env: BTreeMap::new(),
            hosts_file: None,
            // Cards are claimed for the whole run before.
            claims: PathBuf::new(),
            open_files,
        };
        let mut steward = Steward::new(rules, host, clock)?;
        steward.start_spare(run_id)?;
        Ok(Self {
            steward,
            session: run_id.to_owned(),
            first,
            mailbox: Mailbox::default(),
            connection: None,
            read: None,
            heard: VecDeque::new(),
        })
    }

    /// Does what the client's link says; `message` is what a message says in full.
    pub(crate) fn act(&mut self, action: Action, message: impl FnOnce(Sent) -> Asked, observer: &mut dyn Observer) {
        match action {
            Action::Dial { connection } => {
                self.connection = Some(connection);
                self.heard.push_back((connection, Heard::Connected));
            }
            Action::Post { connection, number, sent } => {
                let by = Asker { session: self.session.clone(), owner: OWNER.to_owned() };
                let reply = self.feed(Input::Asked { by, message: message(sent) }, observer);
                if let Some(reply) = reply {
                    self.heard.push_back((connection, Heard::Answered { number, reply: reply.into() }));
                }
                self.pass_on();
            }
            Action::Read { after, .. } => {
                self.read = Some(after);
                self.pass_on();
            }
            Action::HangUp { .. } => self.connection = None,
        }
    }

    /// Takes what is there now.
    ///
    /// # Errors
    /// When the system fails the look itself.
    pub(crate) fn turn(&mut self, observer: &mut dyn Observer) -> nix::Result<()> {
        let mut around = Around::new(&mut self.mailbox, self.first, observer);
        self.steward.turn(&mut around)?;
        self.pass_on();
        Ok(())
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Moment, observer: &mut dyn Observer) {
        if self.steward.deadline().is_some_and(|deadline| deadline <= now) {
            self.feed(Input::Tick, observer);
            self.pass_on();
        }
    }

    /// Ends everything at once.
    pub(crate) fn shut(&mut self, observer: &mut dyn Observer) {
        self.steward.shut(&mut Around::new(&mut self.mailbox, self.first, observer));
    }

    fn feed(&mut self, input: Input, observer: &mut dyn Observer) -> Option<crate::allocator::state::Reply> {
        self.steward.feed(input, &mut Around::new(&mut self.mailbox, self.first, observer))
    }

    /// Reads on in the record.
    fn pass_on(&mut self) {
        let (Some(connection), Some(read)) = (self.connection, &mut self.read) else { return };
        for line in self.mailbox.record.iter().skip(*read as usize) {
            self.heard.push_back((connection, Heard::Line(line.clone())));
        }
        *read = (self.mailbox.record.len() as u64).max(*read);
    }

    /// The next that the client is told of it, with its connection.
    pub(crate) fn next(&mut self) -> Option<(u64, Heard)> {
        self.heard.pop_front()
    }

    /// Whether a guard is gone since the last time that this was asked.
    pub(crate) fn take_lost_guard(&mut self) -> bool {
        std::mem::take(&mut self.mailbox.has_lost_guard)
    }

    /// The guards that live.
    pub(crate) fn guards(&self) -> impl Iterator<Item = i32> + '_ {
        self.steward.guards()
    }

    /// When it wants [`Self::tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.steward.deadline()
    }

    /// Whether its guard has yet to be told something, so that a turn is worth while though nothing was heard.
    pub(crate) fn is_behind(&self) -> bool {
        self.steward.is_behind()
    }

    /// Whether many ranks are being started at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.steward.is_busy()
    }
}

/// Readable when a turn is worth while.
impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.steward.as_fd()
    }
}

/// What is around an allocator of this process.
struct Around<'a> {
    mailbox: &'a mut Mailbox,
    outlet: Through<'a>,
}

/// Passes output on to the run's observer.
struct Through<'a> {
    first: Rank,
    observer: &'a mut dyn Observer,
}

impl<'a> Around<'a> {
    fn new(mailbox: &'a mut Mailbox, first: Rank, observer: &'a mut dyn Observer) -> Self {
        Self { mailbox, outlet: Through { first, observer } }
    }
}

impl Surroundings for Around<'_> {
    fn hold(&mut self, _: &AllocKey, _: String, _: &WorldId, _: &Request) {}

    fn open(&mut self, _: &AllocKey) -> Result<(), OpenError> {
        Ok(())
    }

    fn outlet(&mut self, _: &AllocKey) -> Option<&mut dyn Outlet> {
        Some(&mut self.outlet)
    }

    fn record(&mut self, _: &AllocKey, message: Told) {
        let number = self.mailbox.record.len() as u64 + 1;
        self.mailbox.record.push(RecordLine::new(number, message));
    }

    fn forget(&mut self, _: &AllocKey) {}

    fn refuse(&mut self, _: ChannelAddr, _: Vec<Told>) {}

    fn kill_strays(&mut self, _: Vec<i32>) {
        // A process has more than one of these allocators: whoever knows them all does it.
        self.mailbox.has_lost_guard = true;
    }
}

impl Observer for Through<'_> {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        let global = |rank: &Rank| Rank(self.first.0 + rank.0);
        let event = match event {
            Event::Output { rank, stream, bytes } => Event::Output { rank: global(rank), stream: *stream, bytes },
            Event::OutputClosed { rank, stream } => Event::OutputClosed { rank: global(rank), stream: *stream },
            // What became of ranks is in the record.
            _ => return,
        };
        self.observer.observe(now, &event);
    }
}

impl Outlet for Through<'_> {
    /// It is in the rank's own file.
    fn tail(&mut self, _: usize) -> String {
        String::new()
    }
}
