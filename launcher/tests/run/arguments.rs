//! The command line: what goes through it unchanged, and what it refuses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use crate::stage::{Stage, seen, seen as seen_of, within};

#[test]
fn arguments_reach_a_rank_to_the_byte() {
    let stage = Stage::new();
    let odd: Vec<&[u8]> = vec![
        b"",
        b"*",
        b"$HOME",
        b"a b",
        b"it's",
        b"\"q\"",
        b"\\",
        b"x\ny",
        b"\t",
        b"--flag",
        b"-4C",
        b"--x=\"a b\"",
        b"\xb1\xff",
        b"caf\xc3\xa9",
        b"`id`",
        b"(x)",
        b"{{}}",
        b"--",
    ];
    let mut args: Vec<OsString> =
        ["run", "--nproc", "1", "--", "/bin/sh", "-c", "printf '%s\\0' \"$@\"", "sh"].map(OsString::from).to_vec();
    args.extend(odd.iter().map(|bytes| OsStr::from_bytes(bytes).to_owned()));
    stage.run(args).code(0);
    let mut expected = odd.join(&0);
    expected.push(0);
    assert_eq!(stage.log(0, "stdout"), expected);
}

#[test]
fn values_with_brackets_quotes_and_line_ends_reach_a_rank() {
    let stage = Stage::new();
    let json = r#"J={"a":"b c", "d": ["e"]}"#;
    let options =
        ["--nproc", "1", "--env", json, "--env", "P=(x) $HOME 'y'", "--env", "N=1\n2", "--env", "E=", "--env", "Q=a=b"];
    let seen = stage.sh(&options, r#"printf '%s|' "$J" "$P" "$N" "${E-unset}" "$Q""#);
    seen.code(0);
    assert_eq!(stage.log(0, "stdout"), b"{\"a\":\"b c\", \"d\": [\"e\"]}|(x) $HOME 'y'|1\n2||a=b|");
}

#[test]
fn a_rank_reads_nothing_and_runs_where_torchlift_does() {
    let stage = Stage::new();
    stage.sh(&["--nproc", "1"], "readlink /proc/$$/fd/0; pwd; echo \"$PWD\"").code(0);
    let folder = stage.folder.to_str().unwrap();
    assert_eq!(String::from_utf8(stage.log(0, "stdout")).unwrap(), format!("/dev/null\n{folder}\n{folder}\n"));
}

#[test]
fn each_rank_sees_one_of_the_cards_on_request() {
    let stage = Stage::new();
    let script = "echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK";
    let run = |nproc: &str| {
        let mut command = stage.command();
        command.env("CUDA_VISIBLE_DEVICES", "3,5").args(["run", "--nproc", nproc, "--one-gpu-per-rank", "--quiet"]);
        seen(command.args(["--", "/bin/sh", "-c", script]))
    };
    run("2").code(0);
    assert_eq!((stage.log(0, "stdout"), stage.log(1, "stdout")), (b"3 0\n".to_vec(), b"5 0\n".to_vec()));
    run("3").code(200).says("error[too-few-devices]");
}

#[test]
fn a_program_with_a_slash_is_this_folder_s_and_one_without_is_looked_up() {
    let stage = Stage::new();
    stage.write("bin/tool", "#!/bin/sh\necho mine\n", 0o755);
    assert_eq!(stage.run(["run", "--nproc", "1", "--", "bin/tool"]).code(0).stdout, "[local:0] mine\n");
    assert_eq!(stage.run(["run", "--nproc", "1", "--", "./bin/tool"]).code(0).stdout, "[local:0] mine\n");
    assert_eq!(stage.run(["run", "--nproc", "1", "--", "echo", "x"]).code(0).stdout, "[local:0] x\n");
    let path = format!("{}:/usr/bin:/bin", stage.folder.join("bin").display());
    let seen = seen(stage.command().env("PATH", path).args(["run", "--nproc", "1", "--", "tool"]));
    assert_eq!(seen.code(0).stdout, "[local:0] mine\n");
}

#[test]
fn a_command_line_that_cannot_be_meant_is_200() {
    let stage = Stage::new();
    for args in [
        &["run"][..],
        &["run", "--nproc", "2"],
        &["run", "--nproc", "0", "--", "true"],
        &["run", "--nproc", "two", "--", "true"],
        &["run", "--nproc", "1", "--grace", "5x", "--", "true"],
        &["run", "--nproc", "1", "--env", "NO_VALUE", "--", "true"],
        &["run", "--nproc", "1", "--env", "RANK=3", "--", "true"],
        &["run", "--nproc", "1", "--env-pass", "MASTER_ADDR", "--", "true"],
        &["run", "--nproc", "1", "--master-port", "0", "--", "true"],
        &["run", "--nproc", "1", "--master-port", "70000", "--", "true"],
        &["run", "--nproc", "1", "--envelopes", "x", "--", "true"],
        &["run", "--nproc", "1", "--host", "a", "--", "true"],
        &["run", "--envelopes", "nowhere"],
        &["run", "--nproc", "1", "true"],
        &["no-such-verb"],
    ] {
        let seen = stage.run(args);
        assert_eq!(seen.status.code(), Some(200), "{args:?}\n{}", seen.stderr);
        assert!(seen.stderr.starts_with("error"), "{args:?}\n{}", seen.stderr);
        assert_eq!(seen.stdout, "");
    }
    assert!(stage.runs().is_empty());
}

#[test]
fn a_variable_has_a_name_that_shells_pass_on() {
    let stage = Stage::new();
    for name in ["", "A\n", "A\x1b[31m", "A B", "A.B", "A-B", "1A", "Ä", "BASH_FUNC_f%%"] {
        let set = stage.run(["run", "--nproc", "1", "--env", &format!("{name}=b"), "--", "true"]);
        set.code(200).says("invalid value").says("--env <NAME=VALUE>");
        let passed = stage.run(["run", "--nproc", "1", "--env-pass", name, "--", "true"]);
        passed.code(200).says("--env-pass <NAME>");
    }
    let seen = stage.run(["run", "--nproc", "1", "--env", "A\n=b", "--", "true"]);
    seen.says(r"`A\n` is no name of a variable; use letters, digits and `_`, and no digit first");
    // What is merely inherited is left as it is.
    let mut command = stage.command();
    command.env("A.B", "kept").args(["run", "--nproc", "1", "--", "/usr/bin/printenv", "A.B"]);
    assert_eq!(seen_of(&mut command).code(0).stdout, "[local:0] kept\n");
}

#[test]
fn every_duration_that_people_write_is_understood() {
    let stage = Stage::new();
    for grace in ["30s", "1m", "500ms", "1m 30s", "2h"] {
        stage.run(["run", "--nproc", "1", "--grace", grace, "--dry-run", "--", "true"]).code(0);
    }
}

#[test]
fn help_is_data_and_a_reader_of_it_may_stop_early() {
    let stage = Stage::new();
    let help = stage.run(["run", "--help"]);
    help.code(0);
    assert!(help.stdout.contains("--one-gpu-per-rank"));
    assert_eq!(help.stderr, "");
    let mut child = stage.command().args(["run", "--help"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(within(child, |mut child| child.wait()).code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_it() {
    let stage = Stage::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = stage.sh(&["--nproc", "1", "--master-port", &port.to_string()], "echo ran");
    seen.code(200).says(&format!("port {port} is in use"));
    assert_eq!(seen.stdout, "");
    assert!(stage.runs().is_empty());
}

#[test]
fn a_working_folder_that_is_gone_is_told() {
    let stage = Stage::new();
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run --nproc 1 -- true";
    let mut shell = std::process::Command::new("/bin/sh");
    shell.current_dir(&stage.folder).args(["-c", script, env!("CARGO_BIN_EXE_torchlift")]);
    seen(&mut shell).code(200).says("the working directory cannot be used");
}
