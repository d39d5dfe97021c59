//! What a client makes of what its hosts say: the published sequences, and those in which the published client went wrong.

use proptest::prelude::*;
use torchlift_schema::control::{ControlReply, Holder, RecordLine};
use torchlift_schema::state::{ActorId, ActorRef, AllocatedTerms};

use super::*;
use crate::client::link::{Failure, Patience};
use crate::client::split;

const PATIENCE: Patience =
    Patience { interval: Duration::from_secs(5), limit: Duration::from_secs(15), wait: Duration::ZERO };

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

fn spec(dims: &[(&str, usize)]) -> AllocSpec {
    let extent = Extent::of(dims.iter().map(|(label, size)| (*label, *size))).unwrap();
    let hosts: usize = dims[..dims.len() - 1].iter().map(|(_, size)| size).product();
    let views = split::by_innermost(&extent, hosts).unwrap();
    let host = |(index, view)| HostSpec { name: format!("n{index}"), view, launch: None, incarnation: None };
    AllocSpec {
        key: AllocKey::new("k").unwrap(),
        owner: "ada".to_owned(),
        extent,
        hosts: views.into_iter().enumerate().map(host).collect(),
        is_forced: false,
        lease: None,
        context: None,
        patience: PATIENCE,
    }
}

/// A client, what it said to do, and how far each host's record was told.
struct Scene {
    client: Client,
    actions: Vec<(usize, Action)>,
    events: Vec<String>,
    lines: Vec<u64>,
    now: u64,
}

impl Scene {
    fn of(spec: AllocSpec) -> Self {
        let lines = vec![0; spec.hosts.len()];
        let mut scene = Self { client: Client::new(spec, 1), actions: Vec::new(), events: Vec::new(), lines, now: 0 };
        scene.with(|client, now, output| client.begin(now, output));
        scene
    }

    fn with(&mut self, act: impl FnOnce(&mut Client, Moment, &mut Output)) {
        let mut output = Output::default();
        act(&mut self.client, at(self.now), &mut output);
        self.actions.extend(output.actions);
        self.events.extend(output.events.iter().map(shown));
    }

    fn input(&mut self, host: usize, input: Input) {
        let connection = self.connection(host);
        self.with(|client, now, output| client.step(host, connection, input, now, output));
    }

    /// The latest connection that was asked for.
    fn connection(&self, host: usize) -> u64 {
        let mut dials = self.actions.iter().filter_map(|(of, action)| match action {
            Action::Dial { connection } if *of == host => Some(*connection),
            _ => None,
        });
        dials.next_back().unwrap()
    }

    fn answer(&mut self, host: usize, number: Option<u64>, reply: ControlReply) {
        self.input(host, Input::Answered { number, reply });
    }

    /// A host that is connected and took its part.
    fn accepted(&mut self, host: usize) {
        self.input(host, Input::Connected);
        self.answer(host, None, ControlReply::Alive { incarnation: format!("i{host}") });
        let alloc_key = AllocKey::new("k").unwrap();
        self.answer(host, Some(1), ControlReply::Allocating { alloc_key, world_id: world(host) });
    }

    /// The next line of a host's record.
    fn told(&mut self, host: usize, message: Told) {
        self.lines[host] += 1;
        let line = RecordLine::new(self.lines[host], message);
        self.input(host, Input::Line(line));
    }

    fn allocated(&mut self, host: usize, master_port: Option<u16>) {
        let mut terms = AllocatedTerms::new(AllocKey::new("k").unwrap(), format!("i{host}"));
        terms.master_port = master_port;
        let view = self.client.hosts[host].spec.view.clone();
        self.told(host, Told::Allocated { world_id: world(host), view, terms: Some(Box::new(terms)) });
    }

    fn update(&mut self, host: usize, state: ProcState) {
        self.told(host, Told::Update(state));
    }

    fn created(&mut self, host: usize, local: usize) {
        let point = self.client.hosts[host].spec.view.extent().point_of_rank(local).unwrap();
        self.update(host, ProcState::Created { proc_id: proc_id(host, local), point, pid: 7 });
    }

    fn stopped(&mut self, host: usize, local: usize) {
        self.update(host, ProcState::Stopped { proc_id: proc_id(host, local), reason: ProcStopReason::Stopped });
    }

    fn done(&mut self, host: usize) {
        self.told(host, Told::Done(world(host)));
    }

