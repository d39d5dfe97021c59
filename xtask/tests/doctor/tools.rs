//! Tools that are not there, fail, lie or hang.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift::clock::Clock;

use crate::examination::Examination;
use crate::support::Project;

/// Longest wait for what happens in a moment.
const LONG: Duration = Duration::from_secs(60);

/// The environment's `PATH` with a folder of scripts before it.
fn path(project: &Project) -> String {
    format!("{}:{}", project.beside("bin").display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_compiler_that_hangs_is_a_line_and_ends_with_the_doctor() {
    let project = Project::linked();
    let file = project.beside("bin").join("pid");
    let compiler = project.script("c++-hängt", &format!("sleep 600 & echo $! > '{}'; wait", file.display()));
    let found = Examination::of(&project, &["--patience", "2"], &[("CXX", compiler.to_str().unwrap())]);
    let look = found.only("tools", "c++-compiler");
    assert_eq!(look.state, "wrong", "{look:?}");
    assert!(look.found.contains("c++-hängt` gave no answer within 2 s"), "{look:?}");
    let pid = fs_err::read_to_string(file).unwrap();
    let stat = fs_err::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn a_compiler_that_fails_is_told_with_its_own_words() {
    let project = Project::linked();
    let compiler = project.script("broken", "echo 'fatal: no such header' >&2; exit 4");
    let look = Examination::of(&project, &[], &[("CXX", compiler.to_str().unwrap())]).only("tools", "c++-compiler");
    assert_eq!(look.state, "wrong");
    assert!(look.found.contains("fatal: no such header") && look.remedy.contains("`CXX`"), "{look:?}");
    let compiler = project.script("lazy", "exit 0");
    let found = Examination::of(&project, &[], &[("CXX", compiler.to_str().unwrap())]);
    let look = found.only("tools", "c++-compiler");
    assert!(look.state == "wrong" && look.found.contains("made no library"), "{look:?}");
    assert_eq!(found.code(), 1);
}

#[test]
fn a_compiler_with_arguments_is_called_with_them() {
    let project = Project::linked();
    let look = Examination::of(&project, &[], &[("CXX", "c++ -O0")]).only("tools", "c++-compiler");
    assert_eq!(
        (look.state.as_str(), look.found.starts_with("`c++ -O0` compiles and links C++17: ")),
        ("right", true),
        "{look:?}"
    );
}

#[test]
fn a_rustc_that_fails_keeps_nothing_else_from_being_told() {
    let project = Project::linked();
    project.cluster("[job.train]\ncolour = 'red'\n[[host]]\nname = \"a\"\npath = \"/no/such/ü\"\n");
    let rustc = project.script("rustc-broken", "echo 'error: toolchain is gone' >&2; exit 1");
    let found = Examination::of(&project, &[], &[("RUSTC", rustc.to_str().unwrap())]);
    let look = found.only("tools", "rustc");
    assert!(look.state == "wrong" && look.found.contains("toolchain is gone"), "{look:?}");
    assert_eq!(found.state("tools", "cargo"), "right");
    assert_eq!(found.state("tools", "c++-compiler"), "right");
    assert_eq!(found.state("project", "unknown-key"), "wrong");
    assert_eq!(found.state("project", "path-missing"), "wrong");
    assert_eq!(found.state("build", "plan"), "unchecked");
    assert_eq!(found.code(), 1);
}

#[test]
fn a_cargo_that_hangs_ends_no_examination() {
    let project = Project::linked();
    project.cluster("[job.train]\ncolour = 'red'\n[[host]]\nname = \"a\"\npath = \".\"\n");
    project.script("cargo", "sleep 600");
    let found = Examination::of(&project, &["--patience", "2"], &[("PATH", &path(&project))]);
    let look = found.only("tools", "cargo");
    assert!(look.state == "wrong" && look.found.contains("gave no answer within 2 s"), "{look:?}");
    assert_eq!(found.state("project", "workspace"), "wrong");
    assert_eq!(found.state("project", "unknown-key"), "wrong", "the file needs no cargo");
    assert_eq!(found.state("cluster", "hosts"), "unchecked");
    assert_eq!(found.all("store", "variant").len(), 1);
}

#[test]
fn what_calls_itself_cargo_and_is_not_is_named() {
    let project = Project::linked();
    project.script("cargo", "echo hello");
    let look = Examination::of(&project, &[], &[("PATH", &path(&project))]).only("tools", "cargo");
    assert!(look.state == "wrong" && look.found.contains("says `hello`"), "{look:?}");
}

#[test]
fn a_python_that_hangs_is_only_doubtful() {
    let project = Project::linked();
    for name in ["python3", "python"] {
        project.script(name, "exec /bin/sleep 600");
    }
    let bin = project.beside("bin");
    let found = Examination::of(&project, &["--patience", "2"], &[("PATH", bin.to_str().unwrap())]);
    let look = found.only("tools", "pip");
    assert!(look.state == "doubtful" && look.found.contains("gave no answer within 2 s"), "{look:?}");
}

#[test]
fn on_a_machine_without_any_tool_each_is_a_line_with_its_remedy() {
    let project = Project::linked();
    let found = Examination::of(&project, &[], &[("PATH", "/no/such folder")]);
    for (id, state, remedy) in [
        ("cargo", "wrong", "rustup.rs"),
        ("rustc", "wrong", "rustup.rs"),
        ("c++-compiler", "wrong", "apt-get install g++"),
        ("git", "doubtful", "apt-get install git"),
        ("pip", "doubtful", "apt-get install python3-pip"),
    ] {
        let look = found.only("tools", id);
        assert_eq!(look.state, state, "{look:?}");
        assert!(look.remedy.contains(remedy), "{look:?}");
    }
    assert_eq!(found.code(), 1);
}

#[test]
fn a_git_that_hangs_ends_no_examination() {
    let project = Project::linked();
    fs_err::create_dir(project.root.join(".git")).unwrap();
    project.script("git", "sleep 600");
    let found = Examination::of(&project, &["--patience", "2"], &[("PATH", &path(&project))]);
    let look = found.only("tools", "git");
    assert!(look.state == "doubtful" && look.found.contains("gave no answer within 2 s"), "{look:?}");
    let look = found.only("project", "sources");
    assert!(look.state == "doubtful" && look.found.contains("git says nothing of it"), "{look:?}");
    assert_eq!(found.state("build", "plan"), "right", "{:#}", found.json);
}

#[test]
fn a_rustc_that_hangs_at_what_a_target_has_ends_no_examination() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cpu\"\nrustflags = [\"-Ctarget-cpu=x86-64-v2\"]\n\
         [toolchain.\"x86_64-unknown-linux-gnu\"]\nlinker = \"cc\"\n[toolchain.\"aarch64-unknown-linux-gnu\"]\nlinker = \"cc\"\n\
         [[host]]\nname = \"node-1\"\nkind = \"k\"\npath = \".\"\nreach = \"local\"\nslots = 1\n",
    );
    let rustc =
        project.script("rustc", "case \"$*\" in *--print*) exec sleep 600;; esac\nPATH=\"$REST\" exec rustc \"$@\"");
    let rest = std::env::var("PATH").unwrap();
    let found =
        Examination::of(&project, &["--patience", "2"], &[("RUSTC", rustc.to_str().unwrap()), ("REST", rest.as_str())]);
    assert_eq!(found.state("tools", "rustc"), "right");
    assert_eq!(found.state("project", "job"), "right", "{:#}", found.json);
    assert!(found.looks().iter().all(|look| look.id != "no-answer"), "{:#}", found.json);
}

/// Waits until `is_so`.
#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let clock = Clock::start();
    let until = clock.now().plus(LONG);
    while !is_so() {
        assert!(!until.since(clock.now()).is_zero(), "{what}");
        std::thread::yield_now();
    }
}

