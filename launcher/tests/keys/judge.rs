//! What openssl, which has never heard of any of this, says of what was issued.

use std::path::Path;
use std::process::Command;

use crate::{Keys, skip, stderr};

/// Its stdout and stderr, and whether it succeeded; none, said so, where there is no openssl.
fn openssl(test: &str, args: &[&str]) -> Option<(String, bool)> {
    match Command::new("openssl").args(args).output() {
        Ok(output) => {
            Some((String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output), output.status.success()))
        }
        Err(_) => {
            skip::skip(test, "there is no openssl", "`apt-get install openssl`");
            None
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn openssl_reads_what_stands_in_a_certificate() {
    let test = "openssl_reads_what_stands_in_a_certificate";
    let keys = Keys::issued();
    let host = keys.path().join("host/node-a/identity.pem");
    let Some((said, is_good)) = openssl(test, &["x509", "-in", text(&host), "-noout", "-text"]) else { return };
    assert!(is_good, "{said}");
    for part in [
        "URI:torchlift://host/node-a",
        "DNS:node-a",
        "DNS:a.example.org",
        "IP Address:10.0.0.5",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "CA:FALSE",
        "Digital Signature",
        "ecdsa-with-SHA256",
        "X509v3 Authority Key Identifier",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shown = keys.shown();
    let serial = shown["issued"][0]["serial"].as_str().unwrap();
    assert!(said.replace([':', ' ', '\n'], "").contains(serial), "{serial}: {said}");
    let client = keys.path().join("client/me/identity.pem");
    let (said, _) = openssl(test, &["x509", "-in", text(&client), "-noout", "-text"]).unwrap();
    assert!(said.contains("URI:torchlift://client/me") && said.contains("TLS Web Client Authentication"), "{said}");
    assert!(!said.contains("TLS Web Server Authentication") && !said.contains("DNS:"), "{said}");
    let trust = keys.path().join("trust.pem");
    let (said, _) = openssl(test, &["x509", "-in", text(&trust), "-noout", "-text"]).unwrap();
    assert!(said.contains("CA:TRUE, pathlen:1") && said.contains("Certificate Sign, CRL Sign"), "{said}");
}

#[test]
fn openssl_verifies_what_was_issued_and_not_what_was_revoked() {
    let test = "openssl_verifies_what_was_issued_and_not_what_was_revoked";
    let keys = Keys::issued();
    let (trust, lists) = (keys.path().join("trust.pem"), keys.path().join("revoked.pem"));
    let copy = keys.folder.path().join("carried.pem");
    fs_err::copy(keys.path().join("host/node-a/identity.pem"), &copy).unwrap();
    let verify = |purpose: &str, file: &Path| {
        let args = [
            "verify",
            "-x509_strict",
            "-crl_check",
            "-CRLfile",
            text(&lists),
            "-CAfile",
            text(&trust),
            "-purpose",
            purpose,
            text(file),
        ];
        openssl(test, &args)
    };
    let Some((said, is_good)) = verify("sslserver", &copy) else { return };
    assert!(is_good, "{said}");
    assert!(verify("sslclient", &copy).unwrap().1);
    let client = keys.path().join("client/me/identity.pem");
    assert!(verify("sslclient", &client).unwrap().1);
    let (said, is_good) = verify("sslserver", &client).unwrap();
    assert!(!is_good, "a client cannot serve: {said}");
    keys.ok(&["revoke", "node-a"]);
    let (said, is_good) = verify("sslserver", &copy).unwrap();
    assert!(!is_good && said.contains("certificate revoked"), "{said}");
    assert!(verify("sslclient", &client).unwrap().1);
    let other = Keys::issued();
    let (said, is_good) = verify("sslserver", &other.path().join("host/node-a/identity.pem")).unwrap();
    assert!(!is_good, "{said}");
}

#[test]
fn openssl_follows_the_old_authority_to_what_the_new_one_issued() {
    let test = "openssl_follows_the_old_authority_to_what_the_new_one_issued";
    let keys = Keys::issued();
    let old = keys.folder.path().join("old trust.pem");
    fs_err::copy(keys.path().join("trust.pem"), &old).unwrap();
    keys.ok(&["rotate"]);
    let host = keys.path().join("host/node-a/identity.pem");
    // The file has what the other side is sent: the certificate, and the old authority's word for its issuer.
    let verify = |trust: &Path, with: &[&str]| {
        let mut args =
            vec!["verify", "-x509_strict", "-no-CAfile", "-no-CApath", "-CAfile", text(trust), "-purpose", "sslserver"];
        args.extend(with);
        args.push(text(&host));
        openssl(test, &args)
    };
    let Some((said, is_good)) = verify(&old, &["-untrusted", text(&host)]) else { return };
    assert!(is_good, "{said}");
    let (said, is_good) = verify(&old, &[]).unwrap();
    assert!(!is_good, "only by that word: {said}");
    keys.ok(&["rotate", "--finish"]);
    assert!(verify(&keys.path().join("trust.pem"), &[]).unwrap().1);
    let (said, _) = openssl(test, &["crl", "-in", text(&keys.path().join("revoked.pem")), "-noout", "-text"]).unwrap();
    assert!(said.contains("No Revoked Certificates") && said.contains("X509v3 CRL Number"), "{said}");
}