    /// A host whose processes all run.
    fn up(&mut self, host: usize, ranks: usize) {
        self.accepted(host);
        self.allocated(host, None);
        for local in 0..ranks {
            self.created(host, local);
            self.update(host, running(host, local));
        }
    }

    fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn posts(&self, host: usize) -> Vec<(Option<u64>, Sent)> {
        let posts = self.actions.iter().filter_map(|(of, action)| match action {
            Action::Post { number, sent, .. } if *of == host => Some((*number, *sent)),
            _ => None,
        });
        posts.collect()
    }
}

fn world(host: usize) -> WorldId {
    WorldId(format!("w{host}"))
}

fn proc_id(host: usize, local: usize) -> ProcId {
    ProcId::Ranked(world(host), local)
}

fn running(host: usize, local: usize) -> ProcState {
    let proc_id = proc_id(host, local);
    let mesh_agent = ActorRef::new(ActorId::new(proc_id.clone(), "agent", 0));
    ProcState::Running { proc_id, mesh_agent, addr: ChannelAddr::Caller }
}

fn shown(event: &AllocEvent) -> String {
    match event {
        AllocEvent::Allocated { host, .. } => format!("allocated {host}"),
        AllocEvent::HostLost { host, why } => format!("lost {host}: {why}"),
        AllocEvent::State { state, .. } => state.to_string(),
    }
}

#[test]
fn a_process_gets_its_place_in_the_whole() {
    let mut scene = Scene::of(spec(&[("zone", 2), ("host", 2), ("gpu", 4)]));
    scene.accepted(2);
    scene.created(2, 3);
    assert_eq!(scene.seen(), ["w2[3]: created at (zone=1/2,host=0/2,gpu=3/4) with PID 7"]);
}

#[test]
fn a_process_of_a_strided_view_gets_its_place_by_the_view_and_not_by_the_offset() {
    let mut spec = spec(&[("x", 4), ("y", 4)]);
    let every_second =
        View::from(&spec.extent).range("y", torchlift_schema::extent::Range::from(0..4).step(2.try_into().unwrap()));
    spec.hosts = vec![HostSpec { name: "n".to_owned(), view: every_second.unwrap(), launch: None, incarnation: None }];
    let mut scene = Scene::of(spec);
    scene.accepted(0);
    scene.created(0, 3);
    assert_eq!(scene.seen(), ["w0[3]: created at (x=1/4,y=2/4) with PID 7"]);
}

#[test]
fn it_is_not_over_while_another_host_has_not_answered() {
    let mut scene = Scene::of(spec(&[("host", 2), ("gpu", 1)]));
    scene.up(0, 1);
    scene.stopped(0, 0);
    scene.done(0);
    assert!(!scene.client.is_over());
    scene.up(1, 1);
    scene.stopped(1, 0);
    scene.done(1);
    assert!(scene.client.is_over());
}

#[test]
fn a_host_that_is_done_and_then_lost_keeps_nobody_waiting() {
    let mut scene = Scene::of(spec(&[("host", 2), ("gpu", 1)]));
    (0..2).for_each(|host| scene.up(host, 1));
    scene.stopped(0, 0);
    scene.done(0);
    scene.seen();
    scene.input(0, Input::Closed { why: "gone".to_owned() });
    assert!(scene.seen().is_empty(), "it owed nothing any more");
    scene.input(1, Input::Closed { why: "gone".to_owned() });
    scene.input(1, Input::NotConnected { failure: Failure::Refused, why: "refused".to_owned() });
    assert_eq!(scene.seen(), ["lost 1: refused", "w1[0]: stopped: host watchdog failure"]);
    assert!(scene.client.is_over());
}

#[test]
fn a_failure_of_one_host_is_told_with_its_name_and_ends_nothing() {
    let mut scene = Scene::of(spec(&[("host", 2), ("gpu", 1)]));
    (0..2).for_each(|host| scene.up(host, 1));
    scene.seen();
    scene.update(1, ProcState::failed(world(1), "test"));
    assert_eq!(scene.seen(), ["w1: failed: host `n1` failed: test"]);
    assert!(!scene.client.is_over());
}

