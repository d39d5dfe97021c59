//! What `serve` is told, and what it refuses to begin with.

use std::os::unix::fs::PermissionsExt as _;

use crate::allocator::setup;

#[test]
fn it_has_to_be_told_where_to_serve() {
    let (code, said) = setup().fail();
    assert_eq!(code, 200);
    assert!(said.contains("--listen") && said.contains("--stdio"), "{said}");
}

#[test]
fn an_address_that_is_none_is_refused_with_its_reason() {
    for (addr, says) in [
        ("xxx:foo", "no such channel type: xxx"),
        ("127.0.0.1", "no channel type specified"),
        ("tcp:localhost:1", "`tcp:localhost:1` has no IP address with a port"),
    ] {
        let (code, said) = setup().args(&["--listen", addr]).fail();
        assert_eq!(code, 200, "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn an_address_that_cannot_be_served_is_refused_with_a_way_out() {
    for (addr, says) in [
        ("tcp:0.0.0.0:0", "is no loopback address"),
        ("tcp:192.0.2.1:0", "is no loopback address"),
        ("local:0", "is within a process"),
        ("metatls:a:1", "is the publisher's own"),
        ("caller:", "is the way back of a connection"),
        ("unix:", "names no socket"),
    ] {
        let (code, said) = setup().args(&["--listen", addr, "--token-file", "token"]).fail();
        assert_eq!(code, 200, "{said}");
        assert!(said.contains(says) && said.contains("hint: listen on `unix:PATH`"), "{addr}: {said}");
    }
}

#[test]
fn tcp_needs_a_token() {
    let (code, said) = setup().args(&["--listen", "tcp:127.0.0.1:0"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("`tcp:` needs `--token-file`"), "{said}");
}

#[test]
fn a_token_that_others_may_read_is_refused() {
    let setup = setup();
    let file = setup.folder.join("token");
    fs_err::write(&file, "0123456789012345678901234567890123456789").unwrap();
    fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = setup.args(&["--listen", "tcp:127.0.0.1:0", "--token-file", "token"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("has mode 0644: others may read it"), "{said}");
}

#[test]
fn a_program_or_a_root_that_is_not_there_is_refused() {
    let (code, said) = setup().args(&["--listen", "unix:s", "--program", "no-such-program"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("the program `no-such-program` is not found"), "{said}");
    let (code, said) = setup().args(&["--listen", "unix:s", "--root", "no/such/root"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("`--root no/such/root` is no folder"), "{said}");
}

#[test]
fn a_place_that_is_taken_is_left_as_it_is() {
    let first = setup().start();
    let path = first.folder.join("s");
    let addr = format!("unix:{}", path.display());
    let (code, said) = setup().args(&["--listen", &addr]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("is served already"), "{said}");
    assert_eq!(first.get("/healthz").0, 200, "the first serves on");
}

#[test]
fn what_is_no_socket_is_never_removed() {
    let setup = setup();
    let file = setup.folder.join("file");
    fs_err::write(&file, "precious").unwrap();
    let (code, said) = setup.args(&["--listen", "unix:file"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("`file` is there and is no socket"), "{said}");
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    let setup = setup();
    let folder = setup.folder.join("open");
    fs_err::create_dir(&folder).unwrap();
    fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (code, said) = setup.args(&["--listen", "unix:open/s"]).fail();
    assert_eq!(code, 200);
    assert!(said.contains("the folder `open` can be written by others (mode 0777)"), "{said}");
}
