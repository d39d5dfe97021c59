//! A run that goes on by itself, and what is asked of one from another terminal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use torchlift::clock::Clock;

use crate::patience::within as until;
use crate::stage::{Seen, Stage, json, seen, within};

/// Ranks that run until they are told to end, or until a file is there that each looks for.
const WAITING: &str = "echo \"begin $RANK\"; until [ -e go ]; do sleep 0.02; done; echo \"end $RANK\"; exit 3";

/// A stage with a folder for sockets of its own.
struct Place {
    stage: Stage,
}

impl Place {
    fn new() -> Self {
        let stage = Stage::new();
        std::fs::DirBuilder::new().mode(0o700).create(stage.folder.join("rt")).unwrap();
        Self { stage }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.stage.command();
        command.env("XDG_RUNTIME_DIR", self.stage.folder.join("rt")).args(args);
        command
    }

    fn ask(&self, args: &[&str]) -> Seen {
        seen(&mut self.command(args))
    }

    /// Starts ranks of a shell program that go on by themselves; gives the run's id.
    fn detach(&self, ranks: &str, script: &str) -> String {
        let ran = self.ask(&["run", "--detach", "-n", ranks, "--", "/bin/sh", "-c", script]);
        ran.code(0).says("goes on by itself");
        let id = ran.stdout.trim().to_owned();
        assert_eq!(ran.stdout, format!("{id}\n"));
        id
    }

    fn status(&self, id: &str) -> Value {
        let ran = self.ask(&["status", id, "--format", "json"]);
        serde_json::from_str(&ran.code(0).stdout).unwrap()
    }

    fn socket(&self, id: &str) -> PathBuf {
        self.stage.folder.join("rt/torchlift/runs").join(format!("{id}.sock"))
    }

    fn go(&self) {
        self.stage.write("go", "", 0o644);
    }
}

/// Whatever a test leaves running ends with it.
impl Drop for Place {
    fn drop(&mut self) {
        let all = self.command(&["status", "--format", "json"]).output().unwrap();
        for run in serde_json::from_slice::<Vec<Value>>(&all.stdout).unwrap_or_default() {
            let _ = self.command(&["stop", "--kill", run["run_id"].as_str().unwrap_or_default()]).output();
        }
    }
}

/// Processes that carry this run's id.
fn processes_of(id: &str) -> usize {
    let marker = format!("TORCHLIFT_RUN_ID={id}\0");
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    let environments = entries.filter_map(|entry| fs_err::read(entry.path().join("environ")).ok());
    environments.filter(|bytes| bytes.windows(marker.len()).any(|window| window == marker.as_bytes())).count()
}

#[test]
fn a_detached_run_gives_the_shell_back_and_is_shown_stopped_and_gone() {
    let place = Place::new();
    let id = place.detach("2", WAITING);
    let status = place.status(&id);
    assert_eq!(
        (&status["version"], &status["run_id"], &status["is_stopping"]),
        (&1.into(), &id.as_str().into(), &false.into())
    );
    assert_eq!(status["run_dir"], place.stage.only_run().to_str().unwrap());
    until("both ranks", || (place.status(&id)["ranks"][1]["state"] == "running").then_some(()));
    let listed = place.ask(&["status"]);
    assert!(listed.code(0).stdout.contains(&format!("{id}  2 ranks: 2 running  since ")), "{}", listed.stdout);
    let shown = place.ask(&["status", &id[..id.len() - 1]]).stdout;
    assert!(shown.contains("rank 1 on `local` runs, pid "), "{shown}");
    let stopped = place.ask(&["stop"]);
    stopped.code(0).says(&format!("run `{id}` was ended by SIGTERM"));
    assert_eq!(processes_of(&id), 0);
    assert!(!place.socket(&id).exists());
    assert_eq!(place.ask(&["status"]).stdout, "no run of yours lives here\n");
    let over = place.ask(&["status", &id]);
    assert!(
        over.code(0).stdout.starts_with(&format!("{id}  over: signaled, exit code 143, after ")),
        "{}",
        over.stdout
    );
    assert_eq!(place.status(&id)["outcome"]["name"], "SIGTERM");
    let console = fs_err::read_to_string(place.stage.only_run().join("console.log")).unwrap();
    assert!(console.contains("was ended by SIGTERM"), "{console}");
}

