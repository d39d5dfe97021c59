//! Commands arrive whole, ranks start as what they should be, and every failure names its step.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::*;

/// What a command borrows from.
struct Wanted {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    open_files: u64,
}

impl Wanted {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let env = self.env.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str().into()));
        let Self { program, args, cwd, open_files, .. } = self;
        Command { program, args, env: env.collect(), cwd, open_files: *open_files }.to_bytes()
    }
}

fn command() -> Wanted {
    Wanted {
        program: "/bin/prögram one".into(),
        args: vec!["".into(), "a b".into(), OsString::from_vec(vec![0xff, b'*'])],
        env: vec![("EMPTY".into(), "".into()), ("J".into(), "{\"a\":\"b c\"}".into())],
        cwd: "/tmp/ä b".into(),
        open_files: 1024,
    }
}

fn strings(image: &Image, starts: &[usize]) -> Vec<Vec<u8>> {
    starts.iter().map(|at| image.bytes[*at..].split(|byte| *byte == 0).next().unwrap().to_vec()).collect()
}

#[test]
fn a_command_arrives_byte_for_byte() {
    let image = Image::read(to_memfd(&command().to_bytes().unwrap()).unwrap()).unwrap();
    let args: [&[u8]; 4] = ["/bin/prögram one".as_bytes(), b"", b"a b", &[0xff, b'*']];
    assert_eq!(strings(&image, &image.args), args);
    let env: [&[u8]; 2] = [b"EMPTY=", b"J={\"a\":\"b c\"}"];
    assert_eq!(strings(&image, &image.env), env);
    assert_eq!(strings(&image, &[image.cwd]), ["/tmp/ä b".as_bytes()]);
    assert_eq!(image.open_files, 1024);
}

#[test]
fn a_nul_in_a_string_is_refused_and_never_cuts_it() {
    let mut with_nul = command();
    with_nul.args.push("a\0b".into());
    assert_eq!(with_nul.to_bytes().unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_cut_image_is_refused() {
    let bytes = command().to_bytes().unwrap();
    for length in 0..bytes.len() {
        assert!(Image::parse(bytes[..length].to_vec()).is_err(), "{length} bytes were taken for a whole image");
    }
    assert!(Image::parse(bytes).is_ok());
}

#[test]
fn the_bare_loop_waits_for_all() {
    assert!(bare_loop(Path::new("/bin/true"), 3).is_ok());
    let error = bare_loop(Path::new("/no/such/program"), 1).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

/// Starts a command as a guard would; gives its exit code and its output.
fn spawned(command: &Wanted) -> Result<(i32, String), SpawnFailure> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None).unwrap();
    let null = OwnedFd::from(fs_err::File::open("/dev/null").unwrap().into_parts().0);
    let image = Image::read(to_memfd(&command.to_bytes().unwrap()).unwrap()).unwrap();
    let (mut reader, writer) = io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let pid = Spawner::new(null).spawn(&image, &writer, &writer)?;
    drop(writer);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    match waitpid(Pid::from_raw(pid), None).unwrap() {
        WaitStatus::Exited(_, code) => Ok((code, output)),
        other => panic!("{other:?}"),
    }
}

fn plain(program: &Path) -> Wanted {
    Wanted { program: program.into(), args: Vec::new(), env: Vec::new(), cwd: "/".into(), open_files: 1024 }
}

fn shell(script: &str) -> Wanted {
    Wanted { args: vec!["-c".into(), script.into()], ..plain(Path::new("/bin/sh")) }
}

fn failure(command: &Wanted) -> (StartStep, Errno) {
    let SpawnFailure { step, errno } = spawned(command).unwrap_err();
    (step, errno)
}

fn file(dir: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = dir.path().join(name);
    fs_err::write(&path, text).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_rank_runs_with_its_arguments_environment_and_folder() {
    let dir = tempfile::Builder::new().prefix("földer ").tempdir().unwrap();
    let mut command = shell(r#"printf '%s|' "$PWD" "$0" "$1" "$A"; exit 7"#);
    command.args.extend(["".into(), "a 'b\" *".into()]);
    command.env = vec![("A".into(), "x=y\nz".into())];
    command.cwd = dir.path().into();
    let (code, output) = spawned(&command).unwrap();
    assert_eq!(code, 7);
    assert_eq!(output, format!("{}||a 'b\" *|x=y\nz|", dir.path().display()));
}

#[test]
fn an_environment_of_a_megabyte_arrives() {
    let mut command = shell("echo ${#A} ${#P}");
    command.env = vec![("A".into(), "x".repeat(120_000).into())];
    command.env.extend((0..8).map(|index| (format!("B{index}").into(), "y".repeat(120_000).into())));
    command.env.push(("P".into(), "z".into()));
    assert_eq!(spawned(&command).unwrap(), (0, "120000 1\n".to_owned()));
}

#[test]
fn a_script_with_a_shebang_runs_and_one_without_is_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let with = file(&dir, "with", "#!/bin/sh\necho script\n", 0o755);
    assert_eq!(spawned(&plain(&with)).unwrap(), (0, "script\n".to_owned()));
    let without = file(&dir, "without", "echo script\n", 0o755);
    assert_eq!(failure(&plain(&without)), (StartStep::Program, Errno::ENOEXEC));
}

#[test]
fn each_failure_names_its_step_and_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let program = |path: &Path| failure(&plain(path));
    assert_eq!(program(Path::new("/no/such/program")), (StartStep::Program, Errno::ENOENT));
    assert_eq!(program(dir.path()), (StartStep::Program, Errno::EACCES));
    assert_eq!(program(&file(&dir, "plain", "#!/bin/sh\n", 0o644)), (StartStep::Program, Errno::EACCES));
    assert_eq!(program(&file(&dir, "orphan", "#!/no/such/shell\n", 0o755)), (StartStep::Program, Errno::ENOENT));

    let mut homeless = shell("exit 0");
    homeless.cwd = dir.path().join("gone");
    assert_eq!(failure(&homeless), (StartStep::Folder, Errno::ENOENT));
    homeless.cwd = dir.path().join("plain");
    assert_eq!(failure(&homeless), (StartStep::Folder, Errno::ENOTDIR));

    let mut big = shell("exit 0");
    big.args.push("x".repeat(4 << 20).into());
    assert_eq!(failure(&big), (StartStep::Program, Errno::E2BIG));
}

#[test]
fn a_failed_start_leaves_no_zombie() {
    assert!(spawned(&plain(Path::new("/no/such/program"))).is_err());
    let own = std::process::id().cast_signed();
    let is_left = |process: &crate::process::tree::Process| {
        let name = fs_err::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        process.parent == own && process.is_zombie && name.starts_with("process::spawn")
    };
    assert!(!crate::process::tree::children().iter().any(is_left));
}

#[test]
fn a_rank_leads_its_group_with_its_limit_and_no_signal_blocked() {
    let mut command = shell(
        "read -r pid comm state parent group rest </proc/$$/stat; echo $((pid - group)); ulimit -Sn; exec grep SigBlk /proc/self/status",
    );
    command.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    command.open_files = 321;
    assert_eq!(spawned(&command).unwrap(), (0, "0\n321\nSigBlk:\t0000000000000000\n".to_owned()));
}
