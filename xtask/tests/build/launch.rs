//! From a cluster file to running ranks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use torchlift_schema::exit_code;

use crate::full_pipe::{FullPipe, wait_for_file_in_a_folder_of};
use crate::stand_in;
use crate::support::{Project, Ran};

fn dump(folder: &Path, rank: u32, what: &str) -> Vec<String> {
    let bytes = fs_err::read(folder.join(format!("{rank}.{what}"))).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// A rank's environment without what is a run's own: its id, its folders and its port.
fn environment(folder: &Path, rank: u32) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = dump(folder, rank, "env")
        .into_iter()
        .filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    for own in
        ["TORCHLIFT_RUN_ID", "TORCHLIFT_RUN_DIR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_PORT"]
    {
        assert!(env.remove(own).is_some(), "{own}");
    }
    env
}

#[test]
fn launch_builds_and_starts_every_rank_with_its_arguments_to_the_byte() {
    let project = Project::linked();
    let dumps = project.beside("dumps");
    let odd = ["--dump", dumps.to_str().unwrap(), "", "a b", "'\"$HOME*\\", "--flag", "zwölf\nlines"];
    let args: Vec<&str> = ["launch", "--"].into_iter().chain(odd).collect();
    let ran = project.run(&args).ok();
    assert!(ran.stdout.contains("rank 1: the answer is 42"), "{}", ran.stdout);
    for rank in 0..2 {
        assert_eq!(dump(&dumps, rank, "args")[1..], odd);
        assert_eq!(dump(&dumps, rank, "cwd"), [project.root.to_str().unwrap()]);
    }
    assert!(project.root.join(".torchlift/runs").is_dir());
}

#[test]
fn a_rank_has_the_same_environment_under_cargo_and_under_the_launcher() {
    let project = Project::linked();
    let ours = project.beside("ours");
    let theirs = project.beside("theirs");
    // Under a real outer cargo, which sets its variables and its library path.
    project
        .write("tool/Cargo.toml", "[package]\nname = \"tool\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    project.write(
        "tool/src/main.rs",
        "use std::os::unix::process::CommandExt as _;\nfn main() {\n    let mut args = std::env::args_os().skip(1);\n    \
         let tool = args.next().unwrap();\n    panic!(\"{}\", std::process::Command::new(tool).args(args).exec());\n}\n",
    );
    let mut command = Command::new("cargo");
    command.args([
        "run",
        "--quiet",
        "--manifest-path",
        "tool/Cargo.toml",
        "--",
        env!("CARGO_BIN_EXE_xtask"),
        "launch",
        "--",
    ]);
    command.args(["--dump", ours.to_str().unwrap()]).current_dir(&project.root).env_clear().envs(project.env());
    command.env("LD_LIBRARY_PATH", ":/opt/mine:");
    Ran::of(&command.output().unwrap()).ok();

    let mut command = Command::new(torchlift());
    command.args(["run", "--envelopes", "target/cluster", "--", "--dump", theirs.to_str().unwrap()]);
    command.current_dir(&project.root).env_clear().envs(project.env()).env("LD_LIBRARY_PATH", ":/opt/mine:");
    Ran::of(&command.output().unwrap()).ok();

    for rank in 0..2 {
        assert_eq!(environment(&ours, rank), environment(&theirs, rank), "rank {rank}");
        let lib = project.root.join("libtorch/test/cpu/lib");
        assert_eq!(environment(&ours, rank)["LD_LIBRARY_PATH"], format!("{}:/opt/mine", lib.display()));
        assert_eq!(dump(&ours, rank, "cwd"), dump(&theirs, rank, "cwd"));
    }
}

