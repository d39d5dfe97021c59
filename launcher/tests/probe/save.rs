//! `--save`: nothing in the file is lost, and nothing half is in it.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use torchlift::preflight::host::saved::{self, Saved, SavedError};
use torchlift_schema::host::{CoreFacts, CpuFacts, SystemFacts};
use torchlift_schema::{ClusterFacts, HostFacts, facts};

use crate::{probe, stdout, text};

fn facts_of(arch: &str) -> HostFacts {
    let (system, cores) = (SystemFacts::default(), CoreFacts::default());
    HostFacts::new("2026-11-30T14:23:05Z", "0.0.0", system, CpuFacts::new(arch), cores)
}

fn hosts_in(file: &Path) -> Vec<String> {
    saved::read(file).unwrap().unwrap().hosts.into_keys().collect()
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn facts_lie_beside_the_nearest_cluster_file_and_one_host_leaves_the_others_alone() {
    let project = tempfile::Builder::new().prefix("ein Projekt é ").tempdir().unwrap();
    fs_err::write(project.path().join("cluster.toml"), "schema = 1\n").unwrap();
    let below = project.path().join("src/deep");
    fs_err::create_dir_all(&below).unwrap();
    let file = project.path().join("cluster.facts.json");
    let save = |name: &str| {
        let output = probe(&below, &["--save", "--host", name]).output().unwrap();
        stdout(&output);
        text(&output.stderr)
    };
    assert!(save("b").contains("host `b` added to"));
    assert!(save("a").contains("host `a` added to"));
    let before = fs_err::read_to_string(&file).unwrap();
    assert!(save("a").contains("host `a` replaced in"));
    assert_eq!(hosts_in(&file), ["a", "b"]);
    let after = fs_err::read_to_string(&file).unwrap();
    let of_b = |text: &str| text[text.find("\n    \"b\": {").unwrap()..].to_owned();
    assert_eq!(of_b(&before), of_b(&after), "the lines of another host are as they were");
    let left: Vec<_> = fs_err::read_dir(project.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "no lock and no temporary file stays: {left:?}");
}

#[test]
fn the_json_on_stdout_is_what_would_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let output = probe(folder.path(), &["--format", "json", "--host", "a", "--save", "x.json"]).output().unwrap();
    assert_eq!(stdout(&output), fs_err::read_to_string(&file).unwrap());
}

#[test]
fn without_a_cluster_file_the_file_has_to_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = probe(folder.path(), &["--save", "--host", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(200));
    assert!(text(&output.stderr).contains("--save cluster.facts.json"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "nothing is read for what cannot be saved");
}

#[test]
fn hosts_that_save_at_once_all_find_their_entries_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..8).map(|number| format!("node-{number}")).collect();
    let start = |name: &String| -> Child {
        let mut command = probe(folder.path(), &["--save", "f.json", "--host", name]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let running: Vec<Child> = names.iter().map(start).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(hosts_in(&folder.path().join("f.json")), names);
}

#[test]
fn many_writers_in_one_process_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..25 {
                    saved::save(file, &format!("w{writer}-{number}"), facts_of("x86_64"), PATIENCE).unwrap();
                }
            });
        }
    });
    assert_eq!(hosts_in(&file).len(), 100);
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1, "the lock is gone");
}

#[test]
fn a_lock_that_another_holds_is_waited_for_and_named_when_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    let lock = fs_err::File::create(folder.path().join(".f.json.lock")).unwrap();
    lock.file().lock().unwrap();
    let error = saved::save(&file, "a", facts_of("x86_64"), Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, SavedError::Busy { .. }) && error.to_string().contains(".f.json.lock"), "{error}");
    assert!(!file.exists());
    lock.file().unlock().unwrap();
    // Left behind by one that was killed: it holds nothing any more.
    assert_eq!(saved::save(&file, "a", facts_of("x86_64"), PATIENCE).unwrap(), Saved::Added);
    assert_eq!(saved::save(&file, "a", facts_of("aarch64"), PATIENCE).unwrap(), Saved::Replaced);
}

#[test]
fn a_file_that_this_version_does_not_know_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    for (text, words) in [
        ("{\"version\": 2, \"hosts\": []}", "version 2"),
        ("{\"version\": 1, \"revision\": 9, \"hosts\": {}}", "later torchlift"),
        ("{\"version\": 1, \"hosts\": {}", "ends too early"),
        ("", "ends too early"),
        ("<<<<<<< HEAD\n", "no JSON"),
    ] {
        fs_err::write(&file, text).unwrap();
        let output = probe(folder.path(), &["--save", "f.json", "--host", "a"]).output().unwrap();
        assert_eq!(output.status.code(), Some(200), "{text}");
        let said = crate::text(&output.stderr);
        assert!(said.contains(words) && said.contains("hint: "), "{text}: {said}");
        assert_eq!(fs_err::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [pipe.as_path(), folder.path(), Path::new("/dev/null")] {
        let error = saved::save(path, "a", facts_of("x86_64"), PATIENCE).unwrap_err();
        assert!(matches!(error, SavedError::NotAFile { .. }), "{error}");
    }
    let error = saved::save(&folder.path().join("no/f.json"), "a", facts_of("x86_64"), PATIENCE).unwrap_err();
    assert!(matches!(error, SavedError::Unwritable { .. }), "{error}");
}

#[test]
fn through_a_link_the_file_behind_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real.json"), folder.path().join("link.json"));
    fs_err::write(&file, facts::to_text(&ClusterFacts::default())).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    saved::save(&link, "a", facts_of("x86_64"), PATIENCE).unwrap();
    assert_eq!(hosts_in(&file), ["a"]);
    assert!(fs_err::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_link_to_nothing_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink("elsewhere/real.json", &link).unwrap();
    let output = probe(folder.path(), &["--save", "link.json", "--host", "a"]).output().unwrap();
    assert_eq!(output.status.code(), Some(200));
    assert!(text(&output.stderr).contains("link.json` is no regular file"), "{}", text(&output.stderr));
    assert_eq!(fs_err::read_link(&link).unwrap(), Path::new("elsewhere/real.json"));
}

#[test]
fn a_name_that_is_no_utf_8_and_a_file_of_any_size_are_told_as_what_they_are() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"f\xff.json"));
    let error = saved::save(&odd, "a", facts_of("x86_64"), PATIENCE).unwrap_err();
    assert!(error.to_string().ends_with("has a name that is no UTF-8"), "{error}");
    let huge = folder.path().join("huge.json");
    fs_err::File::create(&huge).unwrap().set_len(5 << 30).unwrap();
    let error = saved::read(&huge).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("5368709120 bytes"), "{cause}");
}
