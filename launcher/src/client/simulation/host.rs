//! One allocator with its ranks: the real decisions, over processes that are not there.

use std::time::Duration;

use torchlift_schema::RemoteProcessProcStateMessage as Told;
use torchlift_schema::control::{ControlReply, RecordLine, RemoteProcessAllocatorMessage as Asked};
use torchlift_schema::state::{AllocKey, NotStarted, ProcId, ProcState, ProcStopReason};

use super::random::Random;
use crate::allocator::server::Order;
use crate::allocator::state::{Action, Asker, Input, Rules, State};
use crate::clock::Moment;
use crate::event::{End, StartStep};

/// What an allocator's engine will tell, and when.
pub(super) type Later = (Duration, Input);

/// What a step of an allocator leads to.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) later: Vec<Later>,
    pub(super) reply: Option<ControlReply>,
    /// Whether its record has grown.
    pub(super) has_grown: bool,
}

/// A rank that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Waiting,
    Alive,
    Over,
}

/// One life of an allocator.
#[derive(Debug)]
pub(super) struct Life {
    state: State,
    order: Order,
    connections: usize,
    ranks: Vec<Rank>,
    /// How often ranks were started for an allocation.
    pub(super) starts: u32,
    pub(super) record: Vec<RecordLine>,
    /// Whether nobody can begin to read the record any more; who reads it reads on.
    is_forgotten: bool,
    is_open: bool,
    is_stubborn: bool,
    inputs: Vec<Input>,
}

fn key() -> AllocKey {
    AllocKey::new("k").expect("a key")
}

fn asker() -> Asker {
    Asker { session: "s".to_owned(), owner: "o".to_owned() }
}

