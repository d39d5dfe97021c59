//! Keys: told by what their index and the modes of their files say.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use torchlift::clock;
use torchlift::plan::stamp;

use crate::examination::Examination;
use crate::support::Project;

const SCHEME: &str = r#"{
  "version": 1,
  "revision": 0,
  "holds": "authority",
  "authorities": [
    { "id": "40aa", "duty": "signs", "serial": "40aa01", "not_before": "2020-01-01T00:00:00Z", "not_after": "AUTHORITY" }
  ],
  "issued": [
    { "role": "host", "name": "node-a", "serial": "4001", "authority": "40aa", "not_before": "2020-01-01T00:00:00Z", "not_after": "FIRST" },
    { "role": "client", "name": "me", "serial": "4002", "authority": "40aa", "not_before": "2020-01-01T00:00:00Z", "not_after": "SECOND" },
    { "role": "host", "name": "gone", "serial": "4003", "authority": "40aa", "not_before": "2020-01-01T00:00:00Z", "not_after": "2020-06-01T00:00:00Z", "revoked": "2020-02-01T00:00:00Z" }
  ]
}
"#;

/// The stamp of so many days from now, and an hour.
fn in_days(days: i64) -> String {
    let seconds = i64::try_from(clock::wall().as_secs()).unwrap() + days * 86_400 + 3_600;
    stamp(Duration::from_secs(u64::try_from(seconds).unwrap()))
}

/// A folder of keys with an index that says these ends, in days from now: the authority's, a host's, a client's.
fn keys(project: &Project, [authority, first, second]: [i64; 3]) -> PathBuf {
    let folder = project.beside("config").join("torchlift/keys");
    fs_err::create_dir_all(folder.join("authority")).unwrap();
    let text = SCHEME
        .replace("AUTHORITY", &in_days(authority))
        .replace("FIRST", &in_days(first))
        .replace("SECOND", &in_days(second));
    for (name, text) in
        [("keys.json", text.as_str()), ("trust.pem", ""), ("revoked.pem", ""), ("authority/40aa.pem", "")]
    {
        fs_err::write(folder.join(name), text).unwrap();
        set(&folder.join(name), 0o600);
    }
    set(&folder, 0o700);
    set(&folder.join("authority"), 0o700);
    folder
}

fn set(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn where_there_are_none_that_is_right() {
    let project = Project::linked();
    let look = Examination::of(&project, &[], &[]).only("machine", "keys");
    assert!(
        look.state == "right"
            && look.found.contains("torchlift/keys`, not there: only hosts that are reached over `tls`"),
        "{look:?}"
    );
}

#[test]
fn keys_that_are_good_are_one_line() {
    let project = Project::linked();
    keys(&project, [3_000, 300, 200]);
    let found = Examination::of(&project, &[], &[]);
    let look = found.only("machine", "keys");
    let wanted =
        format!("the authority of 1 host and 1 client; the next to expire is client `me`, on {}", &in_days(200)[..10]);
    assert!(look.state == "right" && look.found.contains(&wanted), "{look:?}");
    assert!(
        found.looks().iter().all(|look| !look.id.starts_with("keys-")),
        "one that was revoked may expire: {:#}",
        found.json
    );
    assert_eq!(found.code(), 0);
}

#[test]
fn what_expires_within_a_month_is_doubtful_and_what_has_expired_is_wrong() {
    let project = Project::linked();
    keys(&project, [29, -1, 30]);
    let found = Examination::of(&project, &[], &[]);
    let soon = found.only("machine", "keys-expiring");
    assert_eq!(soon.state, "doubtful");
    assert!(soon.found.contains("the authority `40aa` expires on") && soon.found.ends_with("in 29 days"), "{soon:?}");
    assert!(soon.remedy.contains("`torchlift keys rotate`"), "{soon:?}");
    let late = found.only("machine", "keys-expired");
    assert!(late.state == "wrong" && late.found.contains("the certificate of host `node-a` expired on"), "{late:?}");
    assert!(late.remedy.contains("`torchlift keys issue node-a --force` and carry it"), "{late:?}");
    assert_eq!(found.code(), 1);
}

#[test]
fn files_that_others_can_read_or_change_and_files_that_are_gone_are_all_named() {
    let project = Project::linked();
    let folder = keys(&project, [3_000, 300, 200]);
    set(&folder.join("authority/40aa.pem"), 0o640);
    set(&folder.join("keys.json"), 0o646);
    fs_err::remove_file(folder.join("revoked.pem")).unwrap();
    let found = Examination::of(&project, &[], &[]);
    let open = found.all("machine", "keys-mode");
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(open.iter().all(|look| look.state == "wrong" && look.remedy.contains("chmod 600 ")), "{open:?}");
    assert!(open.iter().any(|look| look.found.contains("private key (mode 0640)")), "{open:?}");
    let gone = found.only("machine", "keys-missing");
    assert!(gone.place["file"].as_str().unwrap().ends_with("revoked.pem"), "{gone:?}");
}

#[test]
fn an_index_that_is_none_is_wrong_and_ends_nothing_else() {
    let project = Project::linked();
    let folder = keys(&project, [3_000, 300, 200]);
    fs_err::write(folder.join("keys.json"), "{").unwrap();
    let found = Examination::of(&project, &[], &[]);
    let look = found.only("machine", "keys-index");
    assert!(look.state == "wrong" && look.found.contains("not in the form of an index of keys"), "{look:?}");
    assert_eq!(found.state("machine", "temporary-folder"), "right");
}
