//! The network, the clock and the faults between a client and its allocators; [`super::rule`] is what has to hold in spite of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use torchlift_schema::control::RemoteProcessAllocatorMessage as Asked;
use torchlift_schema::state::{AllocKey, ProcId, ProcStopReason};
use torchlift_schema::{Extent, View};

use super::host::{Life, Output as Led};
use super::random::Random;
use super::rule::Seen;
use crate::allocator::state::Input as HostInput;
use crate::client::link::{Action, Failure, Input, Patience, Sent};
use crate::client::state::{AllocSpec, Client, HostSpec, Output};
use crate::clock::Moment;

/// However bad a world is: the longest silence, the longest pauses and the longest stop are over by then.
const LIMIT: Duration = Duration::from_secs(600);
/// Connections of one client are numbered below this, and those of the next one from here on.
const GENERATION: u64 = 1 << 32;
/// Steps after which a world counts as one that goes round in circles, by host.
const MOST_STEPS: u64 = 5_000;

/// How a process or its machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// Its connections close, and nobody listens there.
    Process,
    /// Nothing is heard of it any more.
    Machine,
}

#[derive(Debug)]
enum Event {
    ToClient {
        host: usize,
        connection: u64,
        input: Input,
    },
    Dial {
        host: usize,
        connection: u64,
    },
    Post {
        host: usize,
        connection: u64,
        number: Option<u64>,
        sent: Sent,
    },
    Read {
        host: usize,
        connection: u64,
        after: u64,
    },
    /// The client closed it.
    Left {
        host: usize,
        connection: u64,
    },
    /// The allocator's processes.
    Inner {
        host: usize,
        life: u32,
        input: HostInput,
    },
    HostTick {
        host: usize,
        life: u32,
    },
    ClientTick,
    Stop,
    Crash {
        host: usize,
        crash: Crash,
    },
    Restart {
        host: usize,
    },
    Break {
        host: usize,
    },
    Pause {
        host: usize,
        time: Duration,
    },
    PauseClient {
        time: Duration,
    },
    ClientCrash {
        is_silent: bool,
    },
    /// Another client takes up what the one before asked for.
    ClientRestart,
}