// A libtorch's own libcrypto or libssl breaks `ssh`, `git` and whatever else a tool starts with its loader path.
#[test]
fn tools_keep_the_loader_path_of_the_caller_and_ranks_alone_get_ours() {
    let project = Project::linked();
    let lib = project.root.join("libtorch/test/cpu/lib");
    let (dumps, asked) = (project.beside("dumps"), project.beside("log").join("asked"));
    let real = |tool: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().trim_end().to_owned()
    };
    for tool in ["cargo", "git"] {
        // A tool that is given our folder fails, as one whose libraries lie there would.
        let (tool_of, lib, log) = (real(tool), lib.display(), asked.display());
        let check = format!("case \":$LD_LIBRARY_PATH:\" in *\":{lib}:\"*) exit 127;; esac");
        project.script(tool, &format!("{check}\necho {tool} \"$LD_LIBRARY_PATH\" >>'{log}'\nexec '{tool_of}' \"$@\""));
    }
    let git =
        |args: &[&str]| assert!(Command::new("git").args(args).current_dir(&project.root).status().unwrap().success());
    git(&["init", "--quiet"]);
    let path = format!("{}:{}", project.beside("bin").display(), std::env::var("PATH").unwrap());
    let args = ["launch", "--", "--dump", dumps.to_str().unwrap()];
    project.run_with(&args, &[("PATH", &path), ("LD_LIBRARY_PATH", "/opt/mine")]).ok();
    let asked = fs_err::read_to_string(asked).unwrap();
    for tool in ["cargo /opt/mine", "git /opt/mine"] {
        assert!(asked.lines().any(|line| line == tool), "{tool} was not asked:\n{asked}");
    }
    assert!(asked.lines().all(|line| line.ends_with(" /opt/mine")), "{asked}");
    assert_eq!(environment(&dumps, 0)["LD_LIBRARY_PATH"], format!("{}:/opt/mine", lib.display()));
}

/// The launcher's own binary, beside the tool's: whoever runs all tests has built both.
fn torchlift() -> std::path::PathBuf {
    let tool = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let launcher = tool.with_file_name("torchlift");
    if !launcher.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "torchlift", "--bin", "torchlift"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .status()
            .unwrap();
        assert!(built.success());
    }
    launcher
}

#[test]
fn a_dry_run_of_a_launch_builds_and_starts_nothing() {
    let project = Project::linked();
    let ran = project.run(&["launch", "--dry-run", "--", "--epochs", "3"]).ok();
    assert!(ran.stdout.contains("target/cluster/node-2/test-cpu/quick/linked"), "{}", ran.stdout);
    assert!(ran.stdout.contains("--epochs 3"), "{}", ran.stdout);
    assert!(!project.root.join("target").exists() && !project.root.join(".torchlift").exists());
}

#[test]
fn a_rank_that_fails_gives_its_code() {
    let project = Project::linked();
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write(
        "src/main.rs",
        &main.replace(
            "fn main() {",
            "fn main() { if std::env::var(\"RANK\").is_ok_and(|r| r == \"1\") { std::process::exit(7); }",
        ),
    );
    project.run(&["launch"]).fails(7);
}

#[test]
fn a_signal_to_a_launch_before_any_rank_ran_is_208() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let dumps = project.beside("dumps");
    let stderr = FullPipe::new();
    let mut command = project.command(&["launch", "--no-build", "--", "--dump", dumps.to_str().unwrap()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.stdio()).spawn().unwrap();
    // What is printed behind this file cannot be written yet, and the ranks come after that.
    wait_for_file_in_a_folder_of(&project.root.join(".torchlift/runs"), "plan.json");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    // The command has an end of the pipe, which would never be at its own end.
    drop(command);
    let told = stderr.drain().join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(exit_code::INTERRUPTED.into()), "{told}");
    assert!(told.contains("SIGINT"), "{told}");
    assert_eq!(fs_err::read_dir(&dumps).unwrap().count(), 0, "no rank ran");
}

#[test]
fn a_detached_launch_builds_first_and_lets_the_ranks_go_on() {
    let project = Project::linked();
    let runtime = project.beside("rt");
    fs_err::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let env = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap())];
    let dumps = project.beside("dumps");
    let launched = project.run_with(&["launch", "--detach", "--", "--dump", dumps.to_str().unwrap()], &env).ok();
    launched.says("is ready for 2 hosts").says("goes on by itself");
    let runs = project.root.join(".torchlift/runs");
    wait_for_file_in_a_folder_of(&runs, "report.json");
    let report = runs.join(launched.stdout.trim()).join("report.json");
    let report: serde_json::Value = serde_json::from_slice(&fs_err::read(report).unwrap()).unwrap();
    assert_eq!(report["outcome"]["kind"], "success");
    let env = dump(&dumps, 0, "env");
    assert!(env.iter().all(|entry| !entry.starts_with("TORCHLIFT_INTERNAL")), "{env:?}");
}

