//! Messages in bincode: the published layout, byte by byte, and that every message comes back.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use torchlift_schema::ChannelAddr;
use torchlift_schema::control::{ClientContext, RemoteProcessAllocatorMessage, Terms};
use torchlift_schema::extent::{Extent, Slice, View};
use torchlift_schema::launch::{LaunchSpec, OsText};
use torchlift_schema::state::{
    ActorId, ActorRef, AllocKey, AllocatedTerms, NotStarted, ProcId, ProcState, ProcStopReason,
    RemoteProcessProcStateMessage, StartStep, WorldId,
};

/// Little-endian and of fixed width, as the publisher writes it.
fn bytes(value: &impl Serialize) -> Vec<u8> {
    bincode::serialize(value).unwrap()
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    assert_eq!(&bincode::deserialize::<T>(&bytes(value)).unwrap(), value);
    assert_eq!(&serde_json::from_slice::<T>(&serde_json::to_vec(value).unwrap()).unwrap(), value);
}

/// Pieces of a layout, one behind the other.
fn laid_out(parts: &[&Vec<u8>]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

fn number(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn index(index: u32) -> Vec<u8> {
    index.to_le_bytes().to_vec()
}

fn text(text: &str) -> Vec<u8> {
    [number(text.len() as u64), text.as_bytes().to_vec()].concat()
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

#[test]
fn messages_without_content_are_their_index() {
    assert_eq!(bytes(&RemoteProcessAllocatorMessage::Stop), [1, 0, 0, 0]);
    assert_eq!(bytes(&RemoteProcessAllocatorMessage::HeartBeat), [2, 0, 0, 0]);
    let kill = RemoteProcessAllocatorMessage::StopWith { signal: None, grace_ms: Some(0) };
    assert_eq!(bytes(&kill), [3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes(&RemoteProcessProcStateMessage::HeartBeat), [3, 0, 0, 0]);
}

#[test]
fn allocate_has_the_published_layout_and_one_byte_for_our_terms() {
    let view = View::new(vec!["gpu".to_owned()], Slice::new(2, vec![2], vec![1]).unwrap()).unwrap();
    let message = RemoteProcessAllocatorMessage::Allocate {
        view,
        bootstrap_addr: "unix:@boot".parse().unwrap(),
        hosts: vec!["a".to_owned(), "b".to_owned()],
        client_context: Some(ClientContext { trace_id: "t".to_owned() }),
        terms: None,
    };
    let published = laid_out(&[
        &index(0),
        // View: labels, then offset, sizes, strides.
        &number(1),
        &text("gpu"),
        &number(2),
        &number(1),
        &number(2),
        &number(1),
        &number(1),
        // ChannelAddr::Unix is the fifth.
        &index(4),
        &text("@boot"),
        &number(2),
        &text("a"),
        &text("b"),
        &raw(&[1]),
        &text("t"),
    ]);
    let ours = bytes(&message);
    assert_eq!(ours, [published, vec![0]].concat());
    comes_back(&message);
}

#[test]
fn states_have_the_published_layout() {
    let world = WorldId::from("w");
    let extent = Extent::of([("x", 2)]).unwrap();
    let created = ProcState::Created {
        proc_id: ProcId::Ranked(world.clone(), 1),
        point: extent.point_of_rank(1).unwrap(),
        pid: 7,
    };
    let point = laid_out(&[&number(1), &number(1), &number(1), &text("x"), &number(1), &number(2)]);
    let wanted = [laid_out(&[&index(1), &index(0), &index(0), &text("w"), &number(1)]), point, laid_out(&[&index(7)])];
    assert_eq!(bytes(&RemoteProcessProcStateMessage::Update(created)), wanted.concat());
    assert_eq!(bytes(&RemoteProcessProcStateMessage::Done(world)), laid_out(&[&index(2), &text("w")]));
    let reasons = [
        (ProcStopReason::Stopped, laid_out(&[&index(0)])),
        (ProcStopReason::Exited(3, "e".to_owned()), laid_out(&[&index(1), &index(3), &text("e")])),
        (ProcStopReason::Killed(9, true), laid_out(&[&index(2), &index(9), &raw(&[1])])),
        (ProcStopReason::Watchdog, laid_out(&[&index(3)])),
        (ProcStopReason::HostWatchdog, laid_out(&[&index(4)])),
        (ProcStopReason::Unknown, laid_out(&[&index(5)])),
    ];
    for (reason, wanted) in reasons {
        assert_eq!(bytes(&reason), wanted, "{reason}");
    }
}

#[test]
fn addresses_have_the_published_layout_and_ours_follow() {
    let addr = |text: &str| text.parse::<ChannelAddr>().unwrap();
    assert_eq!(bytes(&addr("tcp:1.2.3.4:258")), laid_out(&[&index(0), &index(0), &raw(&[1, 2, 3, 4]), &raw(&[2, 1])]));
    let six = laid_out(&[&index(0), &index(1), &raw(&[0; 15]), &raw(&[1]), &raw(&[2, 1])]);
    assert_eq!(bytes(&addr("tcp:[::1]:258")), six);
    assert_eq!(bytes(&addr("metatls:h:258")), laid_out(&[&index(1), &text("h"), &raw(&[2, 1])]));
    assert_eq!(bytes(&addr("local:5")), laid_out(&[&index(2), &number(5)]));
    assert_eq!(bytes(&addr("unix:/a")), laid_out(&[&index(4), &text("/a")]));
    assert_eq!(bytes(&addr("tls:h:258")), laid_out(&[&index(5), &text("h"), &raw(&[2, 1])]));
    assert_eq!(bytes(&addr("caller:")), laid_out(&[&index(6)]));
    let error = bincode::deserialize::<ChannelAddr>(&laid_out(&[&index(3)])).unwrap_err();
    assert!(error.to_string().contains("no such channel type: sim"), "{error}");
}

#[test]
fn what_is_broken_in_binary_is_refused_too() {
    // A view that leads to one rank twice, and a point out of bounds.
    let overlap = laid_out(&[&number(1), &text("x"), &number(0), &number(1), &number(2), &number(1), &number(0)]);
    assert!(bincode::deserialize::<View>(&overlap).unwrap_err().to_string().contains("one rank twice"));
    let outside = laid_out(&[&number(1), &number(2), &number(1), &text("x"), &number(1), &number(2)]);
    let error = bincode::deserialize::<torchlift_schema::Point>(&outside).unwrap_err();
    assert!(error.to_string().contains("no coordinate 2"), "{error}");
    // A length that no memory has.
    let huge = laid_out(&[&number(u64::MAX), &raw(b"x")]);
    assert!(bincode::deserialize::<Extent>(&huge).is_err());
    assert!(bincode::deserialize::<RemoteProcessAllocatorMessage>(&[9, 0, 0, 0]).is_err());
}

fn any_text() -> impl Strategy<Value = String> {
    "[a-zü \"\\\\\n]{1,8}"
}

fn any_os_text() -> impl Strategy<Value = OsText> {
    prop::collection::vec(1_u8.., 0..12).prop_map(|bytes| {
        use std::os::unix::ffi::OsStringExt as _;
        OsText::new(std::ffi::OsString::from_vec(bytes)).unwrap()
    })
}

fn any_view() -> impl Strategy<Value = View> {
    (1_usize..4, 1_usize..4, 0_usize..9).prop_map(|(x, y, offset)| {
        View::new(vec!["x".to_owned(), "y".to_owned()], Slice::new(offset, vec![x, y], vec![y * 2, 2]).unwrap())
            .unwrap()
    })
}

fn any_addr() -> impl Strategy<Value = ChannelAddr> {
    prop_oneof![
        // Without the scope of an IPv6 address, which no binary layout has.
        any::<(std::net::IpAddr, u16)>().prop_map(|at| ChannelAddr::Tcp(at.into())),
        any::<u64>().prop_map(ChannelAddr::Local),
        "[a-z]{1,5}".prop_map(|host| format!("tls:{host}:1").parse().unwrap()),
        "[a-z!:]{1,5}".prop_map(|path| format!("unix:/{path}").parse().unwrap()),
        Just(ChannelAddr::Caller),
    ]
}

fn any_env() -> impl Strategy<Value = std::collections::BTreeMap<OsText, OsText>> {
    prop::collection::btree_map(any_os_text(), any_os_text(), 0..3)
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let launch =
        (any_text(), any_os_text(), prop::collection::vec(any_os_text(), 0..3), any_env(), any_env(), any::<bool>());
    let launch = launch.prop_map(|(run, program, args, env, rank_env, is_port_wanted)| {
        let mut launch = LaunchSpec::new(run, program.clone(), program, 30_000);
        launch.args = args;
        launch.env = env;
        launch.cards = vec![launch.run_id.clone()];
        launch.rank_env = vec![rank_env];
        launch.is_port_wanted = is_port_wanted;
        launch
    });
    (any_text(), any::<bool>(), prop::option::of(0..1_u64 << 53), prop::option::of(launch)).prop_map(
        |(owner, force, lease_ms, launch)| {
            let mut terms = Terms::new(AllocKey::new("key-1").unwrap(), owner);
            (terms.force, terms.lease_ms, terms.launch) = (force, lease_ms, launch);
            terms
        },
    )
}

fn any_request() -> impl Strategy<Value = RemoteProcessAllocatorMessage> {
    let context = prop::option::of(any_text().prop_map(|trace_id| ClientContext { trace_id }));
    let hosts = prop::collection::vec(any_text(), 0..3);
    let allocate = (any_view(), any_addr(), hosts, context, prop::option::of(any_terms().prop_map(Box::new)));
    prop_oneof![
        allocate.prop_map(|(view, bootstrap_addr, hosts, client_context, terms)| {
            RemoteProcessAllocatorMessage::Allocate { view, bootstrap_addr, hosts, client_context, terms }
        }),
        Just(RemoteProcessAllocatorMessage::Stop),
        Just(RemoteProcessAllocatorMessage::HeartBeat),
        (any::<Option<i32>>(), any::<Option<u64>>())
            .prop_map(|(signal, grace_ms)| RemoteProcessAllocatorMessage::StopWith { signal, grace_ms }),
    ]
}

fn any_not_started() -> impl Strategy<Value = NotStarted> {
    let step = prop_oneof![Just(StartStep::Fork), Just(StartStep::Folder), Just(StartStep::Program)];
    (0_usize..9, step, any::<i32>()).prop_map(|(rank, step, errno)| NotStarted { rank, step, errno })
}

fn any_state() -> impl Strategy<Value = RemoteProcessProcStateMessage> {
    let world = any_text().prop_map(WorldId).boxed();
    let proc_id = prop_oneof![
        (world.clone(), 0_usize..9).prop_map(|(world, rank)| ProcId::Ranked(world, rank)),
        (any_addr(), any_text()).prop_map(|(addr, name)| ProcId::Direct(addr, name)),
    ];
    let reason = prop_oneof![
        Just(ProcStopReason::Stopped),
        (any::<i32>(), any_text()).prop_map(|(code, stderr)| ProcStopReason::Exited(code, stderr)),
        (any::<i32>(), any::<bool>()).prop_map(|(signal, core)| ProcStopReason::Killed(signal, core)),
        Just(ProcStopReason::Watchdog),
        Just(ProcStopReason::HostWatchdog),
        Just(ProcStopReason::Unknown),
    ];
    let state = prop_oneof![
        (proc_id.clone(), any_view(), any::<u32>()).prop_map(|(proc_id, view, pid)| ProcState::Created {
            proc_id,
            point: view.extent().point_of_rank(0).unwrap(),
            pid
        }),
        (proc_id.clone(), any_text(), any_addr()).prop_map(|(proc_id, name, addr)| ProcState::Running {
            mesh_agent: ActorRef::new(ActorId::new(proc_id.clone(), name, 0)),
            proc_id,
            addr
        }),
        (proc_id, reason).prop_map(|(proc_id, reason)| ProcState::Stopped { proc_id, reason }),
        (world.clone(), any_text(), prop::option::of(any_not_started())).prop_map(
            |(world_id, description, not_started)| { ProcState::Failed { world_id, description, not_started } }
        ),
    ];
    let terms = prop::option::of((any_text(), prop::option::of(1_u16..)).prop_map(|(incarnation, port)| {
        let mut terms = AllocatedTerms::new(AllocKey::new("key-1").unwrap(), incarnation);
        terms.master_port = port;
        Box::new(terms)
    }));
    prop_oneof![
        (world.clone(), any_view(), terms)
            .prop_map(|(world_id, view, terms)| RemoteProcessProcStateMessage::Allocated { world_id, view, terms }),
        state.prop_map(RemoteProcessProcStateMessage::Update),
        world.prop_map(RemoteProcessProcStateMessage::Done),
        Just(RemoteProcessProcStateMessage::HeartBeat),
    ]
}

proptest! {
    #[test]
    fn every_request_comes_back_from_bincode_and_json(message in any_request()) {
        comes_back(&message);
    }

    #[test]
    fn every_state_comes_back_from_bincode_and_json(message in any_state()) {
        comes_back(&message);
    }

    #[test]
    fn no_bytes_make_a_binary_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), index in 0_u32..4) {
        let bytes = [&index.to_le_bytes()[..], &bytes].concat();
        let _ = bincode::deserialize::<RemoteProcessAllocatorMessage>(&bytes);
        let _ = bincode::deserialize::<RemoteProcessProcStateMessage>(&bytes);
    }
}
