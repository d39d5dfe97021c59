//! Which libtorch a kind gets by its cards, and what a built program's own GPU code is held against.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use torchlift_schema::exit_code;

use crate::made::{Entry, region};
use crate::stand_in;
use crate::support::{Project, Ran};

/// An object file with this GPU code in it, as a compiler for CUDA leaves it: the linker has to keep it.
fn object(project: &Project, name: &str, entries: &[Entry]) -> PathBuf {
    object_of(project, name, &region(entries))
}

fn object_of(project: &Project, name: &str, section: &[u8]) -> PathBuf {
    let folder = project.beside("gpu code");
    let bytes: Vec<String> = section.iter().map(u8::to_string).collect();
    let source = folder.join(format!("{name}.s"));
    fs_err::write(&source, format!(".section .nv_fatbin,\"aR\"\n.balign 8\n.byte {}\n", bytes.join(","))).unwrap();
    let object = folder.join(format!("{name}.o"));
    let output = Command::new("cc").arg("-c").arg("-o").arg(&object).arg(&source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

/// A stand-in libtorch for CUDA, `test/<name>`, whose kernels have this code.
fn variant(project: &Project, name: &str, entries: &[Entry]) -> PathBuf {
    let root = project.libtorch(name, true);
    let lib = root.join("lib");
    let (search, code) = (stand_in::search(&lib), object(project, name, entries));
    stand_in::library(
        "torch_cuda.c",
        &lib.join("libtorch_cuda.so"),
        &[search.as_str(), "-ltorch_cpu", "-lc10", code.to_str().unwrap()],
    );
    lib
}

/// A library with this code that calls nothing and that nobody calls.
fn leaf(project: &Project, file: &Path, entries: &[Entry]) {
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let code = object(project, &name, entries);
    stand_in::library("leaf.c", file, &[code]);
}

/// One host, whose cards have these capabilities and whose driver serves all of today's code.
fn cards(project: &Project, capabilities: &[&str]) {
    let gpus: Vec<Value> = (0..)
        .zip(capabilities)
        .map(|(index, capability): (u32, _)| {
            json!({ "vendor": "nvidia", "index": index, "name": format!("Card {capability}"), "capability": capability })
        })
        .collect();
    let host = json!({
        "read_at": "9999-01-01T00:00:00Z", "torchlift": "0.1.0", "system": {}, "cpu": { "arch": "x86_64" }, "cores": {},
        "memory": {}, "loader": {}, "gpus": gpus, "nvidia": { "version": "580.65.06", "cuda": "13.0" },
    });
    project.write("cluster.facts.json", &json!({ "version": 1, "hosts": { "box": host } }).to_string());
}

/// One host of a kind with this `libtorch`, and further lines for the kind.
fn cluster(project: &Project, libtorch: &str, further: &str) {
    project.cluster(&format!(
        "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"{libtorch}\"\n{further}\n\
         [[host]]\nname = \"box\"\nkind = \"k\"\npath = \".\"\nslots = 1\n"
    ));
}

/// A project with this `libtorch`.
fn project(libtorch: &str) -> Project {
    let project = Project::linked();
    cluster(&project, libtorch, "");
    project
}

/// Makes the program link these files, whether it calls them or not.
fn link(project: &Project, files: &[&Path]) {
    let script = project.root.join("build.rs");
    let mut text = fs_err::read_to_string(&script).unwrap();
    text.truncate(text.rfind('}').unwrap());
    for argument in
        std::iter::once("-Wl,--no-as-needed".to_owned()).chain(files.iter().map(|file| file.display().to_string()))
    {
        text.push_str(&format!("println!(\"cargo::rustc-link-arg-bins={argument}\");\n"));
    }
    fs_err::write(script, text + "}\n").unwrap();
}

fn chosen(project: &Project) -> Value {
    let ran = project.run(&["build", "--dry-run", "--format", "json"]).ok();
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    plan["chosen"][0].clone()
}

/// How often a finding of this code was told.
fn told(ran: &Ran, code: &str) -> usize {
    ran.stderr.matches(&format!("[{code}]")).count()
}

#[test]
fn auto_takes_what_the_cards_run_as_it_is_and_says_why_and_what_the_others_lack() {
    let project = project("auto");
    variant(&project, "old", &[Entry::sass(61, 0)]);
    variant(&project, "ptx", &[Entry::sass(61, 0), Entry::ptx(61, 0, (8, 0))]);
    variant(&project, "both", &[Entry::sass(61, 0), Entry::sass(120, 0)]);
    cards(&project, &["12.0", "6.1"]);
    let choice = chosen(&project);
    assert_eq!(choice["variant"], "test/both");
    let reason = choice["reason"].as_str().unwrap();
    assert!(reason.starts_with("runs natively on capability 6.1 and capability 12.0"), "{reason}");
    assert!(reason.contains("`test/ptx`"), "{reason}");
    let refused = choice["refused"].to_string();
    assert!(refused.contains("test/old") && refused.contains("no code for"), "{refused}");
    let text = project.run(&["build", "--dry-run"]).ok().stdout;
    assert!(text.contains("test/both") && text.contains("runs natively on"), "{text}");
    cards(&project, &[]);
    assert_eq!(chosen(&project)["variant"], "test/cpu");
}

#[test]
fn where_no_variant_fits_it_says_what_the_host_has_and_each_variant_offers_and_how_to_get_one() {
    let project = project("auto");
    variant(&project, "old", &[Entry::sass(61, 0)]);
    cards(&project, &["12.0", "6.1"]);
    let ran = project.run(&["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[libtorch-not-found]").says("host `box`: ").says("`Card 12.0`").says("`Card 6.1`");
    ran.says("`test/old`").says("it has sm_61").says("`test/cpu`");
    ran.says("libtorch build --archs \"6.1;12.0\"");
}

#[test]
fn a_program_whose_own_code_a_card_cannot_run_is_not_published() {
    let project = project("test/both");
    variant(&project, "both", &[Entry::sass(61, 0), Entry::sass(120, 0)]);
    cards(&project, &["12.0", "6.1"]);
    let own = object(&project, "own", &[Entry::sass(120, 0)]);
    link(&project, &[&own]);
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("error[gpu-code-missing]").says("`linked` has no code for").says("`Card 6.1`").says("it has sm_120");
    assert_eq!(told(&ran, "gpu-code-missing"), 1, "{}", ran.stderr);
    assert!(project.published().is_empty());
    let ran = project.run(&["build", "--accept", "gpu-code-missing"]).ok();
    ran.says("(accepted: on the command line)");
    assert!(project.envelope("box").findings.iter().any(|finding| finding.code == "gpu-code-missing"));
}

#[test]
fn own_code_that_cannot_be_read_is_told_and_not_taken_for_none() {
    let project = project("test/both");
    variant(&project, "both", &[Entry::sass(120, 0)]);
    cards(&project, &["12.0"]);
    let whole = region(&[Entry::sass(120, 0)]);
    let own = object_of(&project, "own", &[whole.as_slice(), &whole[..20]].concat());
    link(&project, &[&own]);
    let ran = project.run(&["build"]).ok();
    ran.says("warning[gpu-code-damaged]").says("the GPU code of `linked` cannot be read whole");
    assert_eq!(told(&ran, "gpu-code-damaged"), 1, "{}", ran.stderr);
}

#[test]
fn what_the_program_loads_is_judged_by_who_made_it() {
    let project = Project::linked();
    let outside = project.beside("operators");
    cluster(&project, "test/both", &format!("library_path = {{ after = [\"{}\"] }}", outside.display()));
    let lib = variant(&project, "both", &[Entry::sass(61, 0), Entry::sass(120, 0)]);
    cards(&project, &["12.0"]);
    leaf(&project, &outside.join("libown_operators.so"), &[Entry::sass(61, 0)]);
    leaf(&project, &lib.join("libcublas.so.12"), &[Entry::sass(61, 0)]);
    // Nobody needs these: one is loaded by name, the other one never.
    leaf(&project, &lib.join("libtorch_cuda_linalg.so"), &[Entry::sass(61, 0)]);
    leaf(&project, &lib.join("libcufftw.so.11"), &[Entry::sass(52, 0)]);
    link(&project, &[&outside.join("libown_operators.so"), &lib.join("libcublas.so.12")]);
    let ran = project.run(&["build"]).fails(exit_code::VERIFY);
    ran.says("`libown_operators.so` has no code for").says("`libcublas.so.12` has too little code for");
    ran.says("`libtorch_cuda_linalg.so` has too little code for");
    assert!(!ran.stderr.contains("libcufftw"), "{}", ran.stderr);
    assert_eq!((told(&ran, "gpu-code-missing"), told(&ran, "gpu-code-partial")), (1, 2), "{}", ran.stderr);
}

#[test]
fn what_the_plan_has_told_of_a_libtorch_is_not_told_again_after_the_build() {
    let project = project("test/ptx");
    variant(&project, "ptx", &[Entry::sass(61, 0), Entry::ptx(61, 0, (8, 0))]);
    cards(&project, &["12.0"]);
    let ran = project.run(&["build"]).ok();
    assert_eq!(told(&ran, "gpu-ptx-only"), 1, "{}", ran.stderr);
    variant(&project, "ptx", &[Entry::sass(61, 0)]);
    let ran = project.run(&["build", "--accept", "gpu-code-missing"]).ok();
    assert_eq!(told(&ran, "gpu-code-missing"), 1, "{}", ran.stderr);
}