#[test]
fn a_process_that_no_run_started_is_named_on_a_card_of_the_run_and_keeps_it_from_nothing() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("slots = 1", "slots = 1\ndevices = [\"GPU-aaaa1111\"]"));
    project.run(&["build"]).ok();
    let own = std::process::id();
    let driver = project.beside("driver ü");
    let library = driver.join("libnvidia-ml.so.1");
    stand_in::library::<&str>("nvml.c", &library, &[]);
    let card = |uuid| format!("card NVIDIA H100|{uuid}|00000000:1B:00.0|9|0|85899345920|0\n");
    let users = format!("{}user {own}|21474836480\nuser 4000000000|-\n", card("GPU-aaaa1111-2222"));
    fs_err::write(driver.join("nvml.txt"), format!("{users}{}user 1|1\n", card("GPU-bbbb"))).unwrap();
    let launched = project.run_with(&["launch", "--no-build"], &[("LD_LIBRARY_PATH", driver.to_str().unwrap())]).ok();
    launched.says("warning[card-in-use]").says(&format!("is in use by process {own} (`")).says("), 20 GiB");
    launched.says("card `GPU-aaaa1111-2222` is in use by process 4000000000\n");
    assert!(!launched.stderr.contains("GPU-bbbb"), "{}", launched.stderr);
    fs_err::write(driver.join("nvml.txt"), "crash\n").unwrap();
    let launched = project.run_with(&["launch", "--no-build"], &[("LD_LIBRARY_PATH", driver.to_str().unwrap())]).ok();
    assert!(!launched.stderr.contains("card-in-use"), "{}", launched.stderr);
}

#[test]
fn a_card_that_another_run_has_is_named_with_its_holder_and_free_when_that_ends() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let chosen = text.replace("slots = 1", "slots = 1\ndevices = [\"GPU-aaaa1111\", \"GPU-bbbb2222\"]");
    project.write("cluster.toml", &chosen);
    project.run(&["build"]).ok();
    let stderr = FullPipe::new();
    let mut command = project.command(&["launch", "--no-build"]);
    let mut first = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.stdio()).spawn().unwrap();
    // What is printed behind this file cannot be written yet: the run stands still, and has its cards.
    wait_for_file_in_a_folder_of(&project.root.join(".torchlift/runs"), "plan.json");
    let ran = project.run(&["launch", "--no-build"]).fails(exit_code::REFUSED);
    ran.says("error[card-claimed]").says("card `GPU-aaaa1111`").says("card `GPU-bbbb2222`");
    ran.says(&format!("(process {})", first.id())).says("choose other cards in `devices`");
    assert_eq!(fs_err::read_dir(project.root.join(".torchlift/runs")).unwrap().count(), 1, "nothing was begun");
    project.write("cluster.toml", &text.replace("slots = 1", "slots = 1\ndevices = [\"GPU-cccc3333\"]"));
    project.run(&["launch", "--no-build"]).ok();
    project.write("cluster.toml", &chosen);
    kill(Pid::from_raw(i32::try_from(first.id()).unwrap()), Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    drop(command);
    stderr.drain().join().unwrap();
    project.run(&["launch", "--no-build"]).ok();
}

#[test]
fn variables_of_the_job_the_host_and_the_command_line_reach_the_ranks() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let text =
        text.replace("[kind.k]", "env = { A = \"job\", B = \"job\", C = \"job\" }\nenv_pass = [\"TOKEN\"]\n[kind.k]");
    project.write("cluster.toml", &format!("{text}env = {{ B = \"host\" }}\n"));
    let dumps = project.beside("dumps");
    let args = ["launch", "--env", "C=line", "--host", "node-2", "--", "--dump", dumps.to_str().unwrap()];
    let ran = project.run_with(&args, &[("TOKEN", "geheim")]).ok();
    let env = environment(&dumps, 0);
    assert_eq!((&*env["A"], &*env["B"], &*env["C"], &*env["TOKEN"]), ("job", "host", "line", "geheim"));
    assert!(!ran.stderr.contains("geheim"));
    let ran = project.run_with(&["launch", "--dry-run"], &[("TOKEN", "geheim")]).ok();
    assert!(ran.stdout.contains("TOKEN") && !ran.stdout.contains("geheim"), "{}", ran.stdout);
}

#[test]
fn without_a_build_what_is_old_is_said() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let ran = project.run(&["launch", "--no-build"]).ok();
    assert!(!ran.stderr.contains("build-old"), "{}", ran.stderr);
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write("src/main.rs", &format!("{main}\n// edited\n"));
    let ran = project.run(&["launch", "--no-build"]).ok();
    ran.says("warning[build-old]").says("host `node-1`").says("changed since: source files");
    ran.says("edited: `src/main.rs`").says("leave `--no-build` out");
    assert!(ran.stdout.contains("rank 1: the answer is 42"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("building"), "{}", ran.stderr);
}

