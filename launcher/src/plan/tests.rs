//! A request in, a plan or findings out: no file and no process is touched.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Duration;

use torchlift_schema::{Accelerator, Artifact, Envelope, Finding, LibtorchRecord, PerHostEnvelope};

use super::*;

fn host(name: &str, slots: u32) -> HostRequest {
    HostRequest {
        name: name.to_owned(),
        path: "/srv/project".into(),
        program: Program::PerHost(PerHostEnvelope {
            bin: "target/cluster/a/train".to_owned(),
            ld_library_path: "/opt/libtorch/lib:/usr/local/lib".to_owned(),
            cwd_subpath: "ddp-bench".to_owned(),
        }),
        slots,
        env: BTreeMap::new(),
        runner: Vec::new(),
        devices: Vec::new(),
    }
}

fn request(hosts: Vec<HostRequest>) -> RunRequest {
    RunRequest {
        run_id: "run-1".to_owned(),
        runs_dir: "/runs".into(),
        hosts,
        args: vec!["--epochs".into(), "3".into()],
        job_env: BTreeMap::new(),
        env_pass: Vec::new(),
        base_env: env([("HOME", "/home/me"), ("PATH", "/usr/bin:/bin")]),
        require: Vec::new(),
        grace: Duration::from_secs(30),
        master_port: None,
        one_gpu_per_rank: false,
        max_restarts: 0,
    }
}

fn env<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<OsString, OsString> {
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn file_env<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn nothing_found(_: &OsStr) -> Option<PathBuf> {
    None
}

fn planned(request: &RunRequest) -> Planned {
    build(request, &nothing_found).unwrap_or_else(|findings| panic!("{findings:#?}"))
}

fn errors(request: &RunRequest) -> Vec<String> {
    let findings = build(request, &nothing_found).expect_err("a finding stands");
    findings.iter().filter(|finding| finding.is_error()).map(|finding| finding.code.clone()).collect()
}

fn value<'a>(planned: &'a Planned, rank: usize, name: &str) -> Option<&'a str> {
    let ranks = planned.plan.hosts.iter().flat_map(|host| host.ranks.iter().map(move |rank| (host, rank)));
    let (host, rank) = ranks.into_iter().nth(rank).unwrap();
    let name = OsStr::new(name);
    let (of_rank, of_host) = (rank.env.get(name), host.env.get(name));
    assert!(of_rank.is_none() || of_host.is_none(), "{} is both the rank's and its host's", name.display());
    of_rank.or(of_host).map(|entry| entry.value.to_str().unwrap())
}