#[test]
fn what_keeps_a_detached_run_from_starting_has_the_same_code_and_the_same_words() {
    for args in [["-n", "1", "--", "/no/such"], ["-n", "0", "--", "/bin/true"], ["-n", "1", "--", "no-such-program"]] {
        let place = Place::new();
        let (plain, detached) =
            (place.ask(&[&["run"][..], &args].concat()), place.ask(&[&["run", "--detach"][..], &args].concat()));
        assert_eq!((plain.status, &plain.stderr), (detached.status, &detached.stderr));
        assert_eq!(detached.stdout, "");
        assert!(place.stage.runs().is_empty());
    }
}

#[test]
fn a_run_whose_id_cannot_be_printed_is_said_to_go_on() {
    let place = Place::new();
    let mut command = place.command(&["run", "--detach", "-n", "1", "--", "/bin/sh", "-c", WAITING]);
    let full = fs_err::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = command.stdout(full.into_parts().0).stderr(Stdio::piped()).spawn().unwrap();
    let output = within(child, Child::wait_with_output);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let run = place.stage.only_run();
    let id = run.file_name().unwrap().to_str().unwrap();
    assert!(
        told.contains(&format!("the run `{id}` goes on")) && told.contains(&format!("torchlift stop {id}")),
        "{told}"
    );
    assert_eq!(place.status(id)["run_id"], id);
}

#[test]
fn a_run_that_nobody_could_ask_is_not_detached() {
    let place = Place::new();
    fs_err::set_permissions(place.stage.folder.join("rt"), std::fs::Permissions::from_mode(0o700)).unwrap();
    fs_err::create_dir(place.stage.folder.join("rt/torchlift")).unwrap();
    fs_err::set_permissions(place.stage.folder.join("rt/torchlift"), std::fs::Permissions::from_mode(0o755)).unwrap();
    place.ask(&["run", "--detach", "-n", "1", "--", "/bin/true"]).code(1).says("is not a folder of this user alone");
    assert!(place.stage.runs().is_empty());
    let plain = place.ask(&["run", "-n", "1", "--", "/bin/true"]);
    plain.code(0).says("warning: `torchlift status` will not find this run");
}

