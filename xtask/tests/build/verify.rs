//! What `verify` says of what is published, and what `build` refuses to publish by the same checks.

use serde_json::{Value, json};
use torchlift::preflight::DigestCache;
use torchlift_schema::exit_code;
use torchlift_xtask::commands::Context;
use torchlift_xtask::facts::{Choice, Facts};
use torchlift_xtask::verify::check::{Label, Outcome, Subject, Verdict};
use torchlift_xtask::verify::{Built, Made, Question, Sight, Verified, verify};

use crate::stand_in;
use crate::support::Project;

const TO_COME: &str = "9999-01-01T00:00:00Z";

fn report(project: &Project, args: &[&str]) -> Value {
    let ran = project.run(&[&["verify", "--format", "json"], args].concat());
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", ran.stdout, ran.stderr))
}

/// The check of this name, on the host at `index`.
fn check(report: &Value, index: usize, name: &str) -> Value {
    let checks = report["hosts"][index]["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["check"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {checks:#?}")).clone()
}

/// Facts of `node-2` with a C library that offers these versions.
fn facts_of_node_2(project: &Project, libraries: &Value) {
    let host = json!({
        "read_at": TO_COME, "torchlift": "0.1.0", "system": {}, "cores": {}, "memory": {}, "loader": {},
        "cpu": { "arch": std::env::consts::ARCH }, "libraries": libraries,
    });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": { "node-2": host } }).to_string());
}

fn old_glibc() -> Value {
    json!([{ "name": "libc.so.6", "versions": ["GLIBC_2.2.5", "GLIBC_2.17"], "from": "/lib64/libc.so.6" }])
}