/// The arguments of all children of a process, each as one text.
fn command_lines(parent: u32) -> Vec<String> {
    let threads = fs_err::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| fs_err::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> =
        children.flat_map(|all| all.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let line = |child: &String| fs_err::read_to_string(format!("/proc/{child}/cmdline")).ok();
    children.iter().filter_map(line).map(|line| line.trim_end_matches('\0').replace('\0', " ")).collect()
}

#[test]
fn ctrl_c_while_nvidia_smi_hangs_ends_it_too() {
    let project = Project::linked();
    let file = project.beside("bin").join("pids");
    let script = format!("sleep 600 & echo $$ $! > '{0}.new'; mv '{0}.new' '{0}'; wait", file.display());
    project.script("nvidia-smi", &script);
    let mut command = project.command(&["doctor"]);
    let mut doctor = command.env("PATH", path(&project)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait("`nvidia-smi` is asked", || file.exists());
    let pids = fs_err::read_to_string(&file).unwrap();
    let leader = pids.split_whitespace().next().unwrap();
    // A moment after its start.
    wait("`nvidia-smi` is watched over", || command_lines(doctor.id()).iter().any(|line| line.ends_with(leader)));
    kill(Pid::from_raw(doctor.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(doctor.wait().unwrap().signal(), Some(Signal::SIGINT as i32));
    for pid in pids.split_whitespace() {
        let stat = || fs_err::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
        wait("what was asked is gone", || stat().is_empty() || stat().contains(") Z "));
    }
}
