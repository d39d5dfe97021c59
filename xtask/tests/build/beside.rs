//! Several builds at once: they share the jobs, and none gets in another's way.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift_schema::exit_code;

use crate::cargo::is_gone_soon;
use crate::support::{Project, Ran};

/// Three kinds that cannot share a build, one host each.
fn three_kinds(extra: &str) -> Project {
    let project = Project::linked();
    let mut text = "[job.train]\nprofile = \"quick\"\n".to_owned();
    for kind in ["a", "b", "c"] {
        text.push_str(&format!(
            "[kind.{kind}]\nlibtorch = \"test/cpu\"\nbuild_env = {{ KIND = \"{kind}\" }}\n{extra}\n"
        ));
        text.push_str(&format!("[[host]]\nname = \"{kind}\"\nkind = \"{kind}\"\npath = \".\"\n"));
    }
    project.cluster(&text);
    project
}

/// A wrapper of rustc that writes down when each compiler begins and ends.
fn wrapper(project: &Project, log: &str) -> String {
    let text = format!(
        "case \"$*\" in *'--crate-name ___'*|*-vV*) exec \"$@\" ;; esac\n\
         echo + >> '{log}'\n\"$@\"\ncode=$?\nsleep 0.1\necho - >> '{log}'\nexit $code"
    );
    project.script("rustc-wrapper", &text).to_str().unwrap().to_owned()
}

/// The largest number of compilers that were at work at once, and how many there were.
fn at_once(log: &str) -> (usize, usize) {
    let (mut now, mut most, mut all) = (0_usize, 0, 0);
    for line in fs_err::read_to_string(log).unwrap().lines() {
        if line == "+" {
            now += 1;
            all += 1;
            most = most.max(now);
        } else {
            now -= 1;
        }
    }
    (most, all)
}

#[test]
fn three_kinds_at_once_succeed_time_after_time() {
    let project = three_kinds("");
    for _ in 0..5 {
        let ran = project.run(&["build", "--builds", "3", "-j", "2"]).ok();
        assert_eq!(ran.stderr.matches("Compiling linked").count(), 3, "{}", ran.stderr);
        for host in ["a", "b", "c"] {
            assert!(project.envelope_file(host).is_file());
        }
        fs_err::remove_dir_all(project.root.join("target")).unwrap();
    }
}

#[test]
fn builds_at_once_run_no_more_compilers_than_there_are_jobs() {
    for (jobs, builds) in [("1", "3"), ("2", "2"), ("1", "1")] {
        let project = three_kinds("");
        let log = project.beside("log").join("compilers").to_str().unwrap().to_owned();
        let wrapper = wrapper(&project, &log);
        project.run_with(&["build", "--builds", builds, "-j", jobs], &[("RUSTC_WRAPPER", wrapper.as_str())]).ok();
        let (most, all) = at_once(&log);
        assert!(most <= jobs.parse().unwrap(), "{most} at once, with -j {jobs} and --builds {builds}");
        assert_eq!(all, 6, "three build scripts and three programs");
    }
}

#[test]
fn when_one_fails_no_further_one_begins_and_nothing_is_published() {
    let project = three_kinds("");
    project.write("build.rs", "fn main() { if std::env::var(\"KIND\").unwrap() == \"a\" { panic!(\"not here\") } }\n");
    let ran = project.run(&["build", "--builds", "2", "-j", "1"]).fails(exit_code::BUILD);
    ran.says("not here").says("kind `a` (a)");
    assert!(project.published().is_empty());
    let ran = project.run(&["build", "--builds", "2", "--keep-going"]).fails(exit_code::BUILD);
    assert!(!ran.stderr.contains("more would have been built"), "{}", ran.stderr);
    assert!(project.published().is_empty());
}

#[test]
fn a_signal_ends_all_of_them() {
    let project = three_kinds("");
    let fifos = project.beside("fifos");
    for kind in ["a", "b", "c"] {
        nix::unistd::mkfifo(&fifos.join(kind), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let script = format!(
        "fn main() {{\n    let fifo = std::path::Path::new({fifos:?}).join(std::env::var(\"KIND\").unwrap());\n    \
         std::fs::write(fifo, std::process::id().to_string()).unwrap();\n    std::thread::park();\n}}\n"
    );
    project.write("build.rs", &script);
    let mut command = project.command(&["build", "--builds", "3", "-j", "3"]);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Each reading end waits for its writer: all three build scripts are at work then.
    let ids = ["a", "b", "c"].map(|kind| fs_err::read_to_string(fifos.join(kind)).unwrap());
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let ran = Ran::of(&child.wait_with_output().unwrap()).fails(exit_code::INTERRUPTED);
    ran.says("kind `a` (a); kind `b` (b); kind `c` (c)");
    for id in ids {
        assert!(is_gone_soon(&id), "process {id} is still there");
    }
    assert!(project.published().is_empty());
}
