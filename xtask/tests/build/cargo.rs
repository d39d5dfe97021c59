//! Cargo inside of cargo: whose output is whose, what counts as success, and what is left of it afterwards.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift_schema::exit_code;

use crate::support::{Project, Ran};

/// A fake cargo: answers `metadata` through the real one, and `rustc` with what stands in `$1`.
pub(crate) fn fake_cargo(project: &Project, rustc: &str) -> String {
    let script = format!("if [ \"$1\" = rustc ]; then\n{rustc}\nfi\nunset CARGO\nexec cargo \"$@\"");
    project.script("fake-cargo", &script).to_str().unwrap().to_owned()
}

#[test]
fn a_build_script_that_fails_is_told_from_cargos_own_words_and_status() {
    let project = Project::linked();
    project.write("build.rs", "fn main() { eprintln!(\"no such luck\"); std::process::exit(1); }");
    let ran = project.run(&["build"]).fails(exit_code::BUILD);
    ran.says("no such luck").says("`linked` was not built for kind `k` (node-1, node-2)").says("exit code 101");
    assert_eq!(project.published(), Vec::<String>::new());
}

#[test]
fn compiler_errors_are_shown_as_cargo_shows_them() {
    let project = Project::linked();
    project.write("src/main.rs", "fn main() { let x: u32 = \"one\"; }");
    let ran = project.run(&["build"]).fails(exit_code::BUILD);
    ran.says("error[E0308]: mismatched types").says(" --> src/main.rs:1:26").says("building `linked` for kind `k`");
    ran.says("`linked` was not built for kind `k` (node-1, node-2)");
    assert_eq!(project.published(), Vec::<String>::new());
}

#[test]
fn only_stdout_is_read_for_messages_and_everything_else_passes_through() {
    let project = Project::linked();
    let noise = "echo 'plain words on stdout'\necho '{\"reason\":\"unheard-of\"}'\n\
                 echo '{\"reason\":\"build-finished\",\"success\":false}' >&2\n\
                 echo 'words on stderr' >&2\nunset CARGO\nexec cargo \"$@\"";
    let ran = project.run_with(&["build"], &[("CARGO", &fake_cargo(&project, noise))]).ok();
    ran.says("plain words on stdout").says("{\"reason\":\"unheard-of\"}").says("words on stderr");
    assert!(!ran.stdout.contains("words"), "{}", ran.stdout);
}

#[test]
fn a_cargo_that_says_nothing_of_a_program_is_an_error_with_the_programs_it_told_of() {
    let project = Project::linked();
    let dropped = "unset CARGO\ncargo build --quiet \"$2\" \"$3\" --target-dir \"$PWD/target/x\" || exit 1\nexit 0";
    let cargo =
        fake_cargo(&project, &format!("export LIBTORCH={:?}\n{dropped}", project.root.join("libtorch/test/cpu")));
    let ran = project.run_with(&["build"], &[("CARGO", &cargo)]).fails(exit_code::BUILD);
    ran.says("told of no bin `linked`").says("--message-format");
}

#[test]
fn a_failed_status_counts_even_when_the_messages_are_good() {
    let project = Project::linked();
    let cargo = fake_cargo(&project, "unset CARGO\ncargo \"$@\"\nexit 7");
    project.run_with(&["build"], &[("CARGO", &cargo)]).fails(exit_code::BUILD).says("exit code 7");
}

#[test]
fn ten_hosts_of_two_kinds_are_two_runs_of_cargo() {
    let project = Project::linked();
    project.libtorch("cu128", true);
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.a]\nlibtorch = \"test/cpu\"\n[kind.b]\nlibtorch = \"test/cu128\"\n\
         [[host]]\nname = \"a-[01-07]\"\nkind = \"a\"\npath = \".\"\nreach = \"local\"\n\
         [[host]]\nname = \"b-[1-3]\"\nkind = \"b\"\npath = \".\"\nreach = \"local\"\n",
    );
    let count = project.beside("count").join("runs");
    let cargo = fake_cargo(&project, &format!("echo run >> {count:?}\nunset CARGO\nexec cargo \"$@\""));
    project.run_with(&["build"], &[("CARGO", &cargo)]).ok();
    assert_eq!(fs_err::read_to_string(count).unwrap(), "run\nrun\n");
    assert_eq!(project.published().len(), 20);
}

