//! Handshakes of rustls with rustls, in memory: who is let in, who is not, and what each side says of it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, Error, ProtocolVersion, ServerConfig, ServerConnection};

use super::refusal::{explain, explain_io};
use super::*;
use crate::keys::change::{self, Request};
use crate::keys::identity::Wanted;
use crate::keys::{KeysError, place};

const DAY: u64 = 86_400;

/// A clock that stands.
#[derive(Debug)]
struct At(Duration);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0))
    }
}

fn at(seconds: i64) -> Duration {
    let now = i64::try_from(clock::wall().as_secs()).unwrap();
    Duration::from_secs(u64::try_from(now + seconds).unwrap())
}

/// Keys in a folder of their own.
struct Keys {
    folder: tempfile::TempDir,
}

impl Keys {
    /// An authority with client `me` and hosts `node-a` and `node-b`, which share an address.
    fn new() -> Self {
        let keys = Self { folder: tempfile::Builder::new().prefix("clés é ").tempdir().unwrap() };
        fs_err::remove_dir(keys.path()).unwrap();
        change::init(keys.path(), 3_650, at(0)).unwrap();
        for role in [Role::client("me"), Role::host("node-a"), Role::host("node-b")] {
            keys.issue(&role.unwrap(), 100);
        }
        keys
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn issue(&self, role: &Role, days: u32) {
        let names = if role.kind() == RoleKind::Host {
            vec!["10.0.0.5".to_owned(), "a.example.org".to_owned()]
        } else {
            Vec::new()
        };
        let request = Request { role: role.clone(), names, days, is_forced: true };
        change::issue(self.path(), &request, at(0)).unwrap();
    }

    fn client(&self) -> Identity {
        Identity::open(self.path(), &Wanted::client(Some("me")), at(0)).unwrap()
    }

    fn host(&self, name: &str) -> Identity {
        Identity::open(self.path(), &Wanted::host(Some(name)), at(0)).unwrap()
    }

    /// What was carried to another machine: a copy that stays as it is.
    fn carried(&self, role: &Role) -> (tempfile::TempDir, Identity) {
        let there = tempfile::tempdir().unwrap();
        copy(&place::issued(self.path(), role), there.path());
        let wanted = match role.kind() {
            RoleKind::Client => Wanted::client(None),
            RoleKind::Host => Wanted::host(None),
        };
        let identity = Identity::open(there.path(), &wanted, at(0)).unwrap();
        (there, identity)
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs_err::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// What came of a handshake.
struct Shaken {
    client: ClientConnection,
    server: ServerConnection,
    by_client: Option<Error>,
    by_server: Option<Error>,
}

impl Shaken {
    #[track_caller]
    fn stands(&self) {
        assert_eq!((&self.by_client, &self.by_server), (&None, &None));
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
    }

    /// What both sides say of it, in the order client, server.
    #[track_caller]
    fn said(&self) -> (String, String) {
        let (client, server) = (self.by_client.as_ref().unwrap(), self.by_server.as_ref().unwrap());
        let of = |error, own: Role, peer: &str| {
            let refusal = explain(error, &own, peer);
            assert!(!refusal.next.is_empty() && !refusal.what.contains("Error"), "{refusal:?}");
            format!("{refusal}; {}", refusal.next)
        };
        let client = of(client, Role::client("me").unwrap(), "host `node-a`");
        (client, of(server, Role::host("node-a").unwrap(), "10.0.0.9:41022"))
    }
}

/// Moves bytes to and fro until there are none.
fn shake(client: &Arc<ClientConfig>, name: &str, server: &Arc<ServerConfig>) -> Shaken {
    let client = ClientConnection::new(Arc::clone(client), server_name(name).unwrap()).unwrap();
    let server = ServerConnection::new(Arc::clone(server)).unwrap();
    let mut shaken = Shaken { client, server, by_client: None, by_server: None };
    loop {
        let (mut out, mut back) = (Vec::new(), Vec::new());
        while shaken.client.wants_write() {
            shaken.client.write_tls(&mut out).unwrap();
        }
        let mut rest = out.as_slice();
        while !rest.is_empty() && shaken.by_server.is_none() {
            shaken.server.read_tls(&mut rest).unwrap();
            shaken.by_server = shaken.server.process_new_packets().err();
        }
        while shaken.server.wants_write() {
            shaken.server.write_tls(&mut back).unwrap();
        }
        let mut rest = back.as_slice();
        while !rest.is_empty() && shaken.by_client.is_none() {
            shaken.client.read_tls(&mut rest).unwrap();
            shaken.by_client = shaken.client.process_new_packets().err();
        }
        if out.is_empty() && back.is_empty() {
            return shaken;
        }
    }
}

fn between(client: &Identity, name: &str, server: &Identity) -> Shaken {
    shake(&client.client_config(None).unwrap(), name, &server.server_config(Admit::Clients).unwrap())
}

#[test]
fn a_client_and_a_host_of_one_authority_know_each_other() {
    let keys = Keys::new();
    let (client, host) = (keys.client(), keys.host("node-a"));
    let config = client.client_config(Some("node-a")).unwrap();
    for name in ["node-a", "a.example.org", "10.0.0.5"] {
        let shaken = shake(&config, name, &host.server_config(Admit::Clients).unwrap());
        shaken.stands();
        assert_eq!(peer_role(shaken.server.peer_certificates()).unwrap(), Role::client("me").unwrap());
        assert_eq!(peer_role(shaken.client.peer_certificates()).unwrap(), Role::host("node-a").unwrap());
        assert_eq!(shaken.client.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(shaken.client.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(
            shaken.client.tls13_tickets_received(),
            0,
            "nothing is taken up again without a look at certificates"
        );
    }
}

#[test]
fn http_1_is_spoken_with_who_speaks_nothing_newer() {
    let keys = Keys::new();
    let mut config = ClientConfig::clone(&keys.client().client_config(None).unwrap());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let shaken =
        shake(&Arc::new(config.clone()), "node-a", &keys.host("node-a").server_config(Admit::Clients).unwrap());
    shaken.stands();
    assert_eq!(shaken.client.alpn_protocol(), Some(&b"http/1.1"[..]));
    config.alpn_protocols = vec![b"gopher".to_vec()];
    let shaken = shake(&Arc::new(config), "node-a", &keys.host("node-a").server_config(Admit::Clients).unwrap());
    assert!(shaken.said().0.contains("it speaks neither HTTP/2 nor HTTP/1.1"), "{:?}", shaken.said());
}

#[test]
fn a_host_may_report_and_not_control() {
    let keys = Keys::new();
    let (a, b) = (keys.host("node-a"), keys.host("node-b"));
    let reporting = shake(&b.client_config(Some("node-a")).unwrap(), "node-a", &a.server_config(Admit::Hosts).unwrap());
    reporting.stands();
    let role = peer_role(reporting.server.peer_certificates()).unwrap();
    assert!(role.may_report_for("node-b") && !role.may_report_for("node-a"));
    let (client, server) = between(&b, "node-a", &a).said();
    assert!(
        server.contains("10.0.0.9:41022: it is host `node-b`, and only a client may do this; control with a client's"),
        "{server}"
    );
    assert!(client.contains("host `node-a`: it refused: our role may not do this"), "{client}");
}

#[test]
fn a_client_does_not_report() {
    let keys = Keys::new();
    let config = keys.client().client_config(None).unwrap();
    let shaken = shake(&config, "node-a", &keys.host("node-a").server_config(Admit::Hosts).unwrap());
    assert!(shaken.said().1.contains("it is client `me`, and only a host may do this"), "{:?}", shaken.said());
}

#[test]
fn a_client_cannot_serve() {
    let keys = Keys::new();
    let client = keys.client();
    let error = client.server_config(Admit::Clients).unwrap_err();
    assert!(matches!(&error, TlsError::CannotServe { role } if role.name() == "me"), "{error}");
    // One that does it all the same.
    let serving = client.server_config_at(Admit::Clients, Arc::new(WallClock)).unwrap();
    let shaken = shake(&client.client_config(None).unwrap(), "node-a", &serving);
    let (client, server) = shaken.said();
    assert!(client.contains("its certificate is not for this: a client's controls and cannot serve"), "{client}");
    assert!(server.contains("it refused: our certificate is not for this"), "{server}");
}

#[test]
fn another_authority_is_not_trusted_by_either_side() {
    let (keys, others) = (Keys::new(), Keys::new());
    let (client, server) = between(&keys.client(), "node-a", &others.host("node-a")).said();
    assert!(
        client.contains("its certificate is of an authority that is not trusted here; have both sides'"),
        "{client}"
    );
    assert!(server.contains("our certificate is of an authority that it does not trust"), "{server}");
    // One that takes any server.
    let careless = careless(others.client().chain.clone(), others.client().key.clone_key());
    let shaken = shake(&careless, "node-a", &keys.host("node-a").server_config(Admit::Clients).unwrap());
    let (client, server) = shaken.said();
    assert!(server.contains("its certificate is of an authority that is not trusted here"), "{server}");
    assert!(client.contains("our certificate is of an authority that it does not trust"), "{client}");
}

/// A client that looks at nothing, and shows this certificate.
fn careless(chain: Vec<CertificateDer<'static>>, key: rustls::pki_types::PrivateKeyDer<'static>) -> Arc<ClientConfig> {
    let builder = careless_builder();
    let mut config = builder.with_client_auth_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

fn careless_builder() -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Careless))
}

#[derive(Debug)]
struct Careless;

impl rustls::client::danger::ServerCertVerifier for Careless {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn who_shows_no_certificate_is_not_let_in() {
    let keys = Keys::new();
    let config = Arc::new(careless_builder().with_no_client_auth());
    let (client, server) = shake(&config, "node-a", &keys.host("node-a").server_config(Admit::Clients).unwrap()).said();
    assert!(server.contains("10.0.0.9:41022: it showed no certificate; give it one"), "{server}");
    assert!(
        client.contains("it wants a certificate, and none was shown; `torchlift keys issue --client me`"),
        "{client}"
    );
}

#[test]
fn another_host_than_the_one_that_was_dialled_is_refused() {
    let keys = Keys::new();
    let (client, server) = between(&keys.client(), "node-b", &keys.host("node-a")).said();
    assert!(
        client.contains("`node-b` was dialled, and its certificate is for ") && client.contains("node-a"),
        "{client}"
    );
    assert!(server.contains("our certificate is not for the name that it dialled"), "{server}");
    // Both have the address, so that only the role tells them apart.
    let config = keys.client().client_config(Some("node-b")).unwrap();
    let shaken = shake(&config, "10.0.0.5", &keys.host("node-a").server_config(Admit::Clients).unwrap());
    assert!(shaken.said().0.contains("it is host `node-a`, and host `node-b` was dialled"), "{:?}", shaken.said());
}

#[test]
fn what_has_expired_or_is_not_valid_yet_is_refused_by_either_side() {
    let keys = Keys::new();
    let (client, host) = (keys.client(), keys.host("node-a"));
    let days = i64::try_from(101 * DAY).unwrap();
    for (seconds, by_finder, by_other) in [
        (days, "its certificate expired on 20", "our certificate has expired, or is not valid yet, by its clock"),
        (-days, "its certificate is valid from 20", "our certificate has expired, or is not valid yet, by its clock"),
    ] {
        let then: Arc<dyn TimeProvider> = Arc::new(At(at(seconds)));
        let config = client.client_config_at(None, Arc::clone(&then)).unwrap();
        let (first, second) = shake(&config, "node-a", &host.server_config(Admit::Clients).unwrap()).said();
        assert!(first.contains(by_finder) && second.contains(by_other), "{first}\n{second}");
        let serving = host.server_config_at(Admit::Clients, then).unwrap();
        let (first, second) = shake(&client.client_config(None).unwrap(), "node-a", &serving).said();
        assert!(second.contains(by_finder) && first.contains(by_other), "{first}\n{second}");
    }
    // Within the leeway of clocks it is let in.
    let early: Arc<dyn TimeProvider> = Arc::new(At(at(-1_800)));
    let config = client.client_config_at(None, early).unwrap();
    shake(&config, "node-a", &host.server_config(Admit::Clients).unwrap()).stands();
    let error = Identity::open(keys.path(), &Wanted::client(None), at(days)).unwrap_err();
    assert!(matches!(&error, KeysError::Findings { findings, .. } if findings[0].code == "keys-expired"), "{error:?}");
}

#[test]
fn who_was_revoked_is_refused_by_all_who_have_the_list_and_by_no_other() {
    let keys = Keys::new();
    let me = Role::client("me").unwrap();
    let (_there, client) = keys.carried(&me);
    let host = keys.host("node-a");
    let (_old, behind) = keys.carried(&Role::host("node-b").unwrap());
    assert_eq!(change::revoke(keys.path(), &me, at(0)).unwrap(), 1);
    assert!(host.has_changed() && !behind.has_changed());
    let (first, second) = between(&client, "node-a", &keys.host("node-a")).said();
    assert!(second.contains("its certificate was revoked; if it shall be let in again"), "{second}");
    assert!(
        first.contains("our certificate was revoked; if that was not meant, `torchlift keys issue --client me`"),
        "{first}"
    );
    between(&client, "node-b", &behind).stands();
    // A new one is let in, and the old one is not, whatever was issued since.
    keys.issue(&me, 100);
    between(&keys.client(), "node-a", &keys.host("node-a")).stands();
    assert!(between(&client, "node-a", &keys.host("node-a")).by_server.is_some());
    // A host too.
    let (_there, gone) = keys.carried(&Role::host("node-b").unwrap());
    change::revoke(keys.path(), &Role::host("node-b").unwrap(), at(0)).unwrap();
    let (first, _) = between(&keys.client(), "node-b", &gone).said();
    assert!(first.contains("its certificate was revoked"), "{first}");
}

#[test]
fn during_a_rotation_old_and_new_folders_know_each_other_and_after_it_the_old_ones_nobody() {
    let keys = Keys::new();
    let (me, a) = (Role::client("me").unwrap(), Role::host("node-a").unwrap());
    let (_there, old_client) = keys.carried(&me);
    let (_there_too, old_host) = keys.carried(&a);
    let rotation = change::rotate(keys.path(), 3_650, at(0)).unwrap();
    assert_eq!(rotation.issued.len(), 3);
    assert!(matches!(change::rotate(keys.path(), 3_650, at(0)), Err(KeysError::Rotating { .. })));
    let (_later, new_client) = keys.carried(&me);
    let (_later_too, new_host) = keys.carried(&a);
    for client in [&old_client, &new_client] {
        for host in [&old_host, &new_host] {
            between(client, "node-a", host).stands();
        }
    }
    // What the old authority has signed can be taken back all the same.
    assert_eq!(change::revoke(keys.path(), &me, at(0)).unwrap(), 2, "the one before the rotation too");
    for client in [&old_client, &new_client] {
        assert!(between(client, "node-a", &keys.host("node-a")).said().1.contains("was revoked"));
    }
    keys.issue(&me, 100);
    assert_eq!(change::finish(keys.path(), at(0)).unwrap(), Some(rotation.retiring.clone()));
    assert!(matches!(change::finish(keys.path(), at(0)), Err(KeysError::NotRotating)));
    between(&keys.client(), "node-a", &keys.host("node-a")).stands();
    // Who was carried the new folder during the rotation goes on, whoever got the last files first.
    between(&keys.client(), "node-a", &new_host).stands();
    assert!(between(&old_client, "node-a", &keys.host("node-a")).said().1.contains("not trusted here"));
    assert!(between(&keys.client(), "node-a", &old_host).said().0.contains("not trusted here"));
    let files: Vec<PathBuf> =
        fs_err::read_dir(keys.path().join("authority")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [place::authority(keys.path(), &rotation.signing)], "the old private key is gone");
}

#[test]
fn a_second_rotation_follows_the_first() {
    let keys = Keys::new();
    for _ in 0..2 {
        let (_old, before) = keys.carried(&Role::host("node-a").unwrap());
        change::rotate(keys.path(), 3_650, at(0)).unwrap();
        between(&keys.client(), "node-a", &before).stands();
        change::finish(keys.path(), at(0)).unwrap();
        between(&keys.client(), "node-a", &keys.host("node-a")).stands();
    }
}

#[test]
fn a_folder_that_is_not_whole_is_refused_with_what_is_wrong() {
    let keys = Keys::new();
    let refused = |spoil: &dyn Fn(&Path)| {
        let (there, _) = keys.carried(&Role::host("node-a").unwrap());
        spoil(there.path());
        let error = Identity::open(there.path(), &Wanted::host(None), at(0)).unwrap_err();
        assert!(!error.hint().is_empty());
        let findings = match &error {
            KeysError::Findings { findings, .. } => {
                findings.iter().map(|finding| format!("; {}: {}", finding.code, finding.message)).collect()
            }
            _ => String::new(),
        };
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}{findings}")
    };
    let write =
        |name: &'static str, text: &'static str| move |folder: &Path| fs_err::write(folder.join(name), text).unwrap();
    let said = refused(&|folder| fs_err::remove_file(folder.join("revoked.pem")).unwrap());
    assert!(said.contains("keys-missing"), "a list that is taken away takes nobody back: {said}");
    let said = refused(&write("revoked.pem", ""));
    assert!(said.contains("has no list of an authority that `trust.pem` has"), "{said}");
    let said = refused(&write("trust.pem", ""));
    assert!(said.contains("`trust.pem`") || said.contains("has no certificate"), "{said}");
    let said = refused(&write("identity.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n"));
    assert!(said.contains("has no private key"), "{said}");
    let said = refused(&|folder| {
        let other = place::issued(keys.path(), &Role::host("node-b").unwrap());
        fs_err::copy(other.join("identity.pem"), folder.join("identity.pem")).unwrap();
    });
    assert!(said.contains("is of host `node-b`, and `keys.json` names host `node-a`"), "{said}");
    let said = refused(&write("keys.json", "{}"));
    assert!(said.contains("`keys.json`") || said.contains("cannot be used"), "{said}");
    let said = refused(&|folder| {
        use std::os::unix::fs::PermissionsExt as _;
        let open = |name: &str, mode| {
            fs_err::set_permissions(folder.join(name), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        open("identity.pem", 0o640);
        open("trust.pem", 0o666);
        fs_err::remove_file(folder.join("revoked.pem")).unwrap();
    });
    assert_eq!(said.matches("keys-mode").count(), 2, "all at once: {said}");
    assert!(said.contains("keys-missing") && said.contains("mode 0640"), "{said}");
}

#[test]
fn a_certificate_is_chosen_by_its_role_and_never_guessed() {
    let keys = Keys::new();
    assert_eq!(Identity::open(keys.path(), &Wanted::client(None), at(0)).unwrap().role().name(), "me");
    let said = |folder: &Path, wanted: Wanted| {
        let error = Identity::open(folder, &wanted, at(0)).unwrap_err();
        format!("{error}; {}", error.hint())
    };
    let several = said(keys.path(), Wanted::host(None));
    assert!(several.contains("has those of host `node-a`, host `node-b`; say which one"), "{several}");
    let none = said(keys.path(), Wanted::client(Some("you")));
    assert!(
        none.contains("the certificate of client `you` is wanted")
            && none.contains("`torchlift keys issue --client you` issues one"),
        "{none}"
    );
    let (there, _) = keys.carried(&Role::client("me").unwrap());
    let wrong = said(there.path(), Wanted::host(None));
    assert!(wrong.contains("has those of client `me`") && wrong.contains("where the authority is"), "{wrong}");
    let absent = said(&there.path().join("nothing here"), Wanted::host(None));
    assert!(absent.contains("there are no keys in") && absent.contains("torchlift keys init"), "{absent}");
}

#[test]
fn plain_http_is_told_from_tls() {
    let keys = Keys::new();
    let mut server = ServerConnection::new(keys.host("node-a").server_config(Admit::Clients).unwrap()).unwrap();
    server.read_tls(&mut &b"GET /healthz HTTP/1.1\r\n\r\n"[..]).unwrap();
    let error = server.process_new_packets().unwrap_err();
    let io = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    let refusal = explain_io(&io, &Role::host("node-a").unwrap(), "10.0.0.9:1").unwrap();
    assert!(refusal.what.contains("is no TLS"), "{refusal}");
    assert_eq!(explain_io(&std::io::Error::other("x"), &Role::host("a").unwrap(), "b"), None);
    assert!(server.reader().read(&mut [0]).is_err());
}

#[test]
fn a_private_key_is_in_no_debug_text() {
    let keys = Keys::new();
    let text = format!("{:?}", keys.client());
    assert!(text.contains("me") && text.len() < 120, "{text}");
}
