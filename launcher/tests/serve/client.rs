//! Our own client against real allocators, over real sockets.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use torchlift::client::{AllocEvent, AllocSpec, HostSpec, Patience, RemoteProcessAlloc, split};
use torchlift::keys::{Credentials, Wanted};
use torchlift::reach::{Agent, Reach};
use torchlift_schema::launch::{LaunchSpec, OsText};
use torchlift_schema::state::{AllocKey, ProcState};
use torchlift_schema::{ChannelAddr, Extent};

use crate::allocator::{Allocator, LIMIT, PATIENT, allocate, is_any_process, setup, wait_until};
use crate::tls::{Keys, serve};

const SECOND: Duration = Duration::from_secs(1);

/// Patience that no test's slowness exceeds.
const LONG: Patience = Patience { interval: SECOND, limit: Duration::from_secs(120), wait: Duration::ZERO };

fn extent(hosts: usize, gpus: usize) -> Extent {
    Extent::of([("host", hosts), ("gpu", gpus)]).unwrap()
}

/// What is asked of so many hosts; without a program it is the allocators' own.
fn spec(hosts: usize, gpus: usize, script: Option<&str>) -> AllocSpec {
    let extent = extent(hosts, gpus);
    let launch = script.map(|script| {
        let text = |text: &str| OsText::new(text).unwrap();
        let mut launch = LaunchSpec::new("run", text("/bin/sh"), text("/"), 30_000);
        launch.args = vec![text("-c"), text(script)];
        launch
    });
    let views = split::by_innermost(&extent, hosts).unwrap();
    let host =
        |(index, view)| HostSpec { name: format!("node-{index}"), view, launch: launch.clone(), incarnation: None };
    AllocSpec {
        key: AllocKey::new("k").unwrap(),
        owner: "tester".to_owned(),
        hosts: views.into_iter().enumerate().map(host).collect(),
        extent,
        is_forced: false,
        lease: None,
        context: None,
        patience: LONG,
    }
}

fn at(addr: &str) -> Reach {
    Reach::Agent(Agent::at(addr.parse().unwrap()))
}

fn ways(allocators: &[&Allocator]) -> Vec<Reach> {
    allocators.iter().map(|allocator| at(&allocator.serving[0])).collect()
}

enum Order {
    Listen,
    Stop,
}

/// A client in a thread of its own, so that a test may wait for something else.
struct Client {
    events: Receiver<Option<String>>,
    /// Dropping it drops the client.
    orders: UnboundedSender<Order>,
}

impl Client {
    fn start(spec: AllocSpec, ways: Vec<Reach>) -> Self {
        let client = Self::start_deaf(spec, ways);
        client.orders.send(Order::Listen).unwrap();
        client
    }