#[test]
fn a_build_from_inside_a_build_script_ends() {
    let project = Project::linked();
    let outer = Project::copy_of("linked");
    outer.write(
        "build.rs",
        "fn main() {\n    println!(\"cargo::rustc-env=BUILT_WITH=outer\");\n    \
         let status = std::process::Command::new(std::env::var_os(\"TOOL\").unwrap())\n        \
         .args([\"build\", \"--manifest-path\"]).arg(std::env::var_os(\"INNER\").unwrap()).status().unwrap();\n    \
         assert!(status.success());\n}\n",
    );
    outer.write("src/main.rs", "fn main() {}");
    let mut command = std::process::Command::new("cargo");
    command.args(["build", "--offline"]).current_dir(&outer.root).env_clear().envs(project.env());
    command.env("TOOL", env!("CARGO_BIN_EXE_xtask")).env("INNER", project.root.join("Cargo.toml"));
    // The very folder whose lock the outer cargo holds.
    command.env("CARGO_TARGET_DIR", outer.root.join("target"));
    Ran::of(&command.output().unwrap()).ok();
    assert_eq!(project.published().len(), 4);
}

#[test]
fn a_build_that_would_wait_for_itself_is_refused() {
    let project = Project::linked();
    project.write(
        "build.rs",
        "fn main() {\n    let status = std::process::Command::new(std::env::var_os(\"TOOL\").unwrap())\n        \
         .arg(\"build\").status().unwrap();\n    assert!(status.success());\n}\n",
    );
    let ran = project.run_with(&["build"], &[("TOOL", env!("CARGO_BIN_EXE_xtask"))]).fails(exit_code::BUILD);
    ran.says("would wait for it for ever");
}

