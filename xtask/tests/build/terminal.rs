//! What a terminal shows, and what a pipe gets instead.

use std::io::Read as _;
use std::process::Stdio;

use crate::support::Project;

/// Everything that a build writes to a terminal.
fn on_a_terminal(project: &Project, args: &[&str], env: &[(&str, &str)]) -> String {
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut command = project.command(args);
    command
        .env("TERM", "xterm")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // The command still has the other end open, and with it the terminal would never be at its end.
    drop(command);
    let mut bytes = Vec::new();
    // Linux ends a terminal whose other side is closed with EIO.
    let _ = std::fs::File::from(terminal.master).read_to_end(&mut bytes);
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_terminal_gets_a_bar_with_crate_names() {
    let project = Project::linked();
    let shown = on_a_terminal(&project, &["build"], &[]);
    assert!(shown.contains("kind k [") && shown.contains("1/1"), "{shown}");
    assert!(shown.contains("linked (build script)"), "the crate that was compiled last is named: {shown}");
    assert!(shown.contains("Compiling"), "cargo's own lines pass through: {shown}");
}

#[test]
fn builds_at_once_have_a_bar_each() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nprofile = \"quick\"\n[kind.a]\nlibtorch = \"test/cpu\"\n[kind.b]\nlibtorch = \"test/cpu\"\n\
         [[host]]\nname = \"a\"\nkind = \"a\"\npath = \".\"\n[[host]]\nname = \"b\"\nkind = \"b\"\npath = \".\"\n",
    );
    let shown = on_a_terminal(&project, &["build", "--no-share", "--builds", "2"], &[]);
    assert!(shown.contains("kind a [") && shown.contains("kind b [") && shown.contains("1/1"), "{shown}");
    assert_eq!(shown.matches("Compiling").count(), 2, "{shown}");
}

#[test]
fn cargo_writes_in_colour_on_a_terminal_and_not_where_that_is_unwanted() {
    let bold = "\u{1b}[1m";
    let is_coloured = |env: &[(&str, &str)]| {
        let shown = on_a_terminal(&Project::linked(), &["build"], env);
        assert!(shown.contains("Compiling"), "{shown}");
        shown.contains(bold)
    };
    assert!(is_coloured(&[]));
    for (name, value) in [("NO_COLOR", "1"), ("CARGO_TERM_COLOR", "never"), ("TERM", "dumb")] {
        assert!(!is_coloured(&[(name, value)]), "{name}");
    }
}

#[test]
fn a_pipe_gets_plain_lines() {
    let project = Project::linked();
    let ran = project.run(&["build"]).ok();
    ran.says("building `linked` for kind `k` (2 hosts) on torch 2.9.0+cpu").says("Compiling linked");
    assert!(!ran.stderr.contains('\u{1b}') && !ran.stderr.contains('\r'), "{:?}", ran.stderr);
}
