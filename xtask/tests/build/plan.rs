//! What is said before anything is built.

use torchlift_schema::exit_code;

use crate::support::Project;

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    let project = Project::linked();
    let ran = project.run(&["build", "--dry-run"]).ok();
    assert!(ran.stdout.contains("for kind `k` (node-1, node-2)"), "{}", ran.stdout);
    assert!(ran.stdout.contains("target/cluster/node-2/test-cpu/quick/linked"), "{}", ran.stdout);
    let ran = project.run(&["build", "--dry-run", "--format", "json", "--host", "node-2"]).ok();
    let plan: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(plan["hosts"].as_array().unwrap().len(), 1);
    assert_eq!(plan["builds"][0]["hosts"][0], "node-2");
    assert!(!project.root.join("target").exists());
}

#[test]
fn all_that_is_wrong_with_a_cluster_is_told_in_one_run_and_nothing_is_written() {
    let project = Project::linked();
    project.cluster(
        "[job.train]\nbin = \"linkd\"\n[kind.k]\nlibtorch = \"test/cpx\"\nfeatures = [\"lowd\"]\n\
         [[host]]\nname = \"a\"\nkind = \"k\"\npath = \"/p\"\nreach = { ssh = \"me@a\" }\n\
         [[host]]\nname = \"b\"\nkind = \"k\"\npath = \".\"\nreach = \"local\"\nspeed = 3\n",
    );
    let ran = project.run(&["build"]).fails(exit_code::CLUSTER_FILE);
    for (code, line) in [("unknown-key", 17), ("program-unknown", 3), ("libtorch-not-found", 5), ("reach-not-yet", 11)]
    {
        let place = format!("--> cluster.toml:{line}:");
        let found =
            ran.stderr.split("error[").any(|block| block.starts_with(&format!("{code}]")) && block.contains(&place));
        assert!(found, "no {code} on line {line} in:\n{}", ran.stderr);
    }
    ran.says("did you mean `linked`?").says("did you mean `test/cpu`?");
    assert!(!project.root.join("target").exists());
}

#[test]
fn a_libtorch_for_another_cpu_is_a_finding_before_the_build() {
    let project = Project::linked();
    let library = project.root.join("libtorch/test/cpu/lib/libtorch_cpu.so");
    let mut bytes = fs_err::read(&library).unwrap();
    // The machine in the ELF header: 62 is x86-64, 183 is AArch64.
    let other: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    bytes[18..20].copy_from_slice(&other.to_le_bytes());
    fs_err::write(&library, bytes).unwrap();
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("error[libtorch-other-cpu]").says("cluster.toml:5:");
    assert!(!project.root.join("target").exists());
}

#[test]
fn names_that_the_command_line_got_wrong_are_a_usage_error_with_the_near_miss() {
    let project = Project::linked();
    let ran = project.run(&["build", "--host", "nod-1", "--job", "trian"]).fails(exit_code::USAGE);
    ran.says("there is no host `nod-1`").says("there is no job `trian`").says("`train`");
    project.run(&["build", "--exclude", "node-[1-2]"]).fails(exit_code::USAGE).says("no host is left");
    project.run(&["build", "--hosts", "x"]).fails(exit_code::USAGE).says("--host");
}

#[test]
fn outside_of_a_workspace_the_error_is_cargos_own() {
    let project = Project::linked();
    fs_err::remove_file(project.root.join("Cargo.toml")).unwrap();
    project.run(&["build"]).fails(exit_code::BUILD).says("Cargo.toml").says("--manifest-path");
}

#[test]
fn a_missing_cluster_file_is_named() {
    let project = Project::linked();
    fs_err::remove_file(project.root.join("cluster.toml")).unwrap();
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("cannot read the cluster file `cluster.toml`");
}

#[test]
fn the_cluster_file_is_found_from_a_folder_further_down_and_from_elsewhere() {
    let project = Project::linked();
    let run = |folder: &std::path::Path, args: &[&str]| {
        crate::support::Ran::of(&project.command(args).current_dir(folder).output().unwrap()).ok().stdout
    };
    let here = run(&project.root, &["build", "--dry-run"]);
    assert_eq!(run(&project.root.join("src"), &["build", "--dry-run"]), here);
    let manifest = project.root.join("Cargo.toml");
    let elsewhere = run(&project.beside("x"), &["build", "--dry-run", "--manifest-path", manifest.to_str().unwrap()]);
    assert_eq!(elsewhere, here);
}

#[test]
fn another_folder_than_the_workspace_is_no_path_for_a_local_host() {
    let project = Project::linked();
    fs_err::create_dir(project.root.join("other")).unwrap();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("path = \".\"", "path = \"other\""));
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("error[path-not-the-workspace]");
    std::os::unix::fs::symlink(".", project.root.join("link")).unwrap();
    project.write("cluster.toml", &text.replace("path = \".\"", "path = \"link\""));
    project.run(&["build", "--dry-run"]).ok();
}