#[test]
fn without_a_build_missing_and_edited_envelopes_are_refused_together() {
    let project = Project::linked();
    project.run(&["launch", "--no-build"]).fails(exit_code::VERIFY).says("error[envelope-missing]").says("node-2");
    project.run(&["build"]).ok();
    let file = project.envelope_file("node-1");
    let edited = fs_err::read_to_string(&file).unwrap().replace("\"kind\": \"k\"", "\"kind\": \"x\"");
    fs_err::write(&file, edited).unwrap();
    fs_err::remove_file(project.envelope_file("node-2")).unwrap();
    let ran = project.run(&["launch", "--no-build"]).fails(exit_code::INTEGRITY);
    ran.says("error[envelope-missing]").says("self_sha256").says("host `node-1`");
    // Both digests: the one that was sealed, and the one that the file has now.
    let digests = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 64);
        words.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(digests(&ran.stderr).len(), 2, "{}", ran.stderr);
    project.run(&["build"]).ok();
    fs_err::copy(&file, project.envelope_file("node-2")).unwrap();
    let ran = project.run(&["launch", "--no-build"]).fails(exit_code::VERIFY);
    ran.says("error[envelope-host]").says("is no envelope of host `node-2`");
}

#[test]
fn every_option_of_a_run_is_one_of_a_launch_too() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("slots = 1", "slots = 2\ndevices = [3, 5]"));
    let shown =
        ["launch", "--dry-run", "--format", "json", "--grace", "7s", "--master-port", "29511", "--runs", "läufe"];
    let ranks = ["--one-gpu-per-rank", "--env", "A=b c", "--env-pass", "TOKEN", "--", "--epochs", "3"];
    let ran = project.run_with(&[&shown[..], &ranks[..]].concat(), &[("TOKEN", "geheim")]).ok();
    let plan: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((plan["grace_s"].as_f64(), plan["master_port"].as_u64()), (Some(7.0), Some(29511)));
    assert!(plan["run_dir"].as_str().unwrap().starts_with(project.root.join("läufe").to_str().unwrap()));
    let host = &plan["hosts"][1];
    assert_eq!((&host["env"]["A"], &host["env"]["TOKEN"]), (&"b c".into(), &"***".into()));
    assert_eq!(host["args"], serde_json::json!(["--epochs", "3"]));
    assert_eq!(host["ranks"][1]["env"]["CUDA_VISIBLE_DEVICES"], "5");

    project.write("cluster.toml", &text);
    project.run(&["build"]).ok();
    let required = ["launch", "--no-build", "--require", "fehlt", "--runs", "läufe"];
    let ran = project.run(&required).fails(exit_code::VERIFY);
    assert_eq!(ran.stderr.matches("error[required-missing]").count(), 2, "{}", ran.stderr);
    assert!(!project.root.join("läufe").exists());
    project.write("fehlt", "");
    let ran = project.run(&[&required[..], &["--quiet"]].concat()).ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    assert_eq!(fs_err::read_dir(project.root.join("läufe")).unwrap().count(), 1);
    assert!(!project.root.join(".torchlift").exists());
}

#[test]
fn a_swapped_binary_is_refused_with_both_digests() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let envelope = project.envelope("node-1");
    let binary = project.root.join(&envelope.bin);
    let mut bytes = fs_err::read(&binary).unwrap();
    let expected = envelope.artifact.sha256;
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs_err::remove_file(&binary).unwrap();
    fs_err::write(&binary, &bytes).unwrap();
    fs_err::set_permissions(&binary, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ran = project.run(&["launch", "--no-build"]).fails(exit_code::INTEGRITY);
    ran.says("error[program-changed]").says(&expected).says(&sha256(&bytes));
    project.run(&["launch"]).ok();
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn slots_by_cards_need_cards() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("slots = 1", "slots = \"gpus\""));
    project.run(&["launch"]).fails(exit_code::CLUSTER_FILE).says("error[slots-without-gpus]").says("node-2");
    project.write("cluster.toml", &text.replace("slots = 1", "slots = \"gpus\"\ndevices = [0, 1]"));
    let ran = project.run(&["launch", "--dry-run"]).ok();
    assert!(ran.stdout.contains("4 ranks on 2 hosts"), "{}", ran.stdout);
    assert!(ran.stdout.contains("CUDA_VISIBLE_DEVICES='0,1'"), "{}", ran.stdout);
}
