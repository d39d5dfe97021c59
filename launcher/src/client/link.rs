//! The connection to one host's allocator: a pure function of what it was, what happened and when.
//!
//! Owns the order of what is sent, the place in the record, and whether the host still counts as there. Must not read a clock or
//! a socket, nor know what the record means: that is [`super::state`]'s.
//!
//! ```text
//! Idle ─ allocate ─> Dialling ─ connected ─> Up ─ Done, refused, silence ─> Over
//!                     │  ^                    │
//!                     │  └ pause over ─ Resting <─ not connected, and that may pass
//!                     │  └─────────────── closed: dialled at once, refused is gone
//! ```
//!
//! A connection says first that it lives, with a heartbeat: only its answer tells which life of the allocator is at the other
//! end, and a restarted one is never sent what was meant for the one before.
//!
//! When you change this:
//! - everything but `Idle` and `Over` has a deadline, or a client could wait for ever;
//! - what comes from a connection that is not the latest means nothing;
//! - a line of the record is passed on once, in order, whatever comes twice, late or not at all.

use std::collections::VecDeque;
use std::time::Duration;

use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::{ControlReply, Holder, RecordLine};

use crate::clock::Moment;

/// The first pause before a connection is tried again; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Connections in a row of which each may be closed before it was of use: a bad network does that to a few.
const MOST_FLAPS: u32 = 8;
/// How often in a row an allocator may ask for another number before it counts as one that keeps no order.
const MOST_GAPS: u32 = 8;

/// How long a client waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time between two heartbeats.
    pub interval: Duration,
    /// Silence after which a host counts as lost.
    pub limit: Duration,
    /// How long an allocator that was never reached may refuse connections, because it is not up yet.
    pub wait: Duration,
}

/// What became of something that was done, or came by itself. All but [`Input::Tick`] concern a connection, by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// It stands.
    Connected,
    /// It could not be made.
    NotConnected { failure: Failure, why: String },
    /// It broke, or the other side closed it.
    Closed { why: String },
    /// The answer to a message; one without a number is a heartbeat's.
    Answered { number: Option<u64>, reply: ControlReply },
    /// A line of the record.
    Line(RecordLine),
    /// The record's lines ended though the connection stands; with a reason there is no such record any more.
    RecordEnded { why: Option<String> },
    /// What the other side sent is nothing that this client understands.
    Unreadable { why: String },
    /// Time passed.
    Tick,
}

/// Why a connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody listens there.
    Refused,
    /// It may be possible in a moment.
    Passing,
    /// It will never be possible.
    Final,
}

/// What is sent. The message itself is [`super::state`]'s to make, when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Allocate,
    Stop,
    /// With this signal and this time until SIGKILL, where they are stated.
    StopWith {
        signal: Option<i32>,
        grace_ms: Option<u64>,
    },
    HeartBeat,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make the connection with this number. The one before is not needed any more.
    Dial { connection: u64 },
    /// Send a message over it.
    Post { connection: u64, number: Option<u64>, sent: Sent },
    /// Read the record over it from behind its first lines. Whoever reads it already stops.
    Read { connection: u64, after: u64 },
    /// No connection is needed any more.
    HangUp { connection: u64 },
}

/// What the client hears of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The next message of the record.
    Told(Told),
    /// It was asked for nothing, or took nothing back.
    Withdrawn,
    /// The allocation cannot be had there.
    Refused { why: String },
    /// The host is lost.
    Gone { why: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Dialling,
    Up,
    Resting { until: Moment },
    Over,
}

/// A connection to an allocator, with what is to go over it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    patience: Patience,
    /// Whether what it holds outlives a connection, so that another one is worth trying.
    may_return: bool,
    /// Makes its pauses others than those of its neighbours.
    seed: u64,
    phase: Phase,
    /// The latest one.
    connection: u64,
    /// In order; the first may be under way.
    outbox: VecDeque<Sent>,
    /// The number of the first of them.
    number: u64,
    /// When that has to be answered; none while it is not under way.
    post_by: Option<Moment>,
    gaps: u32,
    is_allocate_sent: bool,
    /// Whether the allocator took the allocation, so that there is a record.
    is_allocated: bool,
    is_stop_asked: bool,
    /// Which life of the allocator this is about.
    incarnation: Option<String>,
    /// Whether this connection's first heartbeat was answered.
    is_greeted: bool,
    /// Whether anything came over this connection after that.
    is_of_use: bool,
    /// Connections in a row that closed without having been of use, and since when.
    flaps: u32,
    flaps_since: Moment,
    /// When the heartbeat that is under way has to be answered.
    beat_by: Option<Moment>,
    next_beat: Moment,
    /// Lines of the record that were passed on.
    read: u64,
    /// When a record that ended too early is asked for again.
    read_again: Option<Moment>,
    began: Moment,
    last_heard: Moment,
    tries: u32,
    /// What went wrong with the latest connection, until one goes well.
    trouble: Option<String>,
}