#[test]
fn a_lock_that_cargo_waits_for_is_named_with_its_holder() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let plan = project.run(&["build", "--dry-run", "--format", "json"]).ok().stdout;
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let dir = Path::new(plan["builds"][0]["dir"].as_str().unwrap()).join("quick");
    let lock = fs_err::File::open(dir.join(".cargo-lock")).unwrap();
    lock.file().lock().unwrap();
    let mut child = project.command(&["build"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let hint = lines.find(|line| line.contains("cargo waits for the lock on")).expect("the hint comes");
    assert!(hint.contains(".cargo-lock"), "{hint}");
    assert!(hint.contains(&format!("process {}", std::process::id())), "{hint}");
    drop(lock);
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
}

#[test]
fn two_builds_at_once_wait_for_each_other_and_both_succeed() {
    let project = Project::linked();
    let run = || Ran::of(&project.command(&["build"]).output().unwrap());
    std::thread::scope(|scope| {
        let both = [scope.spawn(run), scope.spawn(run)];
        both.into_iter().for_each(|one| drop(one.join().unwrap().ok()));
    });
    assert_eq!(project.published().len(), 4);
}

#[test]
fn a_signal_ends_cargo_and_all_that_it_started() {
    for (verb, signal) in [("build", Signal::SIGINT), ("launch", Signal::SIGTERM), ("build", Signal::SIGHUP)] {
        let project = Project::linked();
        let fifo = project.beside("fifo").join("started");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        project.write(
            "build.rs",
            &format!(
                "fn main() {{\n    let child = std::process::Command::new(\"sleep\").arg(\"600\").spawn().unwrap();\n    \
                 std::fs::write({fifo:?}, format!(\"{{}} {{}}\", std::process::id(), child.id())).unwrap();\n    \
                 std::thread::park();\n}}\n"
            ),
        );
        let child = project.command(&[verb]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        // The reading end waits for the writer: the build script is running now.
        let ids = fs_err::read_to_string(&fifo).unwrap();
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let ran = Ran::of(&child.wait_with_output().unwrap()).fails(exit_code::INTERRUPTED);
        ran.says("interrupted by").says("was not built for kind `k`");
        for id in ids.split(' ') {
            assert!(is_gone_soon(id), "{signal}: process {id} is still there");
        }
        assert_eq!(project.published(), Vec::<String>::new());
        assert!(!project.root.join(".torchlift").exists(), "no run was begun");
    }
}

#[test]
fn a_killed_tool_leaves_no_compiler_behind_and_the_next_build_works() {
    let project = Project::linked();
    let script = fs_err::read_to_string(project.root.join("build.rs")).unwrap();
    let fifo = project.beside("fifo").join("alive");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The end of the fifo is the end of the build script and of what it started; it has a minute for that.
    project.write(
        "build.rs",
        &format!(
            "use std::io::Write as _;\nfn main() {{\n    \
             let mut fifo = std::fs::OpenOptions::new().write(true).open({fifo:?}).unwrap();\n    \
             let mut sleep = std::process::Command::new(\"sleep\").arg(\"60\").stdout(fifo.try_clone().unwrap()).spawn().unwrap();\n    \
             fifo.write_all(b\"started\\n\").unwrap();\n    sleep.wait().unwrap();\n    \
             fifo.write_all(b\"survived\\n\").unwrap();\n}}\n"
        ),
    );
    let mut child = project.command(&["build"]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(fs_err::File::open(&fifo).unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("started"));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert_eq!(lines.next(), None);
    assert_eq!(project.published(), Vec::<String>::new());
    project.write("build.rs", &script);
    project.run(&["build"]).ok();
    assert_eq!(project.published().len(), 4);
}

/// Whether a process goes. SIGKILL was sent before the tool ended; the kernel may take a moment to carry it out on a
/// busy machine.
pub(crate) fn is_gone_soon(pid: &str) -> bool {
    let clock = torchlift::clock::Clock::start();
    let limit = clock.now().plus(std::time::Duration::from_secs(20));
    while is_running(pid) {
        if clock.now() > limit {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Whether a process is there and not merely waiting to be reaped by whoever inherited it.
fn is_running(pid: &str) -> bool {
    let status = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[test]
fn what_the_outer_cargo_set_does_not_reach_the_inner_one() {
    let project = Project::linked();
    project.write(
        "build.rs",
        "fn main() {\n    for (name, value) in std::env::vars() { if name.starts_with(\"RUSTUP_TOOLCHAIN\") || name == \"LD_LIBRARY_PATH\" {\n        \
         assert!(!value.contains(\"outer\"), \"{name}={value}\"); } }\n    \
         let libtorch = std::env::var(\"LIBTORCH\").unwrap();\n    \
         assert!(std::env::var(\"LIBTORCH_USE_PYTORCH\").is_err());\n    \
         println!(\"cargo::rustc-link-search=native={libtorch}/lib\");\n    \
         println!(\"cargo::rustc-link-lib=dylib=torch_cpu\");\n    println!(\"cargo::rustc-link-lib=dylib=c10\");\n    \
         println!(\"cargo::rustc-env=BUILT_WITH=inner\");\n}\n",
    );
    project
        .run_with(
            &["build"],
            &[
                ("CARGO", "/outer/toolchain/bin/cargo"),
                ("RUSTUP_TOOLCHAIN", "outer"),
                ("RUSTUP_TOOLCHAIN_SOURCE", "default"),
                ("LD_LIBRARY_PATH", "/outer/toolchain/lib/rustlib/x/lib:/outer/toolchain/lib"),
                ("CARGO_MANIFEST_DIR", "/outer"),
                ("RUST_RECURSION_COUNT", "15"),
                ("LIBTORCH_USE_PYTORCH", "1"),
                ("LIBTORCH", "/nowhere"),
            ],
        )
        .ok();
}

#[test]
fn rustflags_of_a_kind_join_those_of_the_user() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let with_flags = text.replace("[[host]]", "rustflags = [\"--cfg=of_kind\"]\n[[host]]");
    project.write("cluster.toml", &with_flags);
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    let check = "#[cfg(not(all(of_kind, of_user)))]\ncompile_error!(\"a flag is lost\");\n";
    project.write("src/main.rs", &format!("{main}\n{check}"));
    project.run_with(&["build"], &[("RUSTFLAGS", "--cfg=of_user")]).ok();
    for table in ["build", "target.'cfg(unix)'"] {
        project.write(".cargo/config.toml", &format!("[{table}]\nrustflags = [\"--cfg=of_user\"]\n"));
        project.run(&["build"]).ok();
    }
    project.write(".cargo/config.toml", "");
    project.run(&["build"]).fails(exit_code::BUILD).says("a flag is lost");
}

#[test]
fn an_edit_is_an_incremental_build_in_the_same_folder() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write("src/main.rs", &main.replace("the answer is", "the reply is"));
    let ran = project.run(&["build", "--format", "json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["builds"][0]["compiled"], 1);
    let build = &report["builds"][0];
    let ready = build["crates"][0]["ready_ms"].as_u64().unwrap();
    assert!(build["crates"][0]["name"] == "linked" && ready > 0 && ready <= build["elapsed_ms"].as_u64().unwrap());
    let builds = project.root.join("target/torchlift/builds");
    assert_eq!(fs_err::read_dir(builds).unwrap().count(), 1);
}

#[test]
fn cargos_target_folder_and_builds_dir_say_where_builds_go() {
    let project = Project::linked();
    let elsewhere = project.beside("anderswo ü");
    project.run_with(&["build"], &[("CARGO_TARGET_DIR", elsewhere.to_str().unwrap())]).ok();
    assert_eq!(fs_err::read_dir(elsewhere.join("torchlift/builds")).unwrap().count(), 1);
    let chosen = project.beside("chosen");
    project.run(&["build", "--builds-dir", chosen.to_str().unwrap()]).ok();
    assert_eq!(fs_err::read_dir(chosen).unwrap().count(), 1);
    assert!(!project.root.join("target/torchlift").exists());
    assert_eq!(project.published().len(), 4);
}

#[test]
fn locked_and_offline_reach_cargo() {
    let project = Project::linked();
    fs_err::remove_file(project.root.join("Cargo.lock")).unwrap();
    project.run(&["build", "--locked"]).fails(exit_code::BUILD).says("--locked");
    project.run(&["build", "--offline"]).ok();
}