/// An event in its time; those of one time in the order in which they were made.
struct Queued {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(super) struct Host {
    pub(super) life: Option<Life>,
    pub(super) lives: u32,
    pub(super) is_machine_down: bool,
    pub(super) paused_until: Duration,
    /// The connection that is open, the lines that its reader was sent, and whether it reads.
    pub(super) open: Vec<u64>,
    pub(super) reader: Option<(u64, usize)>,
    pub(super) next_tick: Option<Duration>,
    /// Whether something happened to it for which it may count as lost.
    pub(super) is_harmed: bool,
    /// When something small went wrong for the last time.
    pub(super) blemished: Option<Duration>,
    pub(super) starts: u32,
    pub(super) crashed: Vec<(usize, ProcStopReason)>,
}

/// How bad a world is.
struct Weather {
    /// One message in so many is lost, comes twice, or comes late; none for none.
    lost: Option<u64>,
    repeated: Option<u64>,
    late: Option<u64>,
}

pub(super) struct World {
    random: Random,
    now: Duration,
    queue: BinaryHeap<Reverse<Queued>>,
    count: u64,
    client: Option<Client>,
    /// How many clients there were before this one.
    pub(super) generation: u64,
    spec: AllocSpec,
    /// What the clients heard of lives, by host.
    pub(super) incarnations: Vec<Option<String>>,
    client_paused_until: Duration,
    client_tick: Option<Duration>,
    pub(super) hosts: Vec<Host>,
    pub(super) views: Vec<View>,
    /// What each host is asked for. The names of all hosts, which nobody here reads, are not in it.
    requests: Vec<Asked>,
    pub(super) extent: Extent,
    weather: Weather,
    patience: Patience,
    host_patience: Duration,
    has_lease: bool,
    is_stubborn: bool,
    pub(super) seen: HashMap<(usize, ProcId), (usize, Seen)>,
    pub(super) lost: Vec<bool>,
    pub(super) is_client_crashed: bool,
    pub(super) ended_at: Option<Duration>,
}

fn at(time: Duration) -> Moment {
    Moment::after_zero(time)
}

impl World {
    pub(super) fn new(seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        let gpus = 1 + random.below(2) as usize;
        let extent = Extent::of([("host", count), ("gpu", gpus)]).unwrap();
        let views = crate::client::split::by_innermost(&extent, count).unwrap();
        let interval = if random.one_in(2) { Duration::from_secs(5) } else { Duration::from_secs(2) };
        let patience = Patience { interval, limit: interval * 3, wait: Duration::from_millis(500) };
        let has_lease = random.one_in(2);
        let spec = AllocSpec {
            key: AllocKey::new("k").unwrap(),
            owner: "o".to_owned(),
            extent: extent.clone(),
            hosts: views
                .iter()
                .map(|view| HostSpec { name: String::new(), view: view.clone(), launch: None, incarnation: None })
                .collect(),
            is_forced: false,
            lease: has_lease.then_some(Duration::from_secs(60)),
            context: None,
            patience,
        };
        let some = |random: &mut Random, least: u64| (!random.one_in(3)).then(|| least + random.below(200));
        let weather =
            Weather { lost: some(&mut random, 20), repeated: some(&mut random, 5), late: some(&mut random, 5) };
        let is_stubborn = random.one_in(4);
        let client = Client::new(spec.clone(), seed);
        let requests = (0..count).map(|host| client.request(host, Vec::new())).collect();
        let mut world = Self {
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            count: 0,
            client: Some(client),
            generation: 0,
            spec,
            incarnations: vec![None; count],
            client_paused_until: Duration::ZERO,
            client_tick: None,
            hosts: Vec::new(),
            views,
            requests,
            extent,
            weather,
            patience,
            host_patience: Duration::from_secs(15),
            has_lease,
            is_stubborn,
            seen: HashMap::new(),
            lost: vec![false; count],
            is_client_crashed: false,
            ended_at: None,
            random,
        };
        for host in 0..count {
            let is_late = world.random.one_in(50);
            let mut new = Host {
                life: None,
                lives: 0,
                is_machine_down: false,
                paused_until: Duration::ZERO,
                open: Vec::new(),
                reader: None,
                next_tick: None,
                is_harmed: is_late,
                blemished: None,
                starts: 0,
                crashed: Vec::new(),
            };
            if is_late {
                let after = world.random.millis(1, 1000);
                world.later(after, Event::Restart { host });
            } else {
                new.life = Some(world.new_life(host, 0));
            }
            world.hosts.push(new);
        }
        world.plan_faults();
        world
    }

    fn new_life(&self, host: usize, life: u32) -> Life {
        Life::new(format!("{host}.{life}"), self.host_patience, self.is_stubborn, at(self.now))
    }

    fn plan_faults(&mut self) {
        let harm = [3, 10, 100][self.random.below(3) as usize];
        for host in 0..self.hosts.len() {
            if self.random.one_in(harm) {
                // Half of it while ranks are being asked for.
                let most = if self.random.one_in(2) { 60 } else { 6000 };
                let when = self.random.millis(0, most);
                match self.random.below(6) {
                    0 => self.later(when, Event::Crash { host, crash: Crash::Process }),
                    1 => self.later(when, Event::Crash { host, crash: Crash::Machine }),
                    2 => {
                        self.later(when, Event::Crash { host, crash: Crash::Process });
                        let most = if self.random.one_in(2) { 3 } else { 3000 };
                        let again = when + self.random.millis(0, most);
                        self.later(again, Event::Restart { host });
                    }
                    3 => {
                        let time = self.random.millis(0, 40_000);
                        self.later(when, Event::Pause { host, time });
                    }
                    _ => self.later(when, Event::Break { host }),
                }
            }
        }
        if self.random.one_in(4) {
            let (when, time) = (self.random.millis(0, 5000), self.random.millis(0, 30_000));
            self.later(when, Event::PauseClient { time });
        }
        if self.random.one_in(6) {
            let when = self.random.millis(0, 5000);
            let is_silent = self.random.one_in(2);
            self.later(when, Event::ClientCrash { is_silent });
            if self.has_lease {
                let again = when + self.random.millis(0, 20_000);
                self.later(again, Event::ClientRestart);
            }
        }
        // Some ranks never end by themselves.
        let when = self.random.millis(0, 8000);
        self.later(when, Event::Stop);
    }

