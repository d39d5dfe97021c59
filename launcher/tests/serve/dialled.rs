//! A client with an address of its own, as the published one has: a small server that takes `POST /v1/state`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::{Value, json};

use crate::allocator::{LIMIT, allocate, is_any_process, launch, setup, wait_until};

/// One message that came: its number, and what it says.
type Came = (Option<u64>, Value);

/// A client that answers each message by what `status` says of it.
fn client(path: &Path, status: impl Fn(&Came) -> String + Send + Clone + 'static) -> Receiver<Came> {
    let listener = UnixListener::bind(path).unwrap();
    let (sender, came) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, status) = (sender.clone(), status.clone());
            std::thread::spawn(move || attend(stream.unwrap(), &sender, &status));
        }
    });
    came
}

fn attend(stream: UnixStream, sender: &Sender<Came>, status: &impl Fn(&Came) -> String) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone().ok()?), stream);
    loop {
        let (mut length, mut number, mut line) = (0, None, String::new());
        reader.read_line(&mut line).ok()?;
        if line.is_empty() {
            return None;
        }
        assert!(line.starts_with("POST /v1/state HTTP/1.1"), "{line}");
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "torchlift-seq" => number = Some(value.parse().unwrap()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let came = (number, serde_json::from_slice(&body).unwrap());
        let answer = status(&came);
        if answer.is_empty() {
            // Lost on the way back.
            return None;
        }
        sender.send(came).ok()?;
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

fn ok() -> String {
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
}

/// Everything up to and with `Done`.
fn all(came: &Receiver<Came>) -> Vec<Came> {
    let mut all = Vec::new();
    loop {
        let message = came.recv_timeout(LIMIT).unwrap();
        if message.1 == "HeartBeat" {
            continue;
        }
        let is_done = !message.1["Done"].is_null();
        all.push(message);
        if is_done {
            return all;
        }
    }
}

fn dialled(path: &Path, key: &str, ranks: usize, script: &str) -> Value {
    let mut message = allocate(key, ranks, json!({ "launch": launch(script, 1000) }));
    message["Allocate"]["bootstrap_addr"] = json!(format!("unix:{}", path.display()));
    message
}

#[test]
fn its_record_is_posted_in_order_with_numbers() {
    let allocator = setup().start();
    let path = allocator.folder.join("client");
    let came = client(&path, |_| ok());
    assert_eq!(allocator.control("s", &dialled(&path, "k", 2, "exit 0")).0, 200);
    let all = all(&came);
    let numbers: Vec<_> = all.iter().map(|(number, _)| number.unwrap()).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<u64>>());
    assert!(!all[0].1["Allocated"].is_null());
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again() {
    let allocator = setup().start();
    let path = allocator.folder.join("client");
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = lost.clone();
    let came = client(&path, move |_| {
        let turn = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if turn.is_multiple_of(2) { String::new() } else { ok() }
    });
    allocator.control("s", &dialled(&path, "k", 1, "exit 0"));
    let numbers: Vec<_> = all(&came).iter().map(|(number, _)| number.unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert!(lost.load(std::sync::atomic::Ordering::SeqCst) >= 10);
}

#[test]
fn a_client_that_expects_another_number_gets_the_record_from_there() {
    let allocator = setup().start();
    let path = allocator.folder.join("client");
    let has_gap = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let came = client(&path, move |(number, _)| {
        let is_third = *number == Some(3);
        if is_third && !has_gap.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let body = r#"{"Gap":{"expected":2}}"#;
            return format!("HTTP/1.1 409 Conflict\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
        ok()
    });
    allocator.control("s", &dialled(&path, "k", 1, "exit 0"));
    let numbers: Vec<_> = all(&came).iter().map(|(number, _)| number.unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 2, 3, 4, 5]);
}

#[test]
fn a_refusal_reaches_it_as_a_message() {
    let allocator = setup().start();
    let path = allocator.folder.join("client");
    let came = client(&path, |_| ok());
    let mut message = dialled(&path, "k", 1, "exit 0");
    message["Allocate"]["view"]["slice"]["sizes"] = json!([0]);
    assert_eq!(allocator.control("s", &message).0, 422);
    let all = all(&came);
    let description = all[0].1["Update"]["Failed"]["description"].as_str().unwrap();
    assert!(description.contains("has no ranks"), "{description}");
    assert_eq!(all.len(), 2);
}

#[test]
fn one_that_does_not_want_it_any_more_loses_its_ranks() {
    let allocator = setup().start();
    let path = allocator.folder.join("client");
    let _came = client(&path, |(number, _)| match number {
        Some(1..=3) => ok(),
        _ => "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n".to_owned(),
    });
    allocator.control("s", &dialled(&path, "k", 2, "sleep 600.0505 & wait"));
    wait_until("its ranks are gone", || allocator.held().is_empty());
    assert!(!is_any_process("600.0505"));
}

#[test]
fn an_address_that_cannot_be_dialled_is_no_client() {
    let allocator = setup().start();
    let mut message = dialled(Path::new("/x"), "k", 1, "sleep 600.0606");
    message["Allocate"]["bootstrap_addr"] = json!("metatls:a:1");
    allocator.control("s", &message);
    wait_until("it is given up", || allocator.held().is_empty());
    wait_until("and its ranks", || !is_any_process("600.0606"));
}