#[test]
fn a_rank_gets_exactly_these_variables() {
    let mut request = request(vec![host("node-a", 2), host("node-b", 1)]);
    request.base_env.extend(env([
        ("CARGO_MANIFEST_DIR", "/x"),
        ("RUST_LOG", "debug"),
        ("TORCHLIFT_INTERNAL_GUARD", "3"),
        ("RANK", "77"),
        ("_", "/usr/bin/torchlift"),
        ("OLDPWD", "/elsewhere"),
        ("WANDB_API_KEY", "hunter2"),
        ("LD_LIBRARY_PATH", ":/home/me/lib:"),
    ]));
    request.env_pass = vec!["WANDB_API_KEY".to_owned()];
    request.job_env = file_env([("MODE", "job"), ("A", "job")]);
    request.hosts[1].env = file_env([("MODE", "host"), ("NCCL_SOCKET_IFNAME", "eth0")]);
    let planned = planned(&request);
    let rank = &planned.plan.hosts[1].ranks[0];
    let mut text = String::new();
    for (name, entry) in planned.plan.environment(&planned.plan.hosts[1], rank, 29_500, 0) {
        let mark = if entry.is_secret { " (secret)" } else { "" };
        let _ = writeln!(text, "{}={}{mark}", name.display(), entry.value.display());
    }
    insta::assert_snapshot!(text, @r"
    A=job
    CUDA_DEVICE_ORDER=PCI_BUS_ID
    GROUP_RANK=1
    GROUP_WORLD_SIZE=2
    HOME=/home/me
    LD_LIBRARY_PATH=/opt/libtorch/lib:/usr/local/lib:/home/me/lib
    LOCAL_RANK=0
    LOCAL_WORLD_SIZE=1
    MASTER_ADDR=127.0.0.1
    MASTER_PORT=29500
    MODE=host
    NCCL_SOCKET_IFNAME=eth0
    PATH=/usr/bin:/bin
    PWD=/srv/project/ddp-bench
    RANK=2
    ROLE_NAME=default
    ROLE_RANK=2
    ROLE_WORLD_SIZE=3
    TORCHELASTIC_ERROR_FILE=/runs/run-1/attempt-0/2/error.json
    TORCHELASTIC_MAX_RESTARTS=0
    TORCHELASTIC_RESTART_COUNT=0
    TORCHELASTIC_RUN_ID=run-1
    TORCHELASTIC_USE_AGENT_STORE=False
    TORCHLIFT_ATTEMPT=0
    TORCHLIFT_HOST=node-b
    TORCHLIFT_RUN_DIR=/runs/run-1
    TORCHLIFT_RUN_ID=run-1
    TORCH_NCCL_ASYNC_ERROR_HANDLING=1
    WANDB_API_KEY=hunter2 (secret)
    WORLD_SIZE=3
    ");
}

#[test]
fn ranks_are_counted_host_by_host() {
    let planned = planned(&request(vec![host("b", 2), host("a", 3)]));
    let ranks: Vec<Vec<u32>> =
        planned.plan.hosts.iter().map(|host| host.ranks.iter().map(|rank| rank.rank.0).collect()).collect();
    assert_eq!(ranks, [vec![0, 1], vec![2, 3, 4]]);
    assert_eq!(planned.plan.world_size(), 5);
    let coordinates: Vec<[&str; 5]> = (0..5)
        .map(|rank| {
            ["RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"]
                .map(|name| value(&planned, rank, name).unwrap())
        })
        .collect();
    assert_eq!(coordinates[1], ["1", "1", "0", "2", "5"]);
    assert_eq!(coordinates[4], ["4", "2", "1", "3", "5"]);
}

#[test]
fn every_torchrun_variable_is_set_and_no_other_run_shines_through() {
    let mut request = request(vec![host("a", 1)]);
    for name in env_vars::TORCHRUN {
        request.base_env.insert(name.into(), "from outside".into());
    }
    let planned = planned(&request);
    let env = planned.plan.environment(&planned.plan.hosts[0], &planned.plan.hosts[0].ranks[0], 4_711, 2);
    for name in env_vars::TORCHRUN {
        let entry = env.get(OsStr::new(name)).unwrap_or_else(|| panic!("{name} is missing"));
        // torchrun takes this one over from outside too.
        let is_outside = name == "TORCH_NCCL_ASYNC_ERROR_HANDLING";
        assert_eq!(entry.value == "from outside", is_outside, "{name}");
    }
    assert_eq!(env[OsStr::new("MASTER_PORT")].value, "4711");
    assert_eq!(env[OsStr::new("TORCHELASTIC_RESTART_COUNT")].value, "2");
    assert_eq!(env[OsStr::new("TORCHELASTIC_ERROR_FILE")].value, "/runs/run-1/attempt-2/0/error.json");
    assert_eq!(env[OsStr::new("TORCHLIFT_RUN_DIR")].value, "/runs/run-1");
}

#[test]
fn a_library_path_never_has_an_empty_element() {
    let ours = "/opt/libtorch/lib:/usr/local/lib";
    for (inherited, own, expected) in [
        (None, None, Some(ours.to_owned())),
        (Some(""), None, Some(ours.to_owned())),
        (Some(":"), None, Some(ours.to_owned())),
        (Some(":/x"), None, Some(format!("{ours}:/x"))),
        (Some("/x:"), None, Some(format!("{ours}:/x"))),
        (Some("/x::/y"), None, Some(format!("{ours}:/x:/y"))),
        (Some("/x;;/y"), None, Some(format!("{ours}:/x:/y"))),
        (Some("/x"), Some("/host"), Some(format!("{ours}:/host"))),
        (Some("/x"), Some(""), Some(ours.to_owned())),
    ] {
        let mut request = request(vec![host("a", 1)]);
        request.base_env.extend(inherited.map(|value| ("LD_LIBRARY_PATH".into(), value.into())));
        request.hosts[0].env.extend(own.map(|value| ("LD_LIBRARY_PATH".to_owned(), value.to_owned())));
        let planned = planned(&request);
        assert_eq!(value(&planned, 0, "LD_LIBRARY_PATH"), expected.as_deref(), "{inherited:?} {own:?}");
    }
    let mut plain = request(vec![host("a", 1)]);
    plain.hosts[0].program = Program::Plain { program: "/bin/true".into(), cwd: "/tmp".into() };
    plain.base_env.insert("LD_LIBRARY_PATH".into(), "::".into());
    assert_eq!(value(&planned(&plain), 0, "LD_LIBRARY_PATH"), None);
}

#[test]
fn threads_are_limited_only_where_ranks_share_a_host_and_nobody_said_otherwise() {
    let threads = |slots, outside: Option<&str>| {
        let mut request = request(vec![host("a", slots)]);
        request.base_env.extend(outside.map(|value| ("OMP_NUM_THREADS".into(), value.into())));
        value(&planned(&request), 0, "OMP_NUM_THREADS").map(str::to_owned)
    };
    assert_eq!(threads(1, None), None);
    assert_eq!(threads(2, None).as_deref(), Some("1"));
    assert_eq!(threads(2, Some("8")).as_deref(), Some("8"));
}

#[test]
fn cards_are_narrowed_per_host_and_on_request_per_rank() {
    let mut request = request(vec![host("a", 2)]);
    request.hosts[0].devices = vec![Device::Index(1), Device::Index(3)];
    let shared = planned(&request);
    assert_eq!(value(&shared, 1, "CUDA_VISIBLE_DEVICES"), Some("1,3"));
    assert_eq!(value(&shared, 1, "CUDA_DEVICE_ORDER"), Some("PCI_BUS_ID"));
    assert_eq!(value(&shared, 1, "LOCAL_RANK"), Some("1"));

    request.one_gpu_per_rank = true;
    let narrowed = planned(&request);
    assert_eq!(value(&narrowed, 1, "CUDA_VISIBLE_DEVICES"), Some("3"));
    assert_eq!(value(&narrowed, 1, "LOCAL_RANK"), Some("0"));
    assert_eq!(value(&narrowed, 1, "RANK"), Some("1"));

    request.hosts[0].devices.clear();
    assert_eq!(value(&planned(&request), 1, "CUDA_VISIBLE_DEVICES"), Some("1"));
    request.base_env.insert("CUDA_VISIBLE_DEVICES".into(), "5".into());
    assert_eq!(errors(&request), ["too-few-devices"]);

    request.one_gpu_per_rank = false;
    request.base_env.remove(OsStr::new("CUDA_VISIBLE_DEVICES"));
    request.hosts[0].devices = vec![Device::Index(0)];
    request.job_env = file_env([("CUDA_DEVICE_ORDER", "FASTEST_FIRST")]);
    assert_eq!(errors(&request), ["device-order"]);
}

#[test]
fn a_rocm_libtorch_is_narrowed_by_its_own_variable() {
    let mut request = request(vec![host("a", 1)]);
    let run = request.hosts[0].program.per_host().unwrap();
    let mut envelope = Envelope::new("a", run, Artifact::new("x86_64-unknown-linux-gnu", 1, "00", "key", "source"));
    envelope.libtorch = Some(LibtorchRecord::new(None, "2.9.0", Accelerator::Rocm("6.3".to_owned())));
    request.hosts[0].program = Program::Envelope(Box::new(envelope));
    request.hosts[0].devices = vec![Device::Index(2)];
    let planned = planned(&request);
    assert_eq!(value(&planned, 0, "HIP_VISIBLE_DEVICES"), Some("2"));
    assert_eq!(value(&planned, 0, "CUDA_VISIBLE_DEVICES"), None);
}

#[test]
fn what_is_passed_on_is_secret_and_what_is_unset_is_told() {
    let mut request = request(vec![host("a", 1)]);
    request.base_env.extend(env([("TOKEN", "hunter2"), ("RUST_LOG", "debug")]));
    request.env_pass = ["TOKEN", "RUST_LOG", "NOT_THERE"].map(str::to_owned).to_vec();
    let planned = planned(&request);
    let env = &planned.plan.hosts[0].env;
    assert!(env[OsStr::new("TOKEN")].is_secret);
    assert_eq!(env[OsStr::new("RUST_LOG")].value, "debug");
    assert!(!env.contains_key(OsStr::new("NOT_THERE")));
    assert_eq!(planned.warnings.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["env-pass-unset"]);
}

#[test]
fn values_with_quotes_brackets_and_line_ends_stay_as_they_are() {
    let mut request = request(vec![host("a", 1)]);
    let odd = file_env([("J", r#"{"a":"b c"}"#), ("P", "(x) $HOME `id` 'q'"), ("N", "one\ntwo"), ("E", "")]);
    request.job_env = odd.clone();
    let planned = planned(&request);
    for (name, text) in &odd {
        assert_eq!(value(&planned, 0, name), Some(text.as_str()));
    }
}

#[test]
fn arguments_stay_as_they_are_to_the_byte() {
    let mut request = request(vec![host("a", 1)]);
    let odd: Vec<OsString> = ["", "*", "$HOME", "a b", "it's", "\"", "\\", "x\ny"].map(OsString::from).to_vec();
    request.args = odd.into_iter().chain([OsString::from_vec(vec![0xb1, b'-', 0xff])]).collect();
    assert_eq!(planned(&request).plan.hosts[0].args, request.args);
}

#[test]
fn a_runner_stands_before_the_program() {
    let mut request = request(vec![host("a", 1)]);
    request.hosts[0].runner = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"].map(str::to_owned).to_vec();
    assert_eq!(errors(&request), ["runner-missing"]);
    let found = |name: &OsStr| (name == "qemu-aarch64-static").then(|| PathBuf::from("/usr/bin/qemu-aarch64-static"));
    let host = &build(&request, &found).unwrap().plan.hosts[0];
    assert_eq!(host.program, PathBuf::from("/usr/bin/qemu-aarch64-static"));
    assert_eq!(
        host.args,
        ["-L", "/usr/aarch64-linux-gnu", "/srv/project/target/cluster/a/train", "--epochs", "3"].map(OsString::from)
    );
    request.hosts[0].runner = vec!["tools/wrap".to_owned()];
    assert_eq!(planned(&request).plan.hosts[0].program, PathBuf::from("/srv/project/tools/wrap"));
}

#[test]
fn words_that_no_program_can_be_given_are_found_at_once() {
    let mut request = request(vec![host("a", 1), host("b", 1), host("c", 1)]);
    request.args.push("a\0b".into());
    request.hosts[0].runner = vec!["/usr/bin/env".to_owned(), "a\0b".to_owned()];
    request.hosts[1].runner = vec![String::new()];
    request.hosts[2].program = Program::Plain { program: "bin/train".into(), cwd: "work".into() };
    let mut codes = errors(&request);
    codes.sort();
    assert_eq!(
        codes,
        ["argument-value", "program-path", "program-path", "runner-missing", "runner-value", "runner-value"]
    );
}

#[test]
fn all_that_is_wrong_is_found_at_once() {
    let mut request = request(vec![host("a", 0), host("a", 1), host("b", 1), host("c", 1)]);
    request.run_id = "../x".to_owned();
    request.job_env = file_env([("RANK", "1"), ("", "x"), ("A=B", "x"), ("NUL", "a\0b"), ("TORCHLIFT_HOST", "x")]);
    request.env_pass = ["MASTER_ADDR", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "A=B"].map(str::to_owned).to_vec();
    request.hosts[2].env = file_env([("LOCAL_RANK", "0")]);
    request.hosts[2].path = "relative".into();
    request.hosts[3].program = Program::PerHost(PerHostEnvelope {
        bin: "/bin/true".to_owned(),
        ld_library_path: "/a::/b".to_owned(),
        cwd_subpath: "../up".to_owned(),
    });
    let mut codes = errors(&request);
    codes.sort();
    assert_eq!(
        codes,
        [
            "env-name",
            "env-name",
            "env-name",
            "env-rank-variable",
            "env-rank-variable",
            "env-rank-variable",
            "env-rank-variable",
            "env-value",
            "envelope-value",
            "envelope-value",
            "envelope-value",
            "host-duplicate",
            "host-path",
            "no-slots",
            "run-folder",
        ]
    );
    let places: Vec<Finding> = build(&request, &nothing_found).unwrap_err();
    let rank = places.iter().find(|finding| finding.message.contains("LOCAL_RANK")).unwrap();
    assert_eq!(rank.place.to_string(), "host `b`, `env.LOCAL_RANK`");
    assert!(errors(&self::request(Vec::new())).contains(&"no-hosts".to_owned()));
}

#[test]
fn whatever_is_wrong_with_a_request_says_what_to_do() {
    let mut request = request(vec![host("a", 0), host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    request.run_id = "../x".to_owned();
    request.args = vec!["a\0b".into()];
    request.job_env = file_env([("RANK", "1"), ("", "x")]);
    request.env_pass = vec!["NOT_THERE".to_owned()];
    request.hosts[1].devices = vec![Device::Index(7)];
    request.base_env.insert("CUDA_VISIBLE_DEVICES".into(), "0".into());
    request.hosts[2].path = "relative".into();
    request.hosts[2].program = Program::Plain { program: "train".into(), cwd: "here".into() };
    request.hosts[2].runner = vec![String::new(), "a\0b".to_owned()];
    request.hosts[3].runner = vec!["no-such-runner".to_owned()];
    request.hosts[4].program = Program::PerHost(PerHostEnvelope {
        bin: String::new(),
        ld_library_path: "/a;/b".to_owned(),
        cwd_subpath: "../up".to_owned(),
    });
    let findings = build(&request, &nothing_found).unwrap_err();
    for finding in &findings {
        assert!(finding.remedy.is_some(), "`{}` does not: {}", finding.code, finding.message);
    }
    let codes: std::collections::BTreeSet<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    let wanted = ["argument-value", "device-not-visible", "env-name", "env-pass-unset", "env-rank-variable"];
    let wanted =
        wanted.into_iter().chain(["envelope-value", "host-duplicate", "host-path", "no-slots", "program-path"]);
    let wanted = wanted.chain(["run-folder", "runner-missing", "runner-value"]);
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    let none = self::request(Vec::new());
    assert!(build(&none, &nothing_found).unwrap_err().iter().all(|finding| finding.remedy.is_some()));
}
