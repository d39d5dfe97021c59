//! A command that is cut off behind any of its writes: the folder can be read, knows all that is out, and is whole again when
//! the command is repeated.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::*;
use crate::clock;
use crate::keys::check::{Looked, look};
use crate::keys::{Identity, Wanted};

/// One command.
type Command = (&'static str, fn(&Path) -> Result<(), KeysError>);

const COMMANDS: [Command; 6] = [
    ("issue", |folder| issue_for(folder, "node-c")),
    ("issue again", |folder| issue_for(folder, "node-a")),
    ("revoke", |folder| revoke(folder, &Role::host("node-b").unwrap(), clock::wall()).map(drop)),
    ("rotate", |folder| rotate(folder, 3_650, clock::wall()).map(drop)),
    ("finish", |folder| finish(folder, clock::wall()).map(drop)),
    ("revoke while rotating", |folder| revoke(folder, &Role::host("node-b").unwrap(), clock::wall()).map(drop)),
];

fn issue_for(folder: &Path, name: &str) -> Result<(), KeysError> {
    let role = Role::host(name)?;
    issue(folder, &Request { role, names: Vec::new(), days: 90, is_forced: true }, clock::wall()).map(drop)
}

fn copy(from: &Path, to: &Path) {
    disk::make_folder(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs_err::copy(entry.path(), target).unwrap();
        }
    }
}

/// Serial numbers of all certificates that a person could carry away.
fn carried(folder: &Path) -> Vec<String> {
    let folders = fs_err::read_dir(folder.join("host")).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.map(|folder| folder.join(place::IDENTITY)).filter(|file| file.is_file());
    files
        .map(|file| {
            let certificate = CertificateDer::from_pem_slice(&fs_err::read(file).unwrap()).unwrap();
            let certificate = webpki::EndEntityCert::try_from(&certificate).unwrap();
            certificate.serial().iter().map(|byte| format!("{byte:02x}")).collect()
        })
        .collect()
}

fn index(folder: &Path) -> Index {
    disk::read_index(folder).unwrap().unwrap()
}

#[test]
fn a_command_that_is_cut_off_anywhere_loses_nothing_and_is_repeated() {
    let temporary = tempfile::tempdir().unwrap();
    let (plain, rotating) = (temporary.path().join("plain"), temporary.path().join("rotating"));
    init(&plain, 3_650, clock::wall()).unwrap();
    ["node-a", "node-b"].iter().for_each(|name| issue_for(&plain, name).unwrap());
    copy(&plain, &rotating);
    rotate(&rotating, 3_650, clock::wall()).unwrap();
    for (name, command) in COMMANDS {
        let before = if matches!(name, "finish" | "revoke while rotating") { &rotating } else { &plain };
        for writes in 0.. {
            let folder = temporary.path().join(format!("{name} {writes}"));
            copy(before, &folder);
            let result = disk::cut_off_after(writes, || command(&folder));
            for serial in carried(&folder) {
                assert!(
                    index(&folder).issued.iter().any(|entry| entry.serial == serial),
                    "{name}, {writes}: `{serial}` is out"
                );
            }
            let is_whole = result.is_ok();
            if !is_whole {
                command(&folder).unwrap_or_else(|error| panic!("{name}, {writes}: {error}"));
            }
            let Looked::There { findings, .. } = look(&folder, clock::wall()) else { panic!("{name}, {writes}") };
            assert!(findings.iter().all(|finding| !finding.is_error()), "{name}, {writes}: {findings:?}");
            let host = Identity::open(&folder, &Wanted::host(Some("node-a")), clock::wall());
            assert!(host.is_ok(), "{name}, {writes}: {host:?}");
            let authorities = fs_err::read_dir(folder.join(place::AUTHORITY)).unwrap().count();
            assert_eq!(
                authorities,
                index(&folder).authorities.len(),
                "{name}, {writes}: no key stays that nobody trusts"
            );
            if is_whole {
                assert!(writes >= 4, "{name} was never cut off");
                break;
            }
        }
    }
}

#[test]
fn an_authority_that_is_cut_off_while_it_is_made_is_not_there() {
    let temporary = tempfile::tempdir().unwrap();
    for writes in 0..4 {
        let folder = temporary.path().join(writes.to_string());
        disk::cut_off_after(writes, || init(&folder, 10, clock::wall())).unwrap_err();
        assert_eq!(look(&folder, clock::wall()), Looked::Absent);
        init(&folder, 10, clock::wall()).unwrap();
        assert!(matches!(look(&folder, clock::wall()), Looked::There { .. }));
        assert_eq!(fs_err::read_dir(folder.join(place::AUTHORITY)).unwrap().count(), 1);
    }
}
