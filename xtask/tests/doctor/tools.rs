//! Tools that are not there, fail, lie or hang.

use crate::examination::Examination;
use crate::support::Project;

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
