//! Signals to a build at each of its steps: it ends soon, says so, and leaves everything as it was.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift_schema::exit_code;

use crate::cargo::{fake_cargo, is_gone_soon};
use crate::support::{Project, Ran};

/// Bytes of a file without content whose digest takes minutes, and no room on a disk.
const ENDLESS: &str = "300G";

/// Runs a shell on a terminal of its own and types Ctrl-C.
const TYPIST: &str = include_str!("../../../fixtures/support/typist.py");

/// Waits until the process has the file open: it reads it now, and will for long.
fn wait_until_it_reads(child: &mut Child, file: &Path) {
    let clock = torchlift::clock::Clock::start();
    let limit = clock.now().plus(std::time::Duration::from_secs(600));
    let file = file.canonicalize().unwrap();
    let fds = format!("/proc/{}/fd", child.id());
    let is_open =
        || fs_err::read_dir(&fds).unwrap().flatten().any(|fd| fs_err::read_link(fd.path()).is_ok_and(|to| to == file));
    while !is_open() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it had read `{}`", file.display());
        assert!(clock.now() < limit, "`{}` is not read", file.display());
        let _ = nix::poll::poll(&mut [], 10_u8);
    }
}

/// The program where cargo leaves it; there is one build.
fn executable(project: &Project) -> PathBuf {
    let builds = project.root.join("target/torchlift/builds");
    fs_err::read_dir(builds).unwrap().next().unwrap().unwrap().path().join("quick/linked")
}

/// Bytes of all that is published.
fn state(project: &Project) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| (name.clone(), fs_err::read(project.root.join("target/cluster").join(name)).unwrap());
    project.published().into_iter().map(read).collect()
}

#[test]
fn a_signal_while_what_was_built_is_read_ends_the_build_and_leaves_all_as_it_was() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let before = state(&project);
    let binary = executable(&project);
    let library = project.root.join("libtorch/test/cpu/lib/libc10.so");
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    // Once the binary's own digest would take for ever, once that of a library: then the copies are made already.
    for (signal, endless) in [(Signal::SIGTERM, &binary), (Signal::SIGINT, &binary), (Signal::SIGHUP, &library)] {
        project.write("src/main.rs", &format!("{main}\n// {signal} {}\n", endless.display()));
        let rustc = format!("unset CARGO\ncargo \"$@\" || exit 1\nexec truncate -s {ENDLESS} {endless:?}");
        let cargo = fake_cargo(&project, &rustc);
        let mut command = project.command(&["build"]);
        command.env("CARGO", &cargo).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        while fs_err::metadata(endless).unwrap().len() < 1 << 30 {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before cargo did");
            let _ = nix::poll::poll(&mut [], 10_u8);
        }
        wait_until_it_reads(&mut child, endless);
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let ran = Ran::of(&child.wait_with_output().unwrap()).fails(exit_code::INTERRUPTED);
        ran.says("`linked` was built and not published").says(&format!("interrupted by {signal}")).says("hint: ");
        assert!(state(&project) == before, "{signal}: something was published, or left behind");
    }
    project.write("src/main.rs", &main.replace("the answer is", "the reply is"));
    fs_err::remove_file(&library).unwrap();
    project.libtorch("cpu", false);
    project.run(&["build"]).ok();
    assert!(state(&project) != before && project.published().len() == 4);
}

#[test]
fn ctrl_c_typed_on_a_terminal_while_cargo_compiles_ends_it_and_all_that_it_started() {
    let project = Project::linked();
    let mark = project.beside("marks").join("ids");
    project.write(
        "build.rs",
        &format!(
            "use std::os::unix::process::CommandExt as _;\nfn main() {{\n    \
             let child = std::process::Command::new(\"sleep\").arg(\"600\").process_group(0).spawn().unwrap();\n    \
             let ids = format!(\"{{}} {{}}\", std::process::id(), child.id());\n    let mark = std::path::Path::new({mark:?});\n    \
             std::fs::write(mark.with_extension(\"new\"), ids).unwrap();\n    \
             std::fs::rename(mark.with_extension(\"new\"), mark).unwrap();\n    std::thread::park();\n}}\n"
        ),
    );
    let tool = project.command(&["build"]);
    let mut typist = Command::new("python3");
    typist.args(["-c", TYPIST]).arg(&mark).arg("\"$@\"").arg(tool.get_program()).args(tool.get_args());
    typist.current_dir(&project.root).env_clear().envs(project.env()).env("TERM", "xterm").stdin(Stdio::null());
    Ran::of(&typist.output().unwrap()).fails(exit_code::INTERRUPTED);
    let ids = fs_err::read_to_string(&mark).unwrap();
    let (script, apart) = ids.split_once(' ').unwrap();
    assert!(is_gone_soon(script), "the build script is still there");
    // What leaves cargo's group on purpose is its own master, as under cargo alone.
    let _ = kill(Pid::from_raw(apart.parse().unwrap()), Signal::SIGKILL);
    assert_eq!(project.published(), Vec::<String>::new());
}

#[test]
fn a_signal_that_was_ignored_on_entry_ends_no_build() {
    let project = Project::linked();
    let up = project.beside("marks").join("up");
    let go = project.beside("marks").join("go");
    let wait = format!(": > {up:?}\nuntil [ -e {go:?} ]; do sleep 0.01; done\nunset CARGO\nexec cargo \"$@\"");
    let cargo = fake_cargo(&project, &wait);
    let tool = project.command(&["build"]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(tool.get_program()).args(tool.get_args());
    shell.current_dir(&project.root).env_clear().envs(project.env()).env("CARGO", &cargo);
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !up.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before cargo was started");
        let _ = nix::poll::poll(&mut [], 10_u8);
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGHUP).unwrap();
    fs_err::write(&go, "").unwrap();
    Ran::of(&child.wait_with_output().unwrap()).ok();
    assert_eq!(project.published().len(), 4);
}

#[test]
fn cargo_gets_no_descriptor_of_the_tools_own() {
    let project = Project::linked();
    let list = project.beside("fds").join("list");
    let look = format!("ls /proc/self/fd > {list:?}\nunset CARGO\nexec cargo \"$@\"");
    project.run_with(&["build"], &[("CARGO", &fake_cargo(&project, &look))]).ok();
    // What whoever runs this test left open goes to every child, and is not the tool's doing.
    let output = Command::new("/bin/sh").args(["-c", "ls /proc/self/fd"]).output().unwrap();
    assert_eq!(fs_err::read_to_string(&list).unwrap(), String::from_utf8(output.stdout).unwrap());
}