impl Life {
    pub(super) fn new(incarnation: String, patience: Duration, is_stubborn: bool, now: Moment) -> Self {
        let rules =
            Rules { incarnation, slots: None, most_ranks: 4096, has_program: true, patience, idle_timeout: None };
        Self {
            state: State::new(rules, now),
            order: Order::default(),
            connections: 0,
            ranks: Vec::new(),
            starts: 0,
            record: Vec::new(),
            is_forgotten: false,
            is_open: false,
            is_stubborn,
            inputs: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.state.deadline()
    }

    pub(super) fn alive(&self) -> usize {
        self.ranks.iter().filter(|rank| **rank == Rank::Alive).count()
    }

    pub(super) fn holds_something(&self) -> bool {
        !self.state.holders().is_empty()
    }

    /// Whether there is a record to read.
    pub(super) fn is_known(&self) -> bool {
        !self.is_forgotten && (!self.record.is_empty() || self.holds_something())
    }

    /// The reasons that its record gives, by local rank.
    pub(super) fn ends(&self) -> Vec<(usize, ProcStopReason)> {
        let ends = self.record.iter().filter_map(|line| match &line.message {
            Told::Update(ProcState::Stopped { proc_id: ProcId::Ranked(_, rank), reason }) => {
                Some((*rank, reason.clone()))
            }
            _ => None,
        });
        ends.collect()
    }

    pub(super) fn connected(&mut self, now: Moment, random: &mut Random) -> Output {
        self.connections += 1;
        match self.connections {
            1 => self.step(Input::Connected { session: asker().session }, now, random),
            _ => Output::default(),
        }
    }

    pub(super) fn disconnected(&mut self, now: Moment, random: &mut Random) -> Output {
        self.connections -= 1;
        match self.connections {
            0 => self.step(Input::Disconnected { session: asker().session }, now, random),
            _ => Output::default(),
        }
    }

    /// A message of the client, answered as the server does.
    pub(super) fn asked(&mut self, number: Option<u64>, message: Asked, now: Moment, random: &mut Random) -> Output {
        if let Some(reply) = number.and_then(|number| self.order.look(number)) {
            return Output { reply: Some(reply), ..Output::default() };
        }
        let output = self.step(Input::Asked { by: asker(), message }, now, random);
        if let (Some(_), Some(reply)) = (number, &output.reply) {
            self.order.answered(reply.clone());
        }
        output
    }

    pub(super) fn step(&mut self, input: Input, now: Moment, random: &mut Random) -> Output {
        let mut output = Output::default();
        self.happen(&input);
        self.inputs.push(input);
        while let Some(input) = self.inputs.pop() {
            for action in self.state.step(input, now) {
                self.act(action, random, &mut output);
            }
        }
        output
    }

    /// What the engine's news means for the ranks.
    fn happen(&mut self, input: &Input) {
        match input {
            Input::Started { rank, .. } => self.ranks[*rank] = Rank::Alive,
            Input::Ended { rank, .. } | Input::NotStarted { failed: NotStarted { rank, .. }, .. } => {
                self.ranks[*rank] = Rank::Over
            }
            Input::GuardLost { .. } => self.ranks.fill(Rank::Over),
            _ => {}
        }
    }

    /// Whether something that an engine would tell can still happen.
    pub(super) fn may_happen(&self, input: &Input) -> bool {
        match input {
            Input::Opened { .. } | Input::NotOpened { .. } | Input::OutputClosed { .. } => self.is_open,
            Input::Started { rank, .. } | Input::NotStarted { failed: NotStarted { rank, .. }, .. } => {
                self.is_open && self.ranks[*rank] == Rank::Waiting
            }
            Input::Ended { rank, .. } => self.is_open && self.ranks[*rank] == Rank::Alive,
            Input::Empty { .. } => self.is_open && self.ranks.iter().all(|rank| *rank == Rank::Over),
            Input::GuardLost { .. } => self.is_open,
            _ => true,
        }
    }

    fn act(&mut self, action: Action, random: &mut Random, output: &mut Output) {
        match action {
            Action::Reply(reply) => output.reply = Some(reply.into()),
            Action::Hold { request, .. } => self.ranks = vec![Rank::Waiting; request.view.num_ranks()],
            Action::Open { key } => {
                self.is_open = true;
                let after = random.millis(1, 30);
                output.later.push(match random.one_in(40) {
                    true => (after, Input::NotOpened { key, why: "no such program".to_owned() }),
                    false => (after, Input::Opened { key, master_port: Some(29500) }),
                });
            }
            Action::Start { key } => {
                self.starts += 1;
                let mut begin = Duration::ZERO;
                for rank in 0..self.ranks.len() {
                    let key = key.clone();
                    begin += random.millis(0, 3);
                    if random.one_in(100) {
                        let failed = NotStarted { rank, step: StartStep::Fork, errno: 11 };
                        output.later.push((begin, Input::NotStarted { key, failed, why: "no room".to_owned() }));
                        continue;
                    }
                    output.later.push((begin, Input::Started { key: key.clone(), rank, pid: 100 + rank as u32 }));
                    if random.one_in(2) {
                        let end = if random.one_in(4) { End::Exited(3) } else { End::Exited(0) };
                        self.end(rank, end, begin + random.millis(1, 4000), output);
                    }
                }
                if random.one_in(200) {
                    output.later.push((random.millis(1, 2000), Input::GuardLost { key }));
                }
            }
            Action::Stop { signal, .. } => self.signal(signal, !self.is_stubborn, 20, random, output),
            Action::Kill { .. } => self.signal(nix::libc::SIGKILL, true, 5, random, output),
            Action::Close { .. } => self.is_open = false,
            Action::Record { message, .. } => {
                self.record.push(RecordLine::new(self.record.len() as u64 + 1, message));
                output.has_grown = true;
            }
            Action::Forget { .. } => self.is_forgotten = true,
            Action::StopLeftovers { .. } => self.empty_soon(random, output),
            Action::Refuse { .. } | Action::Exit => {}
        }
    }

    /// Withdraws the ranks that wait, and ends those that run within so many ms, where they heed it.
    fn signal(&mut self, signal: i32, is_heeded: bool, within: u64, random: &mut Random, output: &mut Output) {
        for rank in 0..self.ranks.len() {
            match self.ranks[rank] {
                Rank::Alive if is_heeded => {
                    let end = End::Signaled { signal, core: false };
                    self.end(rank, end, random.millis(0, within), output);
                }
                Rank::Waiting => {
                    self.ranks[rank] = Rank::Over;
                    self.inputs.insert(0, Input::Withdrawn { key: key(), rank });
                }
                Rank::Alive | Rank::Over => {}
            }
        }
        self.empty_soon(random, output);
    }

    fn end(&self, rank: usize, end: End, after: Duration, output: &mut Output) {
        let input = Input::Ended { key: key(), rank, end, stderr: String::new() };
        output.later.push((after, input));
        output.later.push((after + Duration::from_millis(1), Input::Empty { key: key() }));
    }

    fn empty_soon(&self, random: &mut Random, output: &mut Output) {
        output.later.push((random.millis(1, 30), Input::Empty { key: key() }));
    }
}
