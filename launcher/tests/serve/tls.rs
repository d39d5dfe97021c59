//! An allocator over TLS, with keys that `torchlift keys` made.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::allocator::{Allocator, LIMIT, Setup, allocate, launch, setup, wait_until};
use crate::documentation::examples;

/// An authority with clients `me` and `you`, and host `node-a`.
pub(crate) struct Keys {
    root: tempfile::TempDir,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let keys = Self { root: tempfile::Builder::new().prefix("clés é ").tempdir().unwrap() };
        keys.run(&["init"]);
        keys.run(&["issue", "--client", "me"]);
        keys.run(&["issue", "--client", "you"]);
        keys.run(&["issue", "node-a", "--name", "127.0.0.1"]);
        keys
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("keys")
    }

    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
        let output = command.arg("keys").args(args).arg("--keys").arg(self.folder()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// How `curl` gets to host `node-a` at this port with the certificate in this folder.
    fn curl(&self, port: &str, identity: &Path) -> Vec<String> {
        let cert = ["--cert".to_owned(), text(&identity.join("identity.pem"))];
        [cert.to_vec(), self.nobody(port)].concat()
    }

    /// The same without a certificate.
    fn nobody(&self, port: &str) -> Vec<String> {
        let trust = text(&self.folder().join("client/me/trust.pem"));
        vec!["--cacert".to_owned(), trust, "--connect-to".to_owned(), format!("::127.0.0.1:{port}")]
    }

    pub(crate) fn client(&self, name: &str) -> PathBuf {
        self.folder().join("client").join(name)
    }

    fn host(&self, name: &str) -> PathBuf {
        self.folder().join("host").join(name)
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// An allocator that is reached as client `me`, and its port.
pub(crate) fn serve(setup: Setup, keys: &Keys) -> (Allocator, String) {
    let folder = text(&keys.folder());
    let mut allocator = setup.args(&["--listen", "tls:127.0.0.1:0", "--keys", &folder]).spawn(Vec::new(), 1);
    let port = allocator.serving[0].strip_prefix("tls:127.0.0.1:").unwrap().to_owned();
    assert_ne!(port, "0");
    reach(&mut allocator, &keys.curl(&port, &keys.client("me")));
    (allocator, port)
}

fn reach(allocator: &mut Allocator, target: &[String]) {
    allocator.reach_over_tls("https://node-a", &target.iter().map(String::as_str).collect::<Vec<_>>());
}

/// What `curl` says when it gets no answer.
#[track_caller]
fn is_refused(target: &[String]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(target).arg("https://node-a/v1/status");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_client_controls_and_is_named_by_its_certificate() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup().program("sleep 600"), &keys);
    for version in ["--http2", "--http1.1"] {
        assert_eq!(allocator.request("/healthz", &[version], None), (200, json!("ok\n")), "{version}");
    }
    let lease = json!({ "lease_ms": 60_000 });
    assert_eq!(allocator.control("s", &allocate("k", 1, lease)).0, 200);
    let holders = json!([{ "alloc_key": "k", "owner": "tester (client me)", "ranks": 1 }]);
    assert_eq!(allocator.get("/v1/status").1["allocations"], holders);
    reach(&mut allocator, &keys.curl(&port, &keys.client("you")));
    let (status, reply) = allocator.control("s", &allocate("other", 1, json!({})));
    assert_eq!((status, reply), (503, json!({ "Busy": { "holders": holders } })));
}

#[test]
fn what_one_client_holds_is_not_there_for_another() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup().program("sleep 600").args(&["--slots", "4"]), &keys);
    let terms = json!({ "lease_ms": 60_000 });
    assert_eq!(allocator.control("s", &allocate("k", 1, terms.clone())).0, 200);
    reach(&mut allocator, &keys.curl(&port, &keys.client("you")));
    assert_eq!(allocator.get("/v1/allocations/k/events").0, 404);
    assert_eq!(allocator.get("/v1/allocations/k/output/0/stdout").0, 404);
    // The same session by name is another's session, and stops nothing.
    assert_eq!(allocator.control("s", &json!("Stop")), (200, json!({ "Stopping": { "alloc_keys": [] } })));
    let (status, reply) = allocator.control("s", &allocate("k", 1, terms));
    assert_eq!((status, &reply["Refused"]["code"]), (422, &json!("allocate-key-taken")));
    assert_eq!(allocator.held(), ["k"]);
}