    /// One that asks for no event until it is told to.
    fn start_deaf(spec: AllocSpec, ways: Vec<Reach>) -> Self {
        let (sender, events) = mpsc::channel();
        let (orders, mut asked) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let (mut alloc, mut is_listening, mut ends) = (RemoteProcessAlloc::start(spec, ways), false, 0);
                loop {
                    tokio::select! {
                        order = asked.recv() => match order {
                            Some(Order::Listen) => is_listening = true,
                            Some(Order::Stop) => alloc.stop(),
                            None => return,
                        },
                        // The end is asked for twice: it has to stay the end.
                        event = alloc.next(), if is_listening && ends < 2 => {
                            ends += usize::from(event.is_none());
                            let _ = sender.send(event.map(|event| short(&event)));
                        }
                    }
                }
            });
        });
        Self { events, orders }
    }

    fn stop(&self) {
        self.orders.send(Order::Stop).unwrap();
    }

    fn next(&self) -> Option<String> {
        match self.events.recv_timeout(LIMIT) {
            Ok(event) => event,
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    /// This many events. Those of one host are in their order; hosts have none among each other, so they are sorted.
    fn take(&self, count: usize) -> Vec<String> {
        let mut all: Vec<String> = (0..count).map(|_| self.next().unwrap()).collect();
        all.sort();
        all
    }

    /// Everything to the end, which comes and stays.
    fn rest(&self) -> Vec<String> {
        let mut all: Vec<String> = std::iter::from_fn(|| self.next()).collect();
        assert_eq!(self.next(), None, "after the end");
        all.sort();
        all
    }

    /// Whether it told of nothing yet that was not asked for.
    fn is_silent(&self) -> bool {
        matches!(self.events.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

fn short(event: &AllocEvent) -> String {
    let rank = |rank: &Option<usize>| rank.map_or("-".to_owned(), |rank| rank.to_string());
    match event {
        AllocEvent::Allocated { host, .. } => format!("allocated {host}"),
        AllocEvent::HostLost { host, why } => format!("lost {host}: {why}"),
        AllocEvent::State { rank: of, state, .. } => match state {
            ProcState::Created { point, .. } => format!("created {} at {point}", rank(of)),
            ProcState::Running { .. } => format!("running {}", rank(of)),
            ProcState::Stopped { reason, .. } => format!("stopped {}: {reason}", rank(of)),
            ProcState::Failed { description, .. } => format!("failed: {description}"),
        },
        other => format!("{other:?}"),
    }
}

/// All that two hosts with two ranks each tell until these run.
const UP: [&str; 10] = [
    "allocated 0",
    "allocated 1",
    "created 0 at host=0/2,gpu=0/2",
    "created 1 at host=0/2,gpu=1/2",
    "created 2 at host=1/2,gpu=0/2",
    "created 3 at host=1/2,gpu=1/2",
    "running 0",
    "running 1",
    "running 2",
    "running 3",
];

#[test]
fn two_hosts_run_one_allocation_and_it_ends_once() {
    let (one, two) = (setup().program(PATIENT).start(), setup().program(PATIENT).start());
    let client = Client::start(spec(2, 2, None), ways(&[&one, &two]));
    assert_eq!(client.take(10), UP);
    one.wait_until_ready("k", 2);
    two.wait_until_ready("k", 2);
    assert!(client.is_silent());
    client.stop();
    assert_eq!(client.rest(), ["stopped 0: stopped", "stopped 1: stopped", "stopped 2: stopped", "stopped 3: stopped"]);
    assert!(one.held().is_empty() && two.held().is_empty());
}

#[test]
fn a_lost_host_costs_its_own_ranks_and_the_last_one_is_the_end() {
    let (mut one, mut two) = (setup().program(PATIENT).start(), setup().program(PATIENT).start());
    let client = Client::start(spec(2, 2, None), ways(&[&one, &two]));
    client.take(10);
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    let lost = client.take(3);
    assert!(lost[0].starts_with("lost 0: "), "{lost:?}");
    assert_eq!(lost[1..], ["stopped 0: host watchdog failure", "stopped 1: host watchdog failure"]);
    assert_eq!(two.held(), ["k"], "the other one is not disturbed");
    assert!(client.is_silent());
    two.child.kill().unwrap();
    let lost = client.rest();
    assert_eq!(lost[1..], ["stopped 2: host watchdog failure", "stopped 3: host watchdog failure"]);
}

#[test]
fn a_host_without_the_program_fails_once_and_the_other_goes_on() {
    let (one, two) = (setup().program(PATIENT).start(), setup().program(PATIENT).start());
    fs_err::remove_file(two.folder.join("program")).unwrap();
    let client = Client::start(spec(2, 2, None), ways(&[&one, &two]));
    let events = client.take(6);
    let (failed, others): (Vec<&String>, Vec<&String>) = events.iter().partition(|event| event.starts_with("failed"));
    assert_eq!(others, [UP[0], UP[2], UP[3], UP[6], UP[7]]);
    assert!(failed[0].starts_with("failed: host `node-1` failed: `") && failed[0].contains("/program"), "{failed:?}");
    one.wait_until_ready("k", 2);
    assert!(client.is_silent());
    client.stop();
    assert_eq!(client.rest(), ["stopped 0: stopped", "stopped 1: stopped"]);
}

#[test]
fn an_address_that_nobody_serves_fails_at_once_and_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::start(spec(1, 1, None), vec![at(&format!("unix:{}", folder.path().join("s").display()))]);
    let events = client.rest();
    assert_eq!(events.len(), 2, "{events:?}");
    let expected = "failed: no process has ever been allocated on `node-0` before the channel is closed: ";
    assert!(events[0].starts_with(expected), "{events:?}");
}

#[test]
fn an_allocator_that_comes_up_later_is_waited_for_as_long_as_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let patience = Patience { wait: LIMIT, ..LONG };
    let client = Client::start(
        AllocSpec { patience, ..spec(1, 1, Some("exit 0")) },
        vec![at(&format!("unix:{}", socket.display()))],
    );
    let late = setup().args(&["--listen", &format!("unix:{}", socket.display())]);
    let _allocator = late.spawn(vec!["--unix-socket".to_owned(), socket.to_str().unwrap().to_owned()], 1);
    assert_eq!(client.rest(), ["allocated 0", "created 0 at host=0/1,gpu=0/1", "running 0", "stopped 0: stopped"]);
}

#[test]
fn who_holds_a_busy_allocator_is_told() {
    let allocator = setup().program("exec sleep 600").start();
    let mut held = allocator.follow_after("other", &allocate("other", 3, json!({})), "other");
    held.take(7);
    let client = Client::start(spec(1, 1, None), ways(&[&allocator]));
    let events = client.rest();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    let expected = "failed: host `node-0`: it is busy: held by `other` of tester (user ";
    assert!(event.starts_with(expected) && event.ends_with(") (3 ranks)"), "{event}");
    assert_eq!(allocator.held(), ["other"]);
}

#[test]
fn hosts_are_beaten_to_though_nobody_asks_for_events() {
    let allocator = setup().args(&["--client-timeout", "2s"]).start();
    let patience = Patience { interval: SECOND / 10, ..LONG };
    // Longer than a client may be silent.
    let client = Client::start_deaf(AllocSpec { patience, ..spec(1, 1, Some("sleep 5; exit 7")) }, ways(&[&allocator]));
    wait_until("it runs", || allocator.held() == ["k"]);
    wait_until("it is over", || allocator.held().is_empty());
    client.orders.send(Order::Listen).unwrap();
    let events = client.rest();
    assert_eq!(events[3], "stopped 0: exited with code 7", "{events:?}");
}

#[test]
fn an_allocator_that_stops_answering_is_lost_in_the_time_that_was_said() {
    let allocator = setup().program(PATIENT).start();
    let patience = Patience { interval: SECOND / 2, limit: SECOND * 3, wait: Duration::ZERO };
    let client = Client::start(AllocSpec { patience, ..spec(1, 2, None) }, ways(&[&allocator]));
    client.take(5);
    allocator.signal(Signal::SIGSTOP);
    let events = client.rest();
    assert_eq!(
        events,
        [
            "lost 0: nothing was heard of it for 3s",
            "stopped 0: host watchdog failure",
            "stopped 1: host watchdog failure"
        ]
    );
    allocator.signal(Signal::SIGCONT);
    wait_until("its ranks are gone too", || allocator.held().is_empty());
}

#[test]
fn a_restarted_allocator_is_never_taken_for_the_one_before() {
    let mut first = setup().program(PATIENT).start();
    let socket = first.folder.join("s");
    let relay = Relay::to(&socket);
    let client = Client::start(AllocSpec { lease: Some(LIMIT), ..spec(1, 1, None) }, vec![at(&relay.addr)]);
    client.take(3);
    // It is there again before anybody can be refused.
    relay.hold();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = setup().program(PATIENT).args(&["--listen", &format!("unix:{}", socket.display())]);
    let second = second.spawn(vec!["--unix-socket".to_owned(), socket.to_str().unwrap().to_owned()], 1);
    relay.go_on();
    let events = client.rest();
    assert_eq!(
        events,
        ["lost 0: its allocator was restarted, and what it held is gone", "stopped 0: host watchdog failure"]
    );
    assert!(second.held().is_empty(), "and nothing was started again");
}

#[test]
fn a_record_is_taken_up_where_it_was_left_when_a_connection_breaks_under_a_lease() {
    let allocator = setup().program(PATIENT).start();
    let relay = Relay::to(&allocator.folder.join("s"));
    let client = Client::start(AllocSpec { lease: Some(LIMIT), ..spec(1, 2, None) }, vec![at(&relay.addr)]);
    client.take(5);
    allocator.wait_until_ready("k", 2);
    for times in 1..4 {
        relay.cut();
        wait_until("it is dialled again", || relay.count() == times + 1);
        assert_eq!(allocator.held(), ["k"]);
    }
    client.stop();
    assert_eq!(client.rest(), ["stopped 0: stopped", "stopped 1: stopped"]);
}

#[test]
fn a_restarted_client_takes_up_what_it_held_under_a_lease() {
    let (one, two) = (setup().start(), setup().start());
    let script = "trap 'exit 0' TERM; echo ready; sleep 600 & wait";
    let mut spec = AllocSpec { lease: Some(LIMIT), ..spec(2, 1, Some(script)) };
    // What the second host was asked for has what the first one held in it, and has to be asked for in the same way again.
    spec.hosts[0].launch.as_mut().unwrap().is_port_wanted = true;
    let client = Client::start(spec.clone(), ways(&[&one, &two]));
    let before = client.take(6);
    drop(client);
    let client = Client::start(spec, ways(&[&one, &two]));
    assert_eq!(client.take(6), before, "the whole record");
    assert_eq!((one.held(), two.held()), (vec!["k".to_owned()], vec!["k".to_owned()]), "and nothing is started anew");
    one.wait_until_ready("k", 1);
    two.wait_until_ready("k", 1);
    client.stop();
    assert_eq!(client.rest(), ["stopped 0: stopped", "stopped 1: stopped"]);
}

#[test]
fn ranks_end_with_their_client() {
    let allocator = setup().start();
    let client =
        Client::start(spec(1, 2, Some("trap '' TERM; sleep 600.0707 & sleep 600.0707; :")), ways(&[&allocator]));
    client.take(5);
    wait_until("they sleep", || is_any_process("600.0707"));
    drop(client);
    wait_until("nothing of it is held", || allocator.held().is_empty());
    wait_until("nothing is left", || !is_any_process("600.0707"));
}

#[test]
fn a_client_shows_the_token_over_tcp_and_is_refused_without() {
    let setup = setup();
    let file = setup.folder.join("token");
    let allocator = setup.args(&["--listen", "tcp:127.0.0.1:0", "--token-file", "token"]).spawn(Vec::new(), 1);
    let addr: ChannelAddr = allocator.serving[0].parse().unwrap();
    let token = fs_err::read_to_string(&file).unwrap();
    let way = Reach::Agent(Agent::at(addr.clone()).with_token(token.trim_end()));
    let client = Client::start(spec(1, 1, Some("exit 0")), vec![way]);
    assert_eq!(client.rest().last().unwrap(), "stopped 0: stopped");
    let refused = Client::start(spec(1, 1, Some("exit 0")), vec![Reach::Agent(Agent::at(addr))]).rest();
    assert!(refused[0].contains("shows no valid token"), "{refused:?}");
}

#[test]
fn a_client_shows_its_certificate_over_tls_and_is_refused_with_anothers() {
    let (keys, others) = (Keys::new(), Keys::new());
    let (allocator, _) = serve(setup(), &keys);
    let way = |folder: &Path| {
        let identity = Credentials::open(folder, Wanted::client(None)).unwrap();
        vec![Reach::Agent(Agent::at(allocator.serving[0].parse().unwrap()).with_identity(Arc::new(identity)))]
    };
    let client = Client::start(spec(1, 1, Some("exit 0")), way(&keys.client("me")));
    assert_eq!(client.rest().last().unwrap(), "stopped 0: stopped");
    let refused = Client::start(spec(1, 1, Some("exit 0")), way(&others.client("me"))).rest();
    assert!(refused[0].contains("authority that is not trusted"), "{refused:?}");
    let without = vec![at(&allocator.serving[0])];
    let refused = Client::start(spec(1, 1, Some("exit 0")), without).rest();
    assert!(refused[0].contains("no keys to show"), "{refused:?}");
    let carried = tempfile::tempdir().unwrap();
    let copy = std::process::Command::new("cp").arg("-a").arg(keys.client("me")).arg(carried.path()).status();
    assert!(copy.unwrap().success());
    keys.run(&["revoke", "--client", "me"]);
    let refused = Client::start(spec(1, 1, Some("exit 0")), way(&carried.path().join("me"))).rest();
    assert!(refused[0].contains("revoked"), "{refused:?}");
}

#[test]
fn the_first_host_holds_the_port_that_the_others_are_told() {
    let (one, two) = (setup().start(), setup().start());
    let mut spec = spec(2, 1, Some("echo port=$MASTER_PORT"));
    for host in &mut spec.hosts {
        host.launch.as_mut().unwrap().is_port_wanted = host.name == "node-0";
    }
    let client = Client::start(spec, ways(&[&one, &two]));
    assert_eq!(client.next().unwrap(), "allocated 0", "and the other one is asked for nothing before");
    client.rest();
    let port = |allocator: &Allocator| allocator.get("/v1/allocations/k/output/0/stdout?follow=true").1;
    let Value::String(port_of_one) = port(&one) else { panic!("a text") };
    let number: u16 = port_of_one.trim_end().strip_prefix("port=").unwrap().parse().unwrap();
    assert_ne!(number, 0);
    assert_eq!(port(&two), json!(port_of_one));
}

#[test]
fn a_stop_before_anything_runs_starts_nothing_and_is_the_end() {
    let folder = tempfile::tempdir().unwrap();
    // It takes connections and never says a word.
    let _mute = UnixListener::bind(folder.path().join("s")).unwrap();
    let client = Client::start(spec(1, 1, None), vec![at(&format!("unix:{}", folder.path().join("s").display()))]);
    client.stop();
    assert_eq!(client.rest(), [""; 0]);
}

/// Passes connections on to an allocator's socket, and breaks them when it is told to.
struct Relay {
    _folder: tempfile::TempDir,
    addr: String,
    state: Arc<Mutex<RelayState>>,
}

#[derive(Default)]
struct RelayState {
    streams: Vec<UnixStream>,
    is_held: bool,
    count: usize,
}

impl Relay {
    fn to(socket: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r");
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(Mutex::new(RelayState::default()));
        let (socket, shared) = (socket.to_owned(), Arc::clone(&state));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                wait_until("the relay goes on", || !shared.lock().unwrap().is_held);
                let Ok(to) = UnixStream::connect(&socket) else { continue };
                for (mut from, mut to) in [(stream.try_clone(), to.try_clone()), (to.try_clone(), stream.try_clone())]
                    .map(|(from, to)| (from.unwrap(), to.unwrap()))
                {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
                let mut state = shared.lock().unwrap();
                state.streams.extend([stream, to]);
                state.count += 1;
            }
        });
        Self { addr: format!("unix:{}", path.display()), _folder: folder, state }
    }

    /// Breaks what is connected.
    fn cut(&self) {
        for stream in self.state.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Breaks what is connected, and lets new connections wait.
    fn hold(&self) {
        self.state.lock().unwrap().is_held = true;
        self.cut();
    }

    fn go_on(&self) {
        self.state.lock().unwrap().is_held = false;
    }

    /// Connections that were passed on so far.
    fn count(&self) -> usize {
        self.state.lock().unwrap().count
    }
}