#[test]
fn logs_of_a_living_run_go_on_to_its_end_and_are_each_byte_once() {
    let place = Place::new();
    let id = place.detach("2", WAITING);
    let mut follow = place.command(&["logs", "-f", "--stdout"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut first = [lines.next().unwrap(), lines.next().unwrap()];
    first.sort();
    assert_eq!(first, ["[local:0] begin 0", "[local:1] begin 1"]);
    let now = place.ask(&["logs", "--rank", "1", "--stdout", &id]);
    assert_eq!(now.code(0).stdout, "begin 1\n");
    place.go();
    // Rank 0 or 1 fails first, and the other may be told to end before it writes its last line.
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().all(|line| line.contains("] end ")) && (1..=2).contains(&rest.len()), "{rest:?}");
    assert!(within(follow, |mut child: Child| child.wait()).success());
    place.ask(&["logs", &id, "--rank", "7"]).code(200).says("has no rank 7").says("its ranks are 0 to 1");
    place.ask(&["logs", "no-such-run"]).code(200).says(&format!("there are `{id}`"));
    place.ask(&["logs"]).code(200).says("no run of yours lives here");
}

#[test]
fn bytes_of_one_stream_are_shown_as_they_are() {
    let place = Place::new();
    let id = place.detach("1", "head -c 3000000 /dev/urandom; printf 'no end'");
    let mut follow = place.command(&["logs", "-f", "--stdout", &id]);
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(within(child, |mut child: Child| child.wait()).success());
    // A run that was over before it was asked shows what there is: its end is waited for.
    until("the report", || place.stage.only_run().join("report.json").exists().then_some(()));
    let whole = place.stage.log(0, "stdout");
    assert_eq!(whole.len(), 3_000_006);
    assert!(bytes == whole, "{} bytes of {}", bytes.len(), whole.len());
}

#[test]
fn whoever_attaches_sees_what_comes_and_ends_with_the_runs_own_code() {
    let place = Place::new();
    let id = place.detach("1", WAITING);
    until("the first line", || place.ask(&["logs"]).stdout.contains("begin").then_some(()));
    let mut attach = place.command(&["attach"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(attach.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(first.starts_with(&format!("run `{id}`: 8 B were written before")), "{first}");
    let mut other = place.command(&["attach", &id]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(other.stderr.take().unwrap());
    told.read_line(&mut String::new()).unwrap();
    kill(Pid::from_raw(other.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(within(other, |mut child: Child| child.wait()).signal(), Some(2));
    assert_eq!(place.status(&id)["is_stopping"], false, "who leaves ends nothing");
    place.go();
    let (mut stdout, mut rest) = (String::new(), String::new());
    attach.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(within(attach, |mut child: Child| child.wait()).code(), Some(3));
    assert_eq!(stdout, "[local:0] end 0\n");
    assert!(rest.contains("rank 0 on host `local`") && rest.contains("exited with 3"), "{rest}");
}

#[test]
fn two_who_stop_a_run_at_once_do_not_cut_its_grace_and_kill_does() {
    let place = Place::new();
    let stubborn = "trap 'echo told' TERM; echo up; until [ -e go ]; do sleep 0.02; done";
    let id = place.detach("1", stubborn);
    until("its trap", || place.ask(&["logs"]).stdout.contains("up").then_some(()));
    let stop = |args: &[&str]| place.command(args).stderr(Stdio::piped()).spawn().unwrap();
    let two = [stop(&["stop"]), stop(&["stop", &id])];
    until("the stop", || (place.status(&id)["is_stopping"] == true).then_some(()));
    let console = place.stage.only_run().join("console.log");
    until("the signal", || fs_err::read_to_string(&console).unwrap().contains("told").then_some(()));
    assert_eq!(place.status(&id)["ranks"][0]["state"], "running");
    place.ask(&["stop", "--kill"]).code(0).says("was ended by SIGTERM");
    for child in two {
        assert!(within(child, |mut child: Child| child.wait()).success());
    }
    assert_eq!(
        (processes_of(&id), json(&place.stage.only_run().join("report.json"))["exit_code"].clone()),
        (0, 143.into())
    );
}

#[test]
fn kill_ends_a_stubborn_run_at_once_though_nobody_asked_it_before() {
    let place = Place::new();
    let id = place.detach("2", "trap '' TERM; echo up; while :; do sleep 0.02; done");
    until("their traps", || (place.ask(&["logs"]).stdout.matches("up").count() == 2).then_some(()));
    let pid = place.status(&id)["pid"].clone();
    let mode = fs_err::metadata(place.socket(&id)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let watching: Vec<UnixStream> = (0..70)
        .map(|_| {
            let mut stream = UnixStream::connect(place.socket(&id)).unwrap();
            stream.write_all(b"\"watch\"\n").unwrap();
            stream
        })
        .collect();
    place.status(&id);
    place.ask(&["attach"]).code(204).says("goes on and cannot be watched").says("64 watch it already");
    place.ask(&["logs", "-f"]).code(204).says("cannot be watched");
    let clock = Clock::start();
    place.ask(&["stop", "--kill"]).code(0).says(&format!("run `{id}` is over"));
    // Far below the grace, 30 s.
    assert!(clock.now().since(torchlift::clock::Moment::after_zero(std::time::Duration::ZERO)).as_secs() < 15);
    // One that nobody has waited for has no command line any more.
    assert_eq!(fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default(), b"", "the launcher is gone as well");
    assert_eq!(processes_of(&id), 0);
    drop(watching);
}

#[test]
fn a_detached_run_outlives_its_terminal_and_a_killed_one_leaves_nothing_but_a_word() {
    let place = Place::new();
    // A session of its own, whose leader ends: everything in it gets SIGHUP.
    let script = format!(
        "'{}' run --quiet --detach -n 1 -- /bin/sh -c '{WAITING}'; kill -HUP 0",
        env!("CARGO_BIN_EXE_torchlift")
    );
    let mut shell = place.command(&[]);
    let mut command = Command::new("/usr/bin/setsid");
    command.args(["--wait", "/bin/sh", "-c", &script]).current_dir(&place.stage.folder);
    for (name, value) in shell.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    shell = command;
    let ran = seen(&mut shell);
    let id = ran.stdout.trim().to_owned();
    until("its rank", || (place.status(&id)["ranks"][0]["state"] == "running").then_some(()));
    let pid = place.status(&id)["pid"].as_i64().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    until("the end of all", || (processes_of(&id) == 0).then_some(()));
    let listed = place.ask(&["status"]);
    assert!(listed.code(0).stdout.contains(&format!("{id}  its launcher is gone without a word")), "{}", listed.stdout);
    assert!(!place.socket(&id).exists());
    place.ask(&["status", &id]).code(200).says("has no report");
    assert_eq!(place.ask(&["logs", &id, "--stdout"]).code(0).stdout, "begin 0\n");
    place.ask(&["stop", &id]).code(200).says("is over");
}

#[test]
fn a_foreground_command_that_is_killed_before_the_start_leaves_no_run() {
    let place = Place::new();
    // Nothing can be begun before this file is there: the check of it is a read that waits.
    let fifo = place.stage.folder.join("envelope.json");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let mut command = place.command(&["run", "--detach", "--envelopes", fifo.to_str().unwrap()]);
    let mut foreground = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
    // Opens when the second process reads it.
    let mut writer = fs_err::OpenOptions::new().write(true).open(&fifo).unwrap();
    kill(Pid::from_raw(foreground.id().cast_signed()), Signal::SIGKILL).unwrap();
    foreground.wait().unwrap();
    let envelope = r#"{"local":{"bin":"bin/true","cwd_subpath":"","ld_library_path":""}}"#;
    fs_err::create_dir(place.stage.folder.join("bin")).unwrap();
    fs_err::copy("/bin/true", place.stage.folder.join("bin/true")).unwrap();
    writer.write_all(envelope.as_bytes()).unwrap();
    drop(writer);
    until("the second process's end", || {
        let mut entries = fs_err::read_dir("/proc").unwrap().flatten();
        let name = fifo.to_str().unwrap().as_bytes();
        let is_there = |bytes: Vec<u8>| bytes.windows(name.len()).any(|window| window == name);
        let lives = entries.any(|entry| fs_err::read(entry.path().join("cmdline")).is_ok_and(is_there));
        (!lives).then_some(())
    });
    assert!(place.stage.runs().is_empty(), "{:?}", place.stage.runs());
}

#[test]
fn a_suspended_launcher_is_told_as_silent_and_a_hundred_who_watch_keep_nobody_from_asking() {
    let place = Place::new();
    let id = place.detach("1", WAITING);
    let watching: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = UnixStream::connect(place.socket(&id)).unwrap();
            stream.write_all(b"\"watch\"\n").unwrap();
            stream
        })
        .collect();
    let status = place.status(&id);
    drop(watching);
    let pid = Pid::from_raw(status["pid"].as_i64().unwrap() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let listed = place.ask(&["status"]);
    assert_eq!(listed.code(0).stdout, format!("{id}  gives no answer: its launcher may be suspended\n"));
    place.ask(&["logs", &id]).code(204).says("gives no answer").says("kill -CONT");
    kill(pid, Signal::SIGCONT).unwrap();
    assert_eq!(place.status(&id)["ranks"][0]["state"], "running");
}

#[test]
fn nonsense_and_silence_on_the_socket_disturb_nobody() {
    let place = Place::new();
    let id = place.detach("1", WAITING);
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(place.socket(&id)).unwrap()).collect();
    for nonsense in [&b"\x00\xff\n"[..], b"{}\n", b"\"pause\"\n", &[b'['; 5000], b"{\"stop\":{}}\n"] {
        let mut stream = UnixStream::connect(place.socket(&id)).unwrap();
        // It may have closed before all of it was written.
        let _ = stream.write_all(nonsense);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("{\"refused\":{\"message\":"), "{answer}");
    }
    assert_eq!(place.status(&id)["ranks"][0]["state"], "running");
    let mode = |path: PathBuf| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.stage.folder.join("rt/torchlift/runs")), 0o700);
    place.go();
    until("the end", || place.stage.only_run().join("report.json").exists().then_some(()));
    drop(silent);
    until("its socket to go", || (!place.socket(&id).exists()).then_some(()));
}