    /// To its end; every rule is held on the way.
    pub(super) fn run(mut self) {
        let mut output = Output::default();
        if let Some(client) = &mut self.client {
            client.begin(at(self.now), &mut output);
        }
        self.carry_out(output);
        let mut steps = 0;
        while let Some(Reverse(queued)) = self.queue.pop() {
            self.now = queued.at;
            assert!(self.now < LIMIT, "it does not end: {}", self.shown());
            steps += 1;
            assert!(steps < MOST_STEPS * (self.hosts.len() as u64 + 1), "it goes round in circles");
            self.happen(queued.event);
            if self.is_all_over() {
                break;
            }
        }
        self.look_back();
    }

    /// Who is not over, for a person who looks for the reason.
    fn shown(&self) -> String {
        let holds = |host: &Host| host.life.as_ref().is_some_and(Life::holds_something);
        let hosts = self.hosts.iter().enumerate().filter(|(_, host)| holds(host));
        let hosts: Vec<String> = hosts.map(|(index, host)| format!("{index}: {:?}", host.life)).collect();
        let client = self.client.as_ref().map(Client::shown).unwrap_or_default();
        format!("at {:?} the client has {client}, and these hosts hold something: {hosts:#?}", self.now)
    }

    /// Whether nothing can come any more that would matter.
    fn is_all_over(&self) -> bool {
        let is_client_over = self.client.as_ref().is_none_or(Client::is_over);
        is_client_over && self.hosts.iter().all(|host| host.life.as_ref().is_none_or(|life| !life.holds_something()))
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.count += 1;
        self.queue.push(Reverse(Queued { at: self.now + after, number: self.count, event }));
    }

    /// How long something is on its way.
    fn way(&mut self) -> Duration {
        let usual = self.random.millis(0, 5);
        match self.weather.late {
            Some(late) if self.random.one_in(late) => usual + self.random.millis(0, 400),
            _ => usual,
        }
    }

    /// Something small went wrong. What is kept for a client that comes back survives that, if it has the time to.
    fn blemish(&mut self, host: usize) {
        let (now, limit) = (self.now, self.patience.limit);
        let at = &mut self.hosts[host];
        // Without a lease an allocation ends with its connection.
        at.is_harmed |= !self.has_lease || at.blemished.is_some_and(|before| now - before < limit);
        at.blemished = Some(now);
    }

    fn is_lost(&mut self) -> bool {
        self.weather.lost.is_some_and(|lost| self.random.one_in(lost))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToClient { .. } | Event::ClientTick | Event::Stop if self.now < self.client_paused_until => {
                self.later(self.client_paused_until - self.now, event);
            }
            Event::Dial { host, .. }
            | Event::Post { host, .. }
            | Event::Read { host, .. }
            | Event::Left { host, .. }
            | Event::Inner { host, .. }
            | Event::HostTick { host, .. }
                if self.now < self.hosts[host].paused_until =>
            {
                self.later(self.hosts[host].paused_until - self.now, event);
            }
            Event::ToClient { connection, .. } if connection / GENERATION != self.generation => {}
            Event::ToClient { host, connection, input } => {
                let connection = connection % GENERATION;
                self.client(|client, now, output| client.step(host, connection, input, now, output));
            }
            Event::ClientTick => {
                self.client_tick = None;
                self.client(|client, now, output| client.tick(now, output));
            }
            Event::Stop => {
                let kill = self.random.one_in(4).then_some(Duration::ZERO);
                if self.random.one_in(2) {
                    self.client(|client, now, output| client.stop(now, output));
                } else {
                    self.client(|client, now, output| client.stop_with(Some(2), kill, now, output));
                }
            }
            Event::Dial { host, connection } => self.dial(host, connection),
            Event::Post { host, connection, number, sent } => self.post(host, connection, number, sent),
            Event::Read { host, connection, after } => self.read(host, connection, after),
            Event::Left { host, connection } => self.close(host, connection),
            Event::Inner { host, life, input } => {
                if self.hosts[host].lives == life {
                    let may = self.hosts[host].life.as_ref().is_some_and(|life| life.may_happen(&input));
                    if may {
                        self.host(host, |life, now, random| life.step(input, now, random));
                    }
                }
            }
            Event::HostTick { host, life } => {
                if self.hosts[host].lives == life {
                    self.hosts[host].next_tick = None;
                    self.host(host, |life, now, random| life.step(HostInput::Tick, now, random));
                }
            }
            Event::Crash { host, crash } => self.crash(host, crash),
            Event::Restart { host } => {
                if self.hosts[host].life.is_none() && !self.hosts[host].is_machine_down {
                    self.hosts[host].lives += 1;
                    let life = self.new_life(host, self.hosts[host].lives);
                    self.hosts[host].life = Some(life);
                }
            }
            Event::Break { host } => {
                self.blemish(host);
                for connection in self.hosts[host].open.clone() {
                    self.close(host, connection);
                    let why = "connection reset".to_owned();
                    let after = self.way();
                    self.later(after, Event::ToClient { host, connection, input: Input::Closed { why } });
                }
            }
            Event::Pause { host, time } => {
                self.hosts[host].is_harmed |= time > self.patience.limit / 4;
                self.blemish(host);
                self.hosts[host].paused_until = self.now + time;
            }
            Event::PauseClient { time } => {
                self.client_paused_until = self.now + time;
                for host in 0..self.hosts.len() {
                    self.hosts[host].is_harmed |= time > self.patience.limit / 4;
                    self.blemish(host);
                }
            }
            Event::ClientRestart => {
                if !self.is_client_crashed {
                    return;
                }
                let mut spec = self.spec.clone();
                for (host, incarnation) in spec.hosts.iter_mut().zip(&self.incarnations) {
                    host.incarnation.clone_from(incarnation);
                }
                self.generation += 1;
                self.client = Some(Client::new(spec, self.generation));
                self.is_client_crashed = false;
                self.seen.clear();
                self.lost.fill(false);
                self.client(|client, now, output| client.begin(now, output));
                let when = self.random.millis(0, 8000);
                self.later(when, Event::Stop);
            }
            Event::ClientCrash { is_silent } => {
                self.is_client_crashed = true;
                self.client = None;
                if !is_silent {
                    for host in 0..self.hosts.len() {
                        for connection in self.hosts[host].open.clone() {
                            self.later(Duration::ZERO, Event::Left { host, connection });
                        }
                    }
                }
            }
        }
    }