#[test]
fn a_host_that_never_had_a_process_fails_in_the_published_words() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 1)]));
    scene.input(0, Input::NotConnected { failure: Failure::Passing, why: "no route".to_owned() });
    assert!(scene.seen().is_empty(), "that may pass");
    scene.now = 15_000;
    scene.with(|client, now, output| client.tick(now, output));
    assert_eq!(
        scene.seen(),
        [
            "k: failed: no process has ever been allocated on `n0` before the channel is closed: nothing was heard of it for 15s: no route",
            "lost 0: nothing was heard of it for 15s: no route"
        ]
    );
    assert!(scene.client.is_over());
}

#[test]
fn a_refusal_is_the_end_of_that_host_alone() {
    let mut scene = Scene::of(spec(&[("host", 2), ("gpu", 1)]));
    scene.up(0, 1);
    scene.seen();
    scene.input(1, Input::Connected);
    scene.answer(1, None, ControlReply::Alive { incarnation: "i".to_owned() });
    let holders = vec![Holder::new(AllocKey::new("other").unwrap(), "eve (user 7)", 2)];
    scene.answer(1, Some(1), ControlReply::Busy { holders });
    assert_eq!(scene.seen(), ["k: failed: host `n1`: it is busy: held by `other` of eve (user 7) (2 ranks)"]);
    assert!(!scene.client.is_over());
}

#[test]
fn what_a_host_never_told_the_end_of_is_over_with_it() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 2)]));
    scene.up(0, 2);
    scene.stopped(0, 1);
    scene.seen();
    scene.done(0);
    assert_eq!(scene.seen(), ["w0[0]: stopped: unknown"]);
}

#[test]
fn nothing_is_told_twice_or_out_of_order_whatever_a_host_says() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 1)]));
    scene.accepted(0);
    scene.update(0, running(0, 0));
    scene.stopped(0, 0);
    assert!(scene.seen().is_empty(), "it was never created");
    scene.created(0, 0);
    scene.created(0, 0);
    scene.update(0, running(0, 0));
    scene.update(0, running(0, 0));
    scene.stopped(0, 0);
    scene.stopped(0, 0);
    assert_eq!(scene.seen().len(), 3);
}

#[test]
fn a_host_that_tells_without_end_is_given_up_with_its_processes() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 1)]));
    scene.up(0, 1);
    for _ in 0..MOST_TOLD {
        scene.update(0, ProcState::failed(world(0), "again"));
    }
    let seen = scene.seen();
    assert!(seen.len() <= MOST_TOLD + 2, "{}", seen.len());
    assert_eq!(
        seen[seen.len() - 2..],
        ["lost 0: its allocator told more than 10000 messages a rank", "w0[0]: stopped: host watchdog failure"]
    );
    assert!(scene.client.is_over());
    assert!(scene.actions.contains(&(0, Action::HangUp { connection: 1 })));
}

#[test]
fn a_process_outside_of_its_hosts_part_is_told_of_as_a_failure() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 2)]));
    scene.accepted(0);
    let point = Extent::of([("gpu", 8)]).unwrap().point_of_rank(5).unwrap();
    scene.update(0, ProcState::Created { proc_id: proc_id(0, 5), point, pid: 7 });
    assert_eq!(scene.seen(), ["k: failed: host `n0` told of w0[5], which is not in its part"]);
}

#[test]
fn a_stop_goes_to_every_host_once_and_after_what_was_asked_before() {
    let mut scene = Scene::of(spec(&[("host", 3), ("gpu", 1)]));
    scene.up(0, 1);
    scene.input(1, Input::Connected);
    scene.answer(1, None, ControlReply::Alive { incarnation: "i".to_owned() });
    for _ in 0..2 {
        scene.with(|client, now, output| client.stop(now, output));
    }
    let beat = (None, Sent::HeartBeat);
    assert_eq!(scene.posts(0), [beat, (Some(1), Sent::Allocate), (Some(2), Sent::Stop)]);
    assert_eq!(scene.posts(1), [beat, (Some(1), Sent::Allocate)], "its stop waits for the answer");
    assert_eq!(scene.posts(2), [], "it was never asked for anything");
    let alloc_key = AllocKey::new("k").unwrap();
    scene.answer(1, Some(1), ControlReply::Allocating { alloc_key, world_id: world(1) });
    assert_eq!(scene.posts(1).last(), Some(&(Some(2), Sent::Stop)));
    scene.stopped(0, 0);
    scene.done(0);
    scene.done(1);
    assert!(scene.client.is_over());
}

