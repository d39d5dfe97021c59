//! What is refused, with what to do next, and that nothing is changed by it.

use std::os::unix::fs::PermissionsExt as _;

use crate::Keys;

#[test]
fn without_keys_every_command_says_where_to_begin() {
    let keys = Keys::none();
    for args in [&["issue", "node-a"][..], &["revoke", "node-a"], &["rotate"], &["show"]] {
        let said = keys.fails(200, args);
        assert!(said.contains("there are no keys in") && said.contains("torchlift keys init"), "{said}");
    }
    assert!(!keys.path().exists(), "nothing is made by that");
    keys.ok(&["init"]);
    let open = Keys::none();
    fs_err::create_dir_all(open.path()).unwrap();
    fs_err::set_permissions(open.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let said = open.fails(200, &["init"]);
    assert!(said.contains("keys-mode") && said.contains("chmod 700"), "{said}");
    let said = keys.fails(200, &["init"]);
    assert!(said.contains("there are keys in") && said.contains("torchlift keys rotate"), "{said}");
}

#[test]
fn a_name_that_no_role_can_have_is_refused_and_nothing_is_written() {
    let keys = Keys::issued();
    let before = keys.index();
    for name in ["../x", "a/b", "a.b", ".", "ä", "a b", "a_b", &"a".repeat(64)] {
        let said = keys.fails(200, &["issue", name]);
        assert!(said.contains(&format!("`{name}` cannot be the name of a host")) && said.contains("hint:"), "{said}");
    }
    for name in ["../x", "a/b", ".a", "", "a b", &"a".repeat(65)] {
        let said = keys.fails(200, &["issue", "--client", name]);
        assert!(said.contains("cannot be the name of a client"), "{said}");
        keys.fails(200, &["revoke", "--client", name]);
    }
    for name in ["*.example.org", "a b", "10.0.0.256", "[::1]", "https://a"] {
        let said = keys.fails(200, &["issue", "node-c", "--name", name]);
        assert!(said.contains("is neither a DNS name nor an IP address"), "{said}");
    }
    assert_eq!(keys.index(), before);
    assert!(!keys.path().join("host/node-c").exists());
}

#[test]
fn who_is_meant_has_to_be_said_and_days_have_bounds() {
    let keys = Keys::issued();
    keys.fails(200, &["issue"]);
    keys.fails(200, &["issue", "node-c", "--client", "you"]);
    keys.fails(200, &["issue", "--client", "you", "--name", "a"]);
    keys.fails(200, &["issue", "node-c", "--days", "0"]);
    keys.fails(200, &["issue", "node-c", "--days", "36501"]);
    keys.fails(200, &["rotate", "--finish", "--days", "1"]);
}

#[test]
fn keys_that_others_can_read_or_change_are_refused_all_at_once() {
    let keys = Keys::issued();
    let open = |name: &str, mode| {
        fs_err::set_permissions(keys.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let authority = fs_err::read_dir(keys.path().join("authority")).unwrap().next().unwrap().unwrap().path();
    let authority = authority.strip_prefix(keys.path()).unwrap().to_str().unwrap().to_owned();
    open(&authority, 0o644);
    open("trust.pem", 0o664);
    open("host/node-a/identity.pem", 0o604);
    open("client", 0o755);
    open("client/me", 0o777);
    let before = keys.index();
    let said = keys.fails(200, &["issue", "node-b"]);
    assert_eq!(said.matches("error[keys-mode]").count(), 4, "{said}");
    for part in [
        "(mode 0644)",
        "(mode 0664)",
        "(mode 0604)",
        "(mode 0777)",
        "chmod 600 ",
        "chmod 700 ",
        "have it issued again",
        "begin anew with `torchlift keys init`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(keys.index(), before);
    let shown = keys.shown();
    assert_eq!(shown["findings"].as_array().unwrap().len(), 4, "`show` tells them, and shows all the same");
    for (name, mode) in
        [(authority.as_str(), 0o600), ("trust.pem", 0o600), ("host/node-a/identity.pem", 0o600), ("client/me", 0o700)]
    {
        open(name, mode);
    }
    keys.ok(&["issue", "node-b"]);
}

#[test]
fn an_index_of_a_later_torchlift_or_with_nonsense_is_named_and_left_alone() {
    let keys = Keys::issued();
    let good = keys.index();
    for (text, words) in [
        (good.replace("\"version\": 1", "\"version\": 9"), "it has version 9"),
        (good.replace("\"node-a\"", "\"../../node-a\""), "cannot be the name of a host"),
        ("{".to_owned(), "not in the form of an index"),
        (String::new(), "not in the form of an index"),
    ] {
        fs_err::write(keys.path().join("keys.json"), &text).unwrap();
        for args in [&["show"][..], &["issue", "node-b"], &["init"]] {
            let said = keys.fails(200, args);
            assert!(said.contains(words) && said.contains("keys.json"), "{args:?}: {said}");
        }
        assert_eq!(keys.index(), text);
    }
}

#[test]
fn an_authority_whose_key_is_damaged_or_anothers_signs_nothing() {
    let keys = Keys::issued();
    let other = Keys::issued();
    let file = |keys: &Keys| fs_err::read_dir(keys.path().join("authority")).unwrap().next().unwrap().unwrap().path();
    let (own, foreign) = (fs_err::read_to_string(file(&keys)).unwrap(), fs_err::read_to_string(file(&other)).unwrap());
    let end = "-----END PRIVATE KEY-----\n";
    let mixed = format!("{}{end}{}", foreign.split(end).next().unwrap(), own.split(end).nth(1).unwrap());
    for (text, words) in [
        (mixed, "has a private key that is not its certificate's"),
        (own.replacen("MI", "!!", 1), "has a damaged private key"),
        (String::new(), "has no private key"),
    ] {
        fs_err::write(file(&keys), text).unwrap();
        let said = keys.fails(200, &["issue", "node-b"]);
        assert!(said.contains(words), "{said}");
    }
}