#[test]
fn whoever_has_no_certificate_to_control_is_refused_and_told_of() {
    let (keys, others) = (Keys::new(), Keys::new());
    let (mut allocator, port) = serve(setup(), &keys);
    for (target, says) in [
        (keys.nobody(&port), "it showed no certificate; give it one: `torchlift keys issue --client NAME`"),
        (keys.curl(&port, &keys.host("node-a")), "it is host `node-a`, and only a client may do this; control with"),
        (keys.curl(&port, &others.client("me")), "its certificate is of an authority that is not trusted here; have"),
    ] {
        let heard = is_refused(&target);
        assert!(heard.contains("alert"), "{heard}");
        let line = allocator.says();
        assert!(line.starts_with("warning: no connection with 127.0.0.1:") && line.contains(says), "{line}");
        assert_eq!(allocator.get("/healthz").0, 200, "the others are served");
    }
}

#[test]
fn who_says_nothing_or_nonsense_keeps_nobody_waiting() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup(), &keys);
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let silent: Vec<_> = (0..40).map(|_| connect()).collect();
    assert_eq!(allocator.get("/healthz").0, 200);
    let mut plain = connect();
    plain.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    plain.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let line = allocator.says();
    assert!(line.contains("what it says is no TLS; see that the port is"), "{line}");
    drop(silent);
    let line = allocator.says();
    assert!(line.contains("it ended within its handshake"), "{line}");
    assert_eq!(allocator.get("/healthz").0, 200);
}

#[test]
fn a_revocation_counts_from_the_next_connection_on() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup(), &keys);
    let revoked = tempfile::tempdir().unwrap();
    for file in ["identity.pem", "trust.pem"] {
        fs_err::copy(keys.client("you").join(file), revoked.path().join(file)).unwrap();
    }
    let you = keys.curl(&port, revoked.path());
    reach(&mut allocator, &you);
    assert_eq!(allocator.get("/v1/status").0, 200);
    keys.run(&["revoke", "--client", "you"]);
    is_refused(&you);
    let line = allocator.says();
    assert!(line.contains("its certificate was revoked"), "{line}");
    reach(&mut allocator, &keys.curl(&port, &keys.client("me")));
    assert_eq!(allocator.get("/v1/status").0, 200);
}

#[test]
fn a_new_authority_is_taken_up_while_it_serves() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup(), &keys);
    let before = tempfile::tempdir().unwrap();
    fs_err::copy(keys.client("me").join("identity.pem"), before.path().join("identity.pem")).unwrap();
    let old = keys.curl(&port, before.path());
    keys.run(&["rotate"]);
    for identity in [before.path(), &keys.client("me")] {
        reach(&mut allocator, &keys.curl(&port, identity));
        assert_eq!(allocator.get("/v1/status").0, 200, "{}", identity.display());
    }
    keys.run(&["rotate", "--finish"]);
    is_refused(&old);
    let line = allocator.says();
    assert!(line.contains("an authority that is not trusted here"), "{line}");
    reach(&mut allocator, &keys.curl(&port, &keys.client("me")));
    assert_eq!(allocator.get("/v1/status").0, 200);
}

#[test]
fn keys_that_cannot_be_used_any_more_let_nobody_in_until_they_are_mended() {
    let keys = Keys::new();
    let (mut allocator, port) = serve(setup(), &keys);
    let (list, away) = (keys.host("node-a").join("revoked.pem"), keys.root.path().join("away"));
    fs_err::rename(&list, &away).unwrap();
    is_refused(&keys.curl(&port, &keys.client("me")));
    let line = allocator.says();
    assert!(line.contains("the keys here cannot be used") && line.contains("revoked.pem"), "{line}");
    fs_err::rename(&away, &list).unwrap();
    assert_eq!(allocator.get("/v1/status").0, 200);
}