    fn dial(&mut self, host: usize, connection: u64) {
        if self.hosts[host].is_machine_down {
            return;
        }
        let after = self.way();
        let input = if self.hosts[host].life.is_none() {
            Input::NotConnected { failure: Failure::Refused, why: "connection refused".to_owned() }
        } else {
            self.hosts[host].open.push(connection);
            Input::Connected
        };
        self.later(after, Event::ToClient { host, connection, input });
        if self.hosts[host].life.is_some() {
            self.host(host, |life, now, random| life.connected(now, random));
        }
    }

    fn post(&mut self, host: usize, connection: u64, number: Option<u64>, sent: Sent) {
        if !self.hosts[host].open.contains(&connection) {
            return;
        }
        let message = match sent {
            Sent::HeartBeat => Asked::HeartBeat,
            Sent::Stop => Asked::Stop,
            Sent::StopWith { signal, grace_ms } => Asked::StopWith { signal, grace_ms },
            Sent::Allocate => self.requests[host].clone(),
        };
        let reply = self.host(host, |life, now, random| life.asked(number, message, now, random));
        let Some(reply) = reply else { return };
        for _ in 0..self.copies() {
            if self.is_lost() {
                self.blemish(host);
                continue;
            }
            let (after, reply) = (self.way(), reply.clone());
            self.later(after, Event::ToClient { host, connection, input: Input::Answered { number, reply } });
        }
    }

    fn copies(&mut self) -> usize {
        if self.weather.repeated.is_some_and(|repeated| self.random.one_in(repeated)) { 2 } else { 1 }
    }

    fn read(&mut self, host: usize, connection: u64, after: u64) {
        if !self.hosts[host].open.contains(&connection) {
            return;
        }
        let is_there = self.hosts[host].life.as_ref().is_some_and(Life::is_known);
        if !is_there {
            let (way, why) = (self.way(), Some("it is not there".to_owned()));
            return self.later(way, Event::ToClient { host, connection, input: Input::RecordEnded { why } });
        }
        self.hosts[host].reader = Some((connection, after as usize));
        self.send_lines(host);
    }

    fn send_lines(&mut self, host: usize) {
        let Some((connection, mut next)) = self.hosts[host].reader else { return };
        let lines: Vec<_> =
            self.hosts[host].life.iter().flat_map(|life| life.record.iter().skip(next)).cloned().collect();
        next += lines.len();
        self.hosts[host].reader = Some((connection, next));
        let mut is_told = false;
        for line in lines {
            is_told |= matches!(line.message, torchlift_schema::RemoteProcessProcStateMessage::Done(_));
            for _ in 0..self.copies() {
                let (after, line) = (self.way(), line.clone());
                self.later(after, Event::ToClient { host, connection, input: Input::Line(line) });
            }
        }
        if is_told {
            self.hosts[host].reader = None;
            let (life, input) = (self.hosts[host].lives, HostInput::Delivered { key: AllocKey::new("k").unwrap() });
            let after = self.random.millis(20, 40);
            self.later(after, Event::Inner { host, life, input });
        }
    }