#[test]
fn verify_says_what_the_loader_chooses_by_which_rule_and_who_made_each_check_without_building() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let before = project.published();
    // A source that would not compile any more: nothing is built.
    project.write("src/main.rs", "this is no program");
    let ran = project.run(&["verify"]).ok();
    assert!(!ran.stderr.contains("Compiling"), "{}", ran.stderr);
    assert_eq!(project.published(), before);
    let lib = project.root.join("libtorch/test/cpu/lib/libtorch_cpu.so");
    assert!(ran.stdout.contains(&format!("libtorch_cpu.so = {} (LD_LIBRARY_PATH)", lib.display())), "{}", ran.stdout);
    assert!(ran.stdout.contains("2 of 2 hosts hold\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(" 0 not checked\n"), "{}", ran.stdout);
    let report = report(&project, &[]);
    assert_eq!(report["verdict"], "holds");
    assert_eq!(report["checks"]["not_checked"], 0);
    for name in ["bytes", "libraries", "symbols", "symbol-versions", "system-versions", "cxx-abi", "cpu"] {
        let found = check(&report, 1, name);
        assert_eq!((&found["label"], &found["outcome"]), (&json!("checked here"), &json!("holds")), "{found}");
    }
    let libraries = report["hosts"][0]["libraries"].as_array().unwrap();
    let rule = |name: &str| libraries.iter().find(|library| library["name"] == name).unwrap()["rule"].clone();
    assert_eq!(rule("libc10.so"), "LD_LIBRARY_PATH");
    assert!(["cache", "default folder"].contains(&rule("libc.so.6").as_str().unwrap()));
    assert_eq!(libraries[1]["needed_by"], report["hosts"][0]["bin"]);
}

#[test]
fn a_host_whose_facts_say_glibc_2_17_is_told_with_what_is_needed_and_who_needs_it_and_gets_nothing() {
    let project = Project::linked();
    facts_of_node_2(&project, &old_glibc());
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[version-missing]").says("host `node-2` goes up to `GLIBC_2.17` (`cluster.facts.json`");
    assert!(ran.stderr.contains("/linked` needs `GLIBC_2."), "{}", ran.stderr);
    assert!(!ran.stderr.contains("node-1"), "{}", ran.stderr);
    assert!(project.published().is_empty());
    // What is accepted is published, is recorded, and stays doubtful.
    project.run(&["build", "--accept", "version-missing@node-2"]).ok();
    assert_eq!(project.envelope("node-2").findings.len(), 1);
    project.run(&["verify"]).fails(exit_code::VERIFY).says("`GLIBC_2.17`");
    let report = report(&project, &["--accept", "version-missing"]);
    let versions = check(&report, 1, "system-versions");
    assert_eq!(
        (&versions["label"], &versions["outcome"]),
        (&json!("checked on host"), &json!("doubtful")),
        "{versions}"
    );
    assert_eq!(check(&report, 0, "system-versions")["outcome"], "holds");
}

#[test]
fn what_the_facts_do_not_say_is_not_checked_and_does_not_count_as_good() {
    let project = Project::linked();
    facts_of_node_2(&project, &json!([]));
    let ran = project.run(&["build"]).ok();
    assert_eq!(ran.stdout.matches("not checked: system versions\n").count(), 1, "{}", ran.stdout);
    let ran = project.run(&["verify"]).ok();
    assert!(ran.stdout.contains("1 of 2 hosts hold, 1 not proven\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(" 1 not checked, which does not count as good\n"), "{}", ran.stdout);
    let report = report(&project, &[]);
    assert_eq!((&report["verdict"], &report["hosts"][0]["verdict"]), (&json!("unproven"), &json!("holds")));
    let versions = check(&report, 1, "system-versions");
    assert_eq!((&versions["label"], &versions["outcome"]), (&json!("not checked"), &json!(null)), "{versions}");
    assert!(versions["how"].as_str().unwrap().contains("`libc.so.6`"), "{versions}");
}

#[test]
fn findings_of_all_hosts_come_in_one_report() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let bin = |host: &str| project.root.join(project.envelope(host).bin);
    let place = bin("node-2");
    let mut bytes = fs_err::read(&place).unwrap();
    bytes.push(0);
    fs_err::write(&place, bytes).unwrap();
    let ran = project.run(&["verify"]).fails(exit_code::INTEGRITY);
    ran.says("error[program-changed]").says("host `node-2`");
    // One has no program, the other no envelope any more.
    fs_err::remove_file(bin("node-1")).unwrap();
    fs_err::remove_file(project.envelope_file("node-2")).unwrap();
    let ran = project.run(&["verify"]).fails(exit_code::VERIFY);
    ran.says("error[program-missing]").says("error[envelope-missing]").says("build again: `cargo xtask build`");
    assert!(ran.stdout.contains("not checked      symbols"), "{}", ran.stdout);
    let report = report(&project, &[]);
    assert_eq!(report["verdict"], "fails");
    assert_eq!(report["findings"].as_array().unwrap().len(), 2, "{report:#}");
    project.run(&["verify", "--host", "node-3"]).fails(exit_code::USAGE);
}

/// Two hosts with a CUDA stand-in each, whose `libtorch_cuda.so` needs a further library with this text in it.
fn cuda(texts: [(&str, &str); 2]) -> Project {
    let project = Project::linked();
    let mut cluster = "[job.train]\nprofile = \"quick\"\n".to_owned();
    for (index, (further, text)) in texts.into_iter().enumerate() {
        let name = format!("cuda{index}");
        let lib = project.libtorch(&name, true).join("lib");
        let source = project.beside("sources").join("further.c");
        fs_err::write(&source, format!("const char further[] = \"{text}\";\n")).unwrap();
        let link = ["-Wl,--no-as-needed", &stand_in::search(&lib), &format!("-l:{further}")].map(str::to_owned);
        stand_in::library::<&str>(source.to_str().unwrap(), &lib.join(further), &[]);
        let args: Vec<&str> = link.iter().map(String::as_str).chain(["-ltorch_cpu", "-lc10"]).collect();
        stand_in::library("torch_cuda.c", &lib.join("libtorch_cuda.so"), &args);
        cluster.push_str(&format!(
            "[kind.k{index}]\nlibtorch = \"test/{name}\"\n[[host]]\nname = \"node-{index}\"\nkind = \"k{index}\"\npath = \".\"\nreach = \"local\"\nslots = 1\n"
        ));
    }
    project.cluster(&cluster);
    project
}

#[test]
fn hosts_of_one_run_with_two_versions_of_nccl_are_an_error_with_both_and_may_be_accepted() {
    let nccl = "libnccl.so.2";
    let project = cuda([(nccl, "NCCL version 2.27.5+cuda12.9"), (nccl, "NCCL version 2.21.5+cuda12.4")]);
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[nccl-differs]").says("NCCL 2.21.5 on `node-1`, NCCL 2.27.5 on `node-0`");
    assert!(project.published().is_empty());
    project.run(&["build", "--host", "node-0"]).ok();
    project.run(&["build", "--accept", "nccl-differs"]).ok().says("(accepted: on the command line)");
    let report = report(&project, &["--accept", "nccl-differs"]);
    assert_eq!(report["run"][0]["outcome"], "doubtful", "{}", report["run"]);
    // What it was compiled with does not count.
    let project = cuda([(nccl, "NCCL version 2.27.5+cuda12.9"), (nccl, "NCCL version 2.27.5+cuda12.8")]);
    project.run(&["build"]).ok();
    let text = project.run(&["verify"]).ok().stdout;
    assert!(text.contains("checked here     NCCL             NCCL 2.27.5\n"), "{text}");
}

#[test]
fn a_library_that_is_loaded_by_its_name_and_is_not_there_is_an_error_before_anything_is_published() {
    let project = cuda([("libcudnn.so.9", "x"), ("libnccl.so.2", "NCCL version 2.27.5")]);
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[loaded-by-name-missing]").says("`libcudnn.so.9` loads `libcudnn_graph.so.9` by its name");
    ran.says("`libcudnn_adv.so.9`");
    // The four parts that every use of cuDNN may ask for, of the one host that loads it.
    assert_eq!(ran.stderr.matches("error[loaded-by-name-missing]").count(), 4, "{}", ran.stderr);
    assert!(project.published().is_empty());
}

/// The published binaries of a project, looked at as those of another machine.
fn from_afar(project: &Project, host: &str) -> Verified {
    let root: camino::Utf8PathBuf = project.root.clone().try_into().unwrap();
    let context = Context { invocation: "cargo xtask".to_owned(), cwd: root.clone(), exe: None, env: project.env() };
    let facts = Facts::gather(&Choice { hosts: vec![host.to_owned()], ..Choice::default() }, &context, false).unwrap();
    let mut known = facts.knowledge().remove(host).unwrap();
    known.sight = Sight::Elsewhere;
    if known.facts.as_ref().is_some_and(|known| known.origin == torchlift_xtask::facts::Origin::Probed) {
        known.facts = None;
    }
    let build = facts.plan.hosts[0].clone();
    let place = root.join(&build.bin);
    let built = Built {
        file: place.clone(),
        place,
        bytes: String::new(),
        cwd: root,
        cpu_level: Some("x86-64-v2".to_owned()),
        made: Made::default(),
        envelope: Some(project.envelope(host)),
        known,
        host: build,
    };
    verify(&Question { hosts: vec![built], ..Question::default() }, &mut DigestCache::in_memory())
}

#[test]
fn from_afar_the_systems_libraries_are_not_looked_up_here_and_their_symbols_are_not_checked() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let verified = from_afar(&project, "node-1");
    let looked = &verified.hosts[0];
    assert!(looked.findings.is_empty(), "{:?}", looked.findings);
    let inspection = looked.inspection.as_ref().unwrap();
    let lib = project.root.join("libtorch/test/cpu/lib");
    for object in &inspection.closure.objects {
        assert!(object.path.starts_with(&lib), "{} is this machine's", object.path.display());
    }
    assert!(inspection.unseen.iter().any(|name| name == "libc.so.6"), "{:?}", inspection.unseen);
    assert!(inspection.closure.find("libtorch_cpu.so").is_some());
    let label = |subject| looked.checks.iter().find(|check| check.check == subject).unwrap().label;
    assert_eq!([Subject::Bytes, Subject::Libraries, Subject::CxxAbi].map(label), [Label::Here; 3]);
    let not = [Subject::SystemLibraries, Subject::Symbols, Subject::SystemVersions, Subject::Cpu];
    assert_eq!(not.map(label), [Label::Not; 4]);
    assert_eq!(Verdict::of(&looked.checks), Verdict::Unproven);
}

#[test]
fn from_afar_needed_libraries_and_versions_are_held_against_the_facts_of_the_host() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    facts_of_node_2(&project, &old_glibc());
    let verified = from_afar(&project, "node-2");
    let looked = &verified.hosts[0];
    let messages: Vec<&str> = looked.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("of `libc.so.6`, and host `node-2` goes up to `GLIBC_2.17`"), "{messages:?}");
    let versions = looked.checks.iter().find(|check| check.check == Subject::SystemVersions).unwrap();
    assert_eq!((versions.label, versions.outcome), (Label::OnHost, Some(Outcome::Fails)));
    let libraries = looked.checks.iter().find(|check| check.check == Subject::SystemLibraries).unwrap();
    assert_eq!(libraries.label, Label::Not, "{}", libraries.how);
    assert!(!libraries.how.contains("`libc.so.6`"), "the facts have it: {}", libraries.how);
}