#[test]
fn a_name_is_served_by_what_it_leads_to() {
    let keys = Keys::new();
    // Among several hosts' keys, the name says which.
    keys.run(&["issue", "localhost"]);
    let folder = text(&keys.folder());
    let mut allocator = setup().args(&["--listen", "tls:localhost:0", "--keys", &folder]).spawn(Vec::new(), 1);
    let port = allocator.serving[0].strip_prefix("tls:localhost:").unwrap().to_owned();
    let target = keys.curl(&port, &keys.client("me"));
    allocator.reach_over_tls("https://localhost", &target.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(allocator.get("/v1/status").0, 200);
}

#[test]
fn keys_that_do_not_serve_are_refused_with_a_way_out() {
    let keys = Keys::new();
    let fails = |listen: &str, folder: &Path, says: &[&str]| {
        let (code, said) = setup().args(&["--listen", listen, "--keys", &text(folder)]).fail();
        assert_eq!(code, 200, "{said}");
        for part in says {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    let any = "tls:127.0.0.1:0";
    fails(any, &keys.root.path().join("none"), &["there are no keys in `", "none`", "`torchlift keys init`"]);
    fails(
        any,
        &keys.client("me"),
        &["a certificate of a host is wanted", "client `me`", "`torchlift keys issue HOST`"],
    );
    keys.run(&["issue", "node-b"]);
    fails(any, &keys.folder(), &["host `node-a`, host `node-b`", "listen by the name of one"]);
    fails("tls:no-such-host.invalid:0", &keys.host("node-a"), &["its name leads to no address", "tls:0.0.0.0:PORT"]);
    fails("tls:192.0.2.1:0", &keys.host("node-a"), &["`192.0.2.1` is of another machine"]);
    let index = keys.host("node-a").join("keys.json");
    let mut json: Value = serde_json::from_str(&fs_err::read_to_string(&index).unwrap()).unwrap();
    json["issued"][0]["not_before"] = json!("2020-01-01T00:00:00Z");
    json["issued"][0]["not_after"] = json!("2020-02-01T00:00:00Z");
    fs_err::write(&index, json.to_string()).unwrap();
    fails(any, &keys.host("node-a"), &["expired on 2020-02-01", "torchlift keys issue"]);
    // An allocator that serves nothing over TLS needs no keys.
    assert_eq!(setup().start().get("/healthz").0, 200);
}

/// A client with an address of its own, in Python: it prints who comes and what is posted.
const RECEIVER: &str = r#"
import http.server, json, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        names = self.connection.getpeercert()["subjectAltName"]
        role = [name for kind, name in names if kind == "URI"]
        print(json.dumps([role, self.path, self.headers.get("torchlift-seq"), json.loads(body)]), flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *args): pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + "/identity.pem")
context.load_verify_locations(sys.argv[1] + "/trust.pem")
context.verify_mode = ssl.CERT_REQUIRED
server = Server(("127.0.0.1", 0), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(json.dumps(server.server_address[1]), flush=True)
server.serve_forever()
"#;

struct Receiver {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Receiver {
    fn start(folder: &Path) -> (Self, u64) {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", RECEIVER]).arg(folder).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut receiver = Self { child, lines };
        let port = receiver.next().as_u64().unwrap();
        (receiver, port)
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_with_an_address_of_its_own_is_dialled_as_the_host() {
    let keys = Keys::new();
    keys.run(&["issue", "launcher", "--name", "127.0.0.1"]);
    let (mut receiver, port) = Receiver::start(&keys.host("launcher"));
    // Over a socket comes who asks, and over TLS goes what becomes of it.
    let allocator = setup().args(&["--keys", &text(&keys.host("node-a"))]).start();
    let mut message = allocate("k", 1, json!({ "launch": launch("exit 0", 1000) }));
    message["Allocate"]["bootstrap_addr"] = json!(format!("tls:127.0.0.1:{port}"));
    assert_eq!(allocator.control("s", &message).0, 200);
    for number in 1..=5 {
        let came = receiver.next();
        assert_eq!((&came[0], &came[1]), (&json!(["torchlift://host/node-a"]), &json!("/v1/state")));
        assert_eq!(came[2], json!(number.to_string()), "{came}");
    }
    wait_until("it is over", || allocator.held().is_empty());
}

#[test]
fn without_keys_nobody_is_dialled_over_tls_and_it_is_said() {
    let mut allocator = setup().start();
    let mut message = allocate("k", 1, json!({ "launch": launch("exec sleep 600", 1000) }));
    message["Allocate"]["bootstrap_addr"] = json!("tls:127.0.0.1:1");
    allocator.control("s", &message);
    let line = allocator.says();
    assert!(line.contains("the client at `tls:127.0.0.1:1` cannot be told"), "{line}");
    assert!(line.contains("there are no keys to show, and `--keys DIR` names them"), "{line}");
    wait_until("it is given up", || allocator.held().is_empty());
}

#[test]
fn the_examples_of_the_keys_do_what_they_say() {
    let keys = Keys::new();
    let (allocator, port) = serve(setup(), &keys);
    let incarnation = allocator.get("/v1/status").1["incarnation"].as_str().unwrap().to_owned();
    // The page has a port, and a test has none that it could count on.
    let connect = format!("connect-to = \"::127.0.0.1:{port}\"\n");
    fs_err::write(keys.root.path().join(".curlrc"), connect).unwrap();
    let examples = examples(include_str!("../../../docs/keys.md"));
    assert!(!examples.is_empty());
    for (command, prints) in examples {
        let mut bash = Command::new("bash");
        bash.args(["-c", &command]).env("KEYS", keys.folder()).env("CURL_HOME", keys.root.path());
        let output = bash.stdin(Stdio::null()).output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap().replace(&incarnation, "INCARNATION");
        assert_eq!(found, prints, "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}