#[test]
fn the_others_are_asked_once_the_first_host_holds_the_port() {
    let mut spec = spec(&[("host", 3), ("gpu", 1)]);
    let text = |text: &str| OsText::new(text).unwrap();
    for (index, host) in spec.hosts.iter_mut().enumerate() {
        let mut launch = LaunchSpec::new("run", text("/bin/true"), text("/"), 1);
        launch.is_port_wanted = index == 0;
        host.launch = Some(launch);
    }
    let mut scene = Scene::of(spec.clone());
    scene.accepted(0);
    assert!(scene.actions.iter().all(|(host, _)| *host == 0));
    scene.allocated(0, Some(4711));
    let asked: Vec<usize> = scene.actions.iter().filter(|(host, _)| *host > 0).map(|(host, _)| *host).collect();
    assert_eq!(asked, [1, 2]);
    let Asked::Allocate { terms: Some(terms), hosts, .. } = scene.client.message(2, Sent::Allocate) else { panic!() };
    assert_eq!(terms.launch.unwrap().env.get(&text("MASTER_PORT")), Some(&text("4711")));
    assert_eq!(hosts, ["n0", "n1", "n2"]);

    let mut scene = Scene::of(spec.clone());
    scene.input(0, Input::NotConnected { failure: Failure::Refused, why: "refused".to_owned() });
    assert!(scene.client.is_over(), "nobody would ever tell the port");

    let mut scene = Scene::of(spec);
    scene.accepted(0);
    scene.allocated(0, None);
    scene.done(0);
    assert_eq!(scene.seen()[1], "k: failed: host `n0` holds no port for rank 0, though one was asked for");
    assert!(scene.client.is_over());
}

#[test]
fn a_heartbeat_goes_out_every_interval_and_its_answer_keeps_the_host() {
    let mut scene = Scene::of(spec(&[("host", 1), ("gpu", 1)]));
    scene.up(0, 1);
    for beat in 1..20 {
        scene.now = beat * 5000;
        scene.with(|client, now, output| client.tick(now, output));
        scene.answer(0, None, ControlReply::Alive { incarnation: "i0".to_owned() });
    }
    assert_eq!(scene.posts(0).iter().filter(|(_, sent)| *sent == Sent::HeartBeat).count(), 20);
    scene.seen();
    scene.now += 15_000;
    scene.with(|client, now, output| client.tick(now, output));
    assert_eq!(scene.seen().len(), 2, "silence ends it");
}

proptest! {
    // Hosts that say anything in any order, on connections that come and go.
    #[test]
    fn every_process_is_stopped_once_and_it_always_ends(
        steps in prop::collection::vec((0..3_usize, 0..12_u8, 0..4_usize, 0..4000_u64), 0..120)
    ) {
        let mut scene = Scene::of(spec(&[("host", 3), ("gpu", 3)]));
        for (host, what, local, pause) in steps {
            scene.now += pause;
            match what {
                0 => scene.input(host, Input::Connected),
                1 => scene.answer(host, None, ControlReply::Alive { incarnation: "i".to_owned() }),
                2 => {
                    let alloc_key = AllocKey::new("k").unwrap();
                    scene.answer(host, Some(1), ControlReply::Allocating { alloc_key, world_id: world(host) });
                }
                3 => scene.input(host, Input::Closed { why: "closed".to_owned() }),
                4 => scene.answer(host, Some(1), ControlReply::Gap { expected: 1 }),
                5 => scene.update(host, running(host, local)),
                6 => scene.stopped(host, local),
                7 if local == 0 => scene.done(host),
                8 if local == 0 => scene.with(|client, now, output| client.stop(now, output)),
                9 => scene.input(host, Input::RecordEnded { why: None }),
                10 => scene.allocated(host, None),
                _ => scene.created(host, local.min(2)),
            }
        }
        // Nobody says anything any more.
        for _ in 0..1000 {
            let Some(deadline) = scene.client.deadline() else { break };
            scene.now = scene.now.max(deadline.since(at(0)).as_millis() as u64 + 1);
            scene.with(|client, now, output| client.tick(now, output));
        }
        prop_assert!(scene.client.is_over());
        let count = |what: &str, id: &str| {
            scene.events.iter().filter(|event| event.starts_with(&format!("{id}: {what}"))).count()
        };
        for host in 0..3 {
            for local in 0..3 {
                let id = proc_id(host, local).to_string();
                prop_assert_eq!(count("created", &id), count("stopped", &id));
                prop_assert!(count("running", &id) <= count("created", &id));
            }
        }
    }
}
