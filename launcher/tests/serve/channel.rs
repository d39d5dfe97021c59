//! The ways to an allocator, who may go them, and the order of messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::allocator::{allocate, setup};

#[test]
fn a_socket_is_its_users_own_and_goes_with_the_allocator() {
    let mut allocator = setup().start();
    let socket = allocator.folder.join("s");
    assert_eq!(allocator.serving, [format!("unix:{}", socket.display())]);
    assert_eq!(fs_err::symlink_metadata(&socket).unwrap().mode() & 0o777, 0o600);
    allocator.signal(Signal::SIGTERM);
    assert_eq!(allocator.wait(), (Some(0), String::new()));
    assert!(fs_err::symlink_metadata(&socket).is_err());
}

#[test]
fn a_socket_that_nobody_serves_any_more_is_replaced() {
    let setup = setup();
    let socket = setup.folder.join("s");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(setup.start().get("/healthz").0, 200);
}

#[test]
fn an_abstract_socket_is_served_too() {
    let name = format!("torchlift-test-{}", std::process::id());
    let addr = format!("unix:@{name}");
    let target = vec!["--abstract-unix-socket".to_owned(), name];
    let allocator = setup().args(&["--listen", &addr]).spawn(target, 1);
    assert_eq!(allocator.get("/healthz"), (200, json!("ok\n")));
}

#[test]
fn another_user_gets_nothing_by_a_socket_that_it_may_open() {
    if !nix::unistd::geteuid().is_root() {
        // The kernel keeps others away from a socket of mode 0600; only root can try this as somebody else.
        return;
    }
    let allocator = setup().start();
    let socket = allocator.folder.join("s");
    let mut folder = socket.clone();
    while folder.pop() && folder.parent().is_some() {
        let mode = fs_err::metadata(&folder).unwrap().mode();
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(mode | 0o011)).unwrap();
        if folder.parent() == Some(std::path::Path::new("/tmp")) {
            break;
        }
    }
    fs_err::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let script = format!("curl -sS --max-time 20 --unix-socket \"{}\" http://x/healthz", socket.display());
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(allocator.get("/healthz").0, 200);
}

