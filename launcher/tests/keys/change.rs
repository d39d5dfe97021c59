//! Making, issuing, taking back, rotating: what is there afterwards, and that nothing is lost.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::{Keys, stderr};

#[test]
fn everything_that_is_made_is_its_users_alone() {
    let keys = Keys::issued();
    let mut count = 0;
    let mut folders = vec![keys.path()];
    while let Some(folder) = folders.pop() {
        let mode = |path: &std::path::Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                count += 1;
            }
        }
    }
    assert_eq!(
        count,
        3 + 1 + 4 + 4,
        "index, trust and list; the authority; four files each for a host and a client; no lock"
    );
    assert!(keys.shown()["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_good_certificate_is_issued_again_only_by_force_and_keeps_its_names() {
    let keys = Keys::issued();
    let before = keys.index();
    let said = keys.fails(200, &["issue", "node-a"]);
    assert!(
        said.contains("host `node-a` has a certificate that is good until 20") && said.contains("--force"),
        "{said}"
    );
    assert_eq!(keys.index(), before);
    let said = keys.ok(&["issue", "node-a", "--force"]);
    assert!(
        said.contains("the one before stays good until it ends") && said.contains("`torchlift keys revoke node-a`"),
        "{said}"
    );
    let shown = keys.shown();
    let issued = shown["issued"].as_array().unwrap();
    assert_eq!(issued[2]["names"], serde_json::json!(["10.0.0.5", "a.example.org"]));
    assert_ne!(issued[0]["serial"], issued[2]["serial"]);
    keys.ok(&["issue", "node-a", "--force", "--name", "10.0.0.6"]);
    assert_eq!(keys.shown()["issued"][3]["names"], serde_json::json!(["10.0.0.6"]));
    let states: Vec<String> = keys.states().into_iter().map(|(name, state)| format!("{name} {state}")).collect();
    assert_eq!(states, ["node-a replaced", "me good", "node-a replaced", "node-a good"]);
}

#[test]
fn what_was_revoked_is_issued_anew_without_force() {
    let keys = Keys::issued();
    keys.ok(&["issue", "node-a", "--force"]);
    keys.ok(&["issue", "node-b"]);
    let said = keys.ok(&["revoke", "node-a"]);
    assert!(said.contains("revoked 2 certificates of host `node-a`"), "the replaced one too: {said}");
    assert!(said.contains("it is let in by all who have not got the new list"), "{said}");
    assert!(said.contains("for host in node-b; do scp -p ") && said.contains("revoked.pem"), "{said}");
    assert!(said.contains("from which a client controls (me)"), "{said}");
    assert!(!keys.path().join("host/node-a").exists(), "its key is good for nothing");
    assert!(keys.ok(&["revoke", "node-a"]).contains("were revoked before"));
    keys.ok(&["issue", "node-a"]);
    let states: Vec<String> = keys.states().into_iter().map(|(name, state)| format!("{name} {state}")).collect();
    assert_eq!(states, ["node-a revoked", "me good", "node-a revoked", "node-b good", "node-a good"]);
    let said = keys.fails(200, &["revoke", "node-x"]);
    assert!(
        said.contains("nothing was issued for host `node-x`") && said.contains("there is `node-b`, `node-a`"),
        "{said}"
    );
}

#[test]
fn many_who_issue_at_once_all_find_their_certificates() {
    let keys = Keys::none();
    keys.ok(&["init"]);
    let names: Vec<String> = (0..12).map(|number| format!("node-{number:02}")).collect();
    let running: Vec<_> = names
        .iter()
        .map(|name| keys.command(&["issue", name]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let mut found: Vec<String> = keys.states().into_iter().map(|(name, _)| name).collect();
    found.sort();
    assert_eq!(found, names);
    assert!(!keys.path().join(".lock").exists());
}

#[test]
fn of_many_who_begin_at_once_one_makes_the_authority() {
    let keys = Keys::none();
    let running: Vec<_> = (0..6).map(|_| keys.command(&["init"]).stderr(Stdio::piped()).spawn().unwrap()).collect();
    let outputs: Vec<_> = running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let made = outputs.iter().filter(|output| output.status.success()).count();
    assert_eq!(made, 1);
    assert!(outputs.iter().filter(|output| !output.status.success()).all(|output| stderr(output).contains("already")));
    assert_eq!(fs_err::read_dir(keys.path().join("authority")).unwrap().count(), 1);
}

#[test]
fn a_command_that_was_cut_short_is_named_and_repeated() {
    let keys = Keys::issued();
    // As it is when the index was written and nothing else.
    let cut = |command: &str| {
        let text = keys.index().trim_end().trim_end_matches('}').trim_end().to_owned();
        fs_err::write(keys.path().join("keys.json"), format!("{text},\n  \"unfinished\": \"{command}\"\n}}\n"))
            .unwrap();
    };
    cut("issue node-a --force");
    fs_err::remove_file(keys.path().join("host/node-a/identity.pem")).unwrap();
    let shown = keys.shown();
    let codes: Vec<&str> =
        shown["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["keys-missing", "keys-unfinished"]);
    let said = keys.fails(200, &["issue", "node-b"]);
    assert!(
        said.contains("keys-unfinished") && said.contains("repeat it: `torchlift keys issue node-a --force`"),
        "{said}"
    );
    keys.ok(&["revoke", "--client", "me"]);
    assert!(
        keys.index().contains("\"unfinished\": \"issue node-a --force\""),
        "what is taken back does not wait, and ends nothing else"
    );
    keys.ok(&["issue", "node-a", "--force"]);
    assert!(keys.shown()["findings"].as_array().unwrap().is_empty());
    // A rotation that had named the new authority.
    keys.ok(&["rotate"]);
    cut("rotate");
    let said = keys.ok(&["rotate"]);
    assert!(said.contains("1 certificate issued anew"), "{said}");
    keys.ok(&["rotate", "--finish"]);
    cut("rotate --finish");
    keys.ok(&["rotate", "--finish"]);
    assert!(keys.shown()["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_rotation_says_what_to_do_at_each_step() {
    let keys = Keys::issued();
    let said = keys.fails(200, &["rotate", "--finish"]);
    assert!(said.contains("no rotation is under way"), "{said}");
    let said = keys.ok(&["rotate"]);
    assert!(said.contains("2 certificates issued anew") && said.contains("`torchlift keys rotate --finish`"), "{said}");
    let shown = keys.shown();
    assert_eq!(shown["authorities"].as_array().unwrap().len(), 2);
    assert_eq!(shown["findings"][0]["code"], "keys-rotating");
    let said = keys.fails(200, &["rotate"]);
    assert!(said.contains("being rotated already"), "{said}");
    let said = keys.ok(&["rotate", "--finish"]);
    assert!(
        said.contains("trust.pem") && said.contains("revoked.pem") && said.contains("for host in node-a"),
        "{said}"
    );
    let shown = keys.shown();
    assert_eq!(shown["authorities"].as_array().unwrap().len(), 1);
    assert_eq!(shown["issued"].as_array().unwrap().len(), 2, "what the old one had issued is gone: {shown:#}");
}

#[test]
fn what_expires_soon_is_told_and_nothing_outlives_its_authority() {
    let keys = Keys::none();
    keys.ok(&["init", "--days", "40"]);
    keys.ok(&["issue", "node-a", "--days", "20"]);
    keys.ok(&["issue", "node-b"]);
    let shown = keys.shown();
    assert_eq!(shown["issued"][1]["not_after"], shown["authorities"][0]["not_after"]);
    assert_eq!(shown["issued"][0]["state"], "expiring");
    let findings = shown["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{shown:#}");
    assert_eq!((&findings[0]["code"], &findings[0]["severity"]), (&"keys-expiring".into(), &"warning".into()));
    let output = keys.command(&["show"]).output().unwrap();
    let (text, said) = (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output));
    assert!(text.contains("the authority of 2 hosts and 0 clients; the next to expire is host `node-a`"), "{text}");
    assert!(text.contains("host       node-a            good until 20") && text.contains("authority  "), "{text}");
    assert!(said.contains("warning[keys-expiring]: the certificate of host `node-a` expires on 20"), "{said}");
    assert!(said.contains("`torchlift keys issue node-a --force` and carry it"), "{said}");
}