    fn close(&mut self, host: usize, connection: u64) {
        let open = &mut self.hosts[host].open;
        let Some(index) = open.iter().position(|open| *open == connection) else { return };
        open.swap_remove(index);
        if self.hosts[host].reader.is_some_and(|(reads, _)| reads == connection) {
            self.hosts[host].reader = None;
        }
        self.host(host, |life, now, random| life.disconnected(now, random));
    }

    fn crash(&mut self, host: usize, crash: Crash) {
        let at = &mut self.hosts[host];
        at.is_harmed = true;
        at.is_machine_down |= crash == Crash::Machine;
        (at.reader, at.next_tick) = (None, None);
        // The guard sees its allocator go: the ranks are gone with it.
        let Some(life) = at.life.take() else { return };
        at.starts += life.starts;
        at.crashed.extend(life.ends());
        for connection in std::mem::take(&mut at.open) {
            if crash == Crash::Process {
                let (after, why) = (self.way(), "the other side closed it".to_owned());
                self.later(after, Event::ToClient { host, connection, input: Input::Closed { why } });
            }
        }
    }

    /// Lets an allocator take something; gives its answer.
    fn host(
        &mut self,
        host: usize,
        step: impl FnOnce(&mut Life, Moment, &mut Random) -> Led,
    ) -> Option<torchlift_schema::control::ControlReply> {
        let at_host = &mut self.hosts[host];
        let Some(life) = &mut at_host.life else { return None };
        let led = step(life, at(self.now), &mut self.random);
        let (number, deadline) = (at_host.lives, life.deadline());
        for (after, input) in led.later {
            self.later(after, Event::Inner { host, life: number, input });
        }
        if led.has_grown {
            self.send_lines(host);
        }
        let deadline = deadline.map(|deadline| self.now + deadline.since(at(self.now)));
        if let Some(deadline) = deadline
            && self.hosts[host].next_tick.is_none_or(|next| deadline < next)
        {
            self.hosts[host].next_tick = Some(deadline);
            self.later(deadline - self.now, Event::HostTick { host, life: number });
        }
        led.reply
    }

    fn client(&mut self, step: impl FnOnce(&mut Client, Moment, &mut Output)) {
        let Some(client) = &mut self.client else { return };
        let was_over = client.is_over();
        let mut output = Output::default();
        step(client, at(self.now), &mut output);
        // As the task does: whatever kept it, deadlines come first.
        client.tick(at(self.now), &mut output);
        assert!(!was_over || output.events.is_empty(), "told of something after the end: {:?}", output.events);
        self.carry_out(output);
    }

    fn carry_out(&mut self, output: Output) {
        for event in output.events {
            self.see(event);
        }
        let of = self.generation * GENERATION;
        for (host, action) in output.actions {
            let way = self.way();
            match action {
                Action::Dial { connection } => {
                    if connection > 1 {
                        self.later(way, Event::Left { host, connection: of + connection - 1 });
                    }
                    self.later(way, Event::Dial { host, connection: of + connection });
                }
                Action::HangUp { connection } => {
                    self.later(way, Event::Left { host, connection: of + connection });
                }
                Action::Read { connection, after } => {
                    self.later(way, Event::Read { host, connection: of + connection, after });
                }
                Action::Post { connection, number, sent } => {
                    for _ in 0..self.copies() {
                        if self.is_lost() {
                            self.blemish(host);
                            continue;
                        }
                        let way = way + self.way();
                        self.later(way, Event::Post { host, connection: of + connection, number, sent });
                    }
                }
            }
        }
        let Some(client) = &self.client else { return };
        if client.is_over() && self.ended_at.is_none() {
            self.ended_at = Some(self.now);
        }
        if let Some(deadline) = client.deadline() {
            let deadline = self.now + deadline.since(at(self.now));
            if self.client_tick.is_none_or(|next| deadline < next) {
                self.client_tick = Some(deadline);
                self.later(deadline - self.now, Event::ClientTick);
            }
        }
    }
}