#[test]
fn tcp_is_served_to_those_who_show_the_token() {
    let setup = setup();
    let file = setup.folder.join("token");
    let target = Vec::new();
    let mut allocator = setup.args(&["--listen", "tcp:127.0.0.1:0", "--token-file", "token"]).spawn(target, 1);
    let port = allocator.serving[0].strip_prefix("tcp:127.0.0.1:").unwrap().to_owned();
    assert_ne!(port, "0");
    allocator.reach(&["--connect-to", &format!("::127.0.0.1:{port}")]);
    assert_eq!(fs_err::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let token = fs_err::read_to_string(&file).unwrap();
    let bearer = |token: &str| format!("authorization: Bearer {}", token.trim_end());
    let status = |allocator: &crate::allocator::Allocator, header: &str| {
        allocator.request("/v1/status", &["-H", header], None).0
    };
    assert_eq!(status(&allocator, &bearer(&token)), 200);
    assert_eq!(status(&allocator, &bearer("0000")), 401);
    assert_eq!(status(&allocator, "x: y"), 401);
    let (code, reply) = allocator.request("/v1/control", &[], Some(b"\"Stop\""));
    assert_eq!((code, &reply["Refused"]["code"]), (401, &json!("no-token")));
    assert_eq!(allocator.request("/v1/allocations/k/events", &[], None).0, 401);
}

#[test]
fn stdin_and_stdout_are_one_connection_behind_a_marker() {
    let mut setup = setup().args(&["--stdio"]);
    setup.command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = setup.command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "torchlift-serve 1\n");
    stdin.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    line.clear();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    drop(stdin);
    // The client is gone, and the allocator was for it alone.
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn http_1_is_understood_as_well() {
    let allocator = setup().start();
    assert_eq!(allocator.request("/healthz", &["--http1.1"], None).0, 200);
}

#[test]
fn messages_of_a_session_are_acted_on_once_and_in_order() {
    let allocator = setup().program("sleep 600").start();
    let message = allocate("k", 1, json!({ "lease_ms": 60_000 }));
    let (status, reply) = allocator.numbered("s", 2, &message);
    assert_eq!((status, reply), (409, json!({ "Gap": { "expected": 1 } })));
    assert_eq!(allocator.held(), [""; 0]);
    let (status, first) = allocator.numbered("s", 1, &message);
    assert_eq!(status, 200, "{first}");
    // Lost on the way back: sent again, answered again.
    assert_eq!(allocator.numbered("s", 1, &message), (200, first));
    let (status, stop) = allocator.numbered("s", 2, &json!("Stop"));
    assert_eq!((status, &stop), (200, &json!({ "Stopping": { "alloc_keys": ["k"] } })));
    assert_eq!(allocator.numbered("s", 2, &json!("Stop")), (200, stop), "not acted on again");
    assert_eq!(allocator.numbered("s", 1, &message).0, 409);
    assert_eq!(allocator.numbered("other", 1, &json!("HeartBeat")).0, 200, "another session counts for itself");
}

#[test]
fn what_is_no_message_is_answered_with_its_place_and_keeps_its_number() {
    let allocator = setup().start();
    let (status, reply) = allocator.numbered("s", 1, &json!({ "Allocate": {} }));
    assert_eq!((status, &reply["Refused"]["message"]), (400, &json!("`Allocate.view` is missing")));
    assert_eq!(allocator.numbered("s", 2, &json!("HeartBeat")).0, 200);
    for (body, code) in [(&b"\xff"[..], 400), (b"{", 400), (b"", 400), (b"\"Stop\" x", 400)] {
        assert_eq!(allocator.request("/v1/control", &[], Some(body)).0, code);
    }
    let (status, reply) = allocator.request("/v1/control", &["--http1.1"], Some(&vec![b' '; 9 * 1024 * 1024]));
    assert_eq!((status, &reply["Refused"]["code"]), (413, &json!("message-too-large")));
    assert_eq!(allocator.request("/v1/control", &["-H", "torchlift-seq: x"], Some(b"\"Stop\"")).0, 400);
    let long = format!("torchlift-session: {}", "x".repeat(200));
    assert_eq!(allocator.request("/v1/control", &["-H", &long], Some(b"\"Stop\"")).0, 400);
}

#[test]
fn what_is_not_there_is_answered_as_not_there() {
    let allocator = setup().start();
    for path in [
        "/",
        "/v1",
        "/v1/allocations/none/events",
        "/v1/allocations/..%2f..%2fetc/events",
        "/v1/allocations/k/output/0/stdout",
    ] {
        assert_eq!(allocator.get(path).0, 404, "{path}");
    }
    assert_eq!(allocator.request("/v1/control", &["-X", "GET"], None).0, 405);
}

#[test]
fn connections_over_tcp_without_a_token_keep_nobody_out_who_comes_by_another_way() {
    let setup = setup();
    let socket = setup.folder.join("s");
    let listen = format!("unix:{}", socket.display());
    let tcp = ["--listen", "tcp:127.0.0.1:0", "--token-file", "token", "--listen", &listen];
    let target = vec!["--unix-socket".to_owned(), socket.to_str().unwrap().to_owned()];
    let allocator = setup.args(&tcp).spawn(target, 2);
    let port: u16 = allocator.serving[0].strip_prefix("tcp:127.0.0.1:").unwrap().parse().unwrap();
    // More than are let in at once; none of them ever says a word.
    let silent: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert_eq!(allocator.get("/healthz").0, 200);
    drop(silent);
}

#[test]
fn a_request_that_means_nothing_is_answered_like_any_other_refusal() {
    let allocator = setup().program("exec sleep 600").start();
    let mut held = allocator.follow_after("s", &allocate("k", 1, json!({})), "k");
    held.take(3);
    for (path, status, code) in [
        ("/v1/allocations/k/output/-1/stdout", 404, "no-such-rank"),
        ("/v1/allocations/k/output/1/stdout", 404, "no-such-rank"),
        ("/v1/allocations/k/output/0/stdout?from=abc", 400, "bad-query"),
        ("/v1/allocations/k/output/0/stdout?follow=maybe", 400, "bad-query"),
        ("/v1/allocations/k/events?after=-1", 400, "bad-query"),
        ("/v1/control", 405, "no-such-method"),
        ("/v2", 404, "no-such-route"),
    ] {
        let (seen, reply) = allocator.get(path);
        assert_eq!((seen, &reply["Refused"]["code"]), (status, &json!(code)), "{path}: {reply}");
        assert!(reply["Refused"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{path}: {reply}");
    }
}