impl Link {
    /// One that nothing was asked of yet; with the life of the allocator that holds its part, where one does already.
    pub(crate) fn new(patience: Patience, may_return: bool, incarnation: Option<String>, seed: u64) -> Self {
        let zero = Moment::after_zero(Duration::ZERO);
        Self {
            patience,
            may_return,
            seed,
            phase: Phase::Idle,
            connection: 0,
            outbox: VecDeque::new(),
            number: 1,
            post_by: None,
            gaps: 0,
            is_allocate_sent: false,
            is_allocated: false,
            is_stop_asked: false,
            incarnation,
            is_greeted: false,
            is_of_use: false,
            flaps: 0,
            flaps_since: zero,
            beat_by: None,
            next_beat: zero,
            read: 0,
            read_again: None,
            began: zero,
            last_heard: zero,
            tries: 0,
            trouble: None,
        }
    }

    /// Whether nothing more comes of it.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// When [`Self::step`] wants an [`Input::Tick`], at the latest.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let next = match self.phase {
            Phase::Idle | Phase::Over => return None,
            Phase::Dialling => None,
            Phase::Up if self.is_greeted && self.beat_by.is_none() => Some(self.next_beat),
            Phase::Up => None,
            Phase::Resting { until } => Some(until),
        };
        [Some(self.lost_at()), next, self.read_again, self.answer_by()].into_iter().flatten().min()
    }

    /// When this connection is not waited for any longer, though it stands: it gives no answers.
    fn answer_by(&self) -> Option<Moment> {
        [self.beat_by, self.post_by].into_iter().flatten().min()
    }

    fn lost_at(&self) -> Moment {
        self.last_heard.plus(self.patience.limit)
    }

    /// Begins: asks the allocator for its part.
    pub(crate) fn allocate(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.phase == Phase::Idle {
            self.outbox.push_back(Sent::Allocate);
            (self.began, self.last_heard) = (now, now);
            self.dial(actions);
        }
    }

    /// Asks for the end of it, plainly once, in so many words as often as it is said; what the allocator was never asked for is not
    /// asked for any more.
    pub(crate) fn stop(&mut self, sent: Sent, now: Moment, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        let is_again = std::mem::replace(&mut self.is_stop_asked, true);
        if self.is_over() || is_again && sent == Sent::Stop {
            return;
        }
        if self.is_allocate_sent {
            self.outbox.push_back(sent);
            self.flush(now, actions);
        } else {
            self.end(News::Withdrawn, actions, news);
        }
    }

    /// Nothing more is wanted of it, whatever it still says.
    pub(crate) fn give_up(&mut self, why: String, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        if !self.is_over() {
            self.end(News::Gone { why }, actions, news);
        }
    }

    /// Takes what happened on the connection with this number, and says what to do about it and what was heard, in order.
    pub(crate) fn step(
        &mut self,
        connection: u64,
        input: Input,
        now: Moment,
        actions: &mut Vec<Action>,
        news: &mut Vec<News>,
    ) {
        if matches!(self.phase, Phase::Idle | Phase::Over) {
            return;
        }
        if input == Input::Tick || connection == self.connection {
            self.note(input, now, actions, news);
        }
        self.advance(now, actions, news);
    }

    fn note(&mut self, input: Input, now: Moment, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        match (self.phase, input) {
            (Phase::Dialling, Input::Connected) => {
                self.phase = Phase::Up;
                self.beat(now, actions);
            }
            (Phase::Dialling, Input::NotConnected { failure, why }) => {
                let was_reached = self.incarnation.is_some();
                let may_come_up = !was_reached && now < self.began.plus(self.patience.wait);
                let is_gone = match failure {
                    Failure::Refused => !may_come_up,
                    Failure::Passing => false,
                    Failure::Final => true,
                };
                if is_gone {
                    self.end(News::Gone { why }, actions, news);
                } else {
                    self.trouble = Some(why);
                    self.rest(now);
                }
            }
            // At once: whoever refuses now is gone now.
            (Phase::Up, Input::Closed { .. }) if self.is_of_use || self.is_greeted && self.flaps == 0 => {
                (self.flaps, self.flaps_since) = (u32::from(!self.is_of_use), now);
                self.dial(actions);
            }
            // It takes connections and does nothing over them.
            (Phase::Up, Input::Closed { why }) if self.is_greeted => {
                if self.flaps >= MOST_FLAPS && now >= self.flaps_since.plus(self.patience.limit) {
                    let why = format!("its allocator takes connections and closes them: {why}");
                    return self.end(News::Gone { why }, actions, news);
                }
                self.trouble = Some(why);
                self.tries = self.flaps;
                self.flaps = self.flaps.saturating_add(1);
                self.rest(now);
            }
            // Whoever closes without a word would be dialled all the time.
            (Phase::Up, Input::Closed { why }) => {
                self.trouble = Some(why);
                self.rest(now);
            }
            (Phase::Up, Input::Answered { number, reply }) => {
                self.is_of_use |= self.is_greeted;
                (self.last_heard, self.tries, self.trouble) = (now, 0, None);
                match number {
                    None => self.greeted(reply, now, actions, news),
                    Some(number) => self.answered(number, reply, now, actions, news),
                }
            }
            (Phase::Up, Input::Line(line)) => {
                (self.last_heard, self.is_of_use) = (now, true);
                self.line(line, actions, news);
            }
            (Phase::Up, Input::RecordEnded { why: None }) => self.read_again = Some(now.plus(FIRST_PAUSE)),
            (Phase::Up, Input::RecordEnded { why: Some(why) } | Input::Unreadable { why }) => {
                self.end(News::Gone { why }, actions, news);
            }
            _ => {}
        }
    }

    /// A heartbeat was answered; the first one of a connection lets everything else begin.
    fn greeted(&mut self, reply: ControlReply, now: Moment, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        self.beat_by = None;
        let ControlReply::Alive { incarnation } = reply else {
            return self.end(News::Gone { why: said(&reply) }, actions, news);
        };
        if *self.incarnation.get_or_insert_with(|| incarnation.clone()) != incarnation {
            let why = "its allocator was restarted, and what it held is gone".to_owned();
            return self.end(News::Gone { why }, actions, news);
        }
        if !std::mem::replace(&mut self.is_greeted, true) {
            self.flush(now, actions);
            if self.is_allocated {
                actions.push(Action::Read { connection: self.connection, after: self.read });
            }
        }
    }

    fn answered(
        &mut self,
        number: u64,
        reply: ControlReply,
        now: Moment,
        actions: &mut Vec<Action>,
        news: &mut Vec<News>,
    ) {
        if self.post_by.is_none() || number != self.number {
            return;
        }
        self.post_by = None;
        if let ControlReply::Gap { expected } = reply {
            self.gaps += 1;
            if self.gaps > MOST_GAPS {
                return self.end(News::Gone { why: said(&reply) }, actions, news);
            }
            // Whatever it acted on, this acts once: an allocation by its key, a stop by its nature.
            self.number = expected;
            return self.flush(now, actions);
        }
        self.gaps = 0;
        match (self.outbox.pop_front(), reply) {
            (Some(Sent::Allocate), ControlReply::Allocating { .. }) => {
                self.is_allocated = true;
                actions.push(Action::Read { connection: self.connection, after: self.read });
            }
            (Some(Sent::Allocate), ControlReply::Busy { holders }) => {
                return self.end(News::Refused { why: busy(&holders) }, actions, news);
            }
            (Some(Sent::Allocate), reply @ ControlReply::Refused { .. }) => {
                return self.end(News::Refused { why: said(&reply) }, actions, news);
            }
            (Some(Sent::Allocate), reply) => {
                return self.end(News::Gone { why: said(&reply) }, actions, news);
            }
            // Whatever it says of a stop: the record tells what comes of it.
            _ => {}
        }
        self.number += 1;
        self.flush(now, actions);
    }

    fn line(&mut self, line: RecordLine, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        let Some(number) = line.n else { return };
        match number.cmp(&(self.read + 1)) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => {
                actions.push(Action::Read { connection: self.connection, after: self.read });
            }
            std::cmp::Ordering::Equal => {
                self.read = number;
                let is_done = matches!(line.message, Told::Done(_));
                news.push(News::Told(line.message));
                if is_done {
                    self.hang_up(actions);
                }
            }
        }
    }

    fn advance(&mut self, now: Moment, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        if self.is_over() {
            return;
        }
        if now >= self.lost_at() {
            let limit = humantime::format_duration(self.patience.limit);
            let trouble = self.trouble.take().map(|why| format!(": {why}")).unwrap_or_default();
            return self.end(
                News::Gone { why: format!("nothing was heard of it for {limit}{trouble}") },
                actions,
                news,
            );
        }
        match self.phase {
            // Whatever keeps its answers from us: another connection may not have it.
            Phase::Up if self.answer_by().is_some_and(|by| now >= by) && self.may_return => self.dial(actions),
            Phase::Up if self.answer_by().is_some_and(|by| now >= by) => {
                let limit = humantime::format_duration(self.patience.limit);
                self.end(News::Gone { why: format!("its allocator gave no answer for {limit}") }, actions, news);
            }
            Phase::Resting { until } if now >= until => self.dial(actions),
            Phase::Up if self.is_greeted && self.beat_by.is_none() && now >= self.next_beat => self.beat(now, actions),
            _ => {}
        }
        if self.read_again.is_some_and(|at| now >= at) {
            self.read_again = None;
            if self.is_greeted {
                actions.push(Action::Read { connection: self.connection, after: self.read });
            }
        }
    }

    fn dial(&mut self, actions: &mut Vec<Action>) {
        self.connection += 1;
        self.phase = Phase::Dialling;
        self.forget_connection();
        actions.push(Action::Dial { connection: self.connection });
    }

    /// What was under way over a connection is not waited for: over the next one it is sent again, with its number.
    fn forget_connection(&mut self) {
        (self.is_greeted, self.is_of_use) = (false, false);
        (self.post_by, self.beat_by, self.read_again) = (None, None, None);
    }

    fn rest(&mut self, now: Moment) {
        self.forget_connection();
        let pause = FIRST_PAUSE.saturating_mul(1 << self.tries.min(5)).min(LAST_PAUSE);
        self.tries += 1;
        // Up to a quarter more: a thousand clients of a host that comes back do not come all at once.
        let jitter = pause.mul_f64(f64::from(scattered(self.seed, self.connection)) / f64::from(u32::MAX) / 4.0);
        self.phase = Phase::Resting { until: now.plus(pause + jitter) };
    }

    fn beat(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.beat_by = Some(self.answer_due(now));
        self.next_beat = now.plus(self.patience.interval);
        actions.push(Action::Post { connection: self.connection, number: None, sent: Sent::HeartBeat });
    }

    /// Sends the first of what waits, unless it is under way.
    fn flush(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.is_greeted || self.post_by.is_some() {
            return;
        }
        if let Some(sent) = self.outbox.front().copied() {
            self.post_by = Some(self.answer_due(now));
            self.is_allocate_sent |= sent == Sent::Allocate;
            let (connection, number) = (self.connection, Some(self.number));
            actions.push(Action::Post { connection, number, sent });
        }
    }

    fn answer_due(&self, now: Moment) -> Moment {
        let limit = self.patience.limit;
        // What outlives its connection leaves time for another one to be heard of.
        now.plus(if self.may_return { limit / 3 } else { limit })
    }

    fn end(&mut self, why: News, actions: &mut Vec<Action>, news: &mut Vec<News>) {
        news.push(why);
        self.hang_up(actions);
    }

    fn hang_up(&mut self, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Idle | Phase::Over) {
            actions.push(Action::HangUp { connection: self.connection });
        }
        self.phase = Phase::Over;
        self.outbox.clear();
    }
}

/// What an allocator said in place of what was to come.
fn said(reply: &ControlReply) -> String {
    match reply {
        ControlReply::Refused { message, hint, .. } => {
            let hint = hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("{message}{hint}")
        }
        other => format!("its allocator gave an answer out of order: {other:?}"),
    }
}

fn busy(holders: &[Holder]) -> String {
    let holders: Vec<String> = holders.iter().map(Holder::to_string).collect();
    format!("it is busy: held by {}", holders.join(", "))
}

/// A number that has nothing to do with its neighbours'.
fn scattered(seed: u64, number: u64) -> u32 {
    let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) as u32
}

#[cfg(test)]
mod tests;
