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

/// Every file and folder below the project, with the time of its last change.
fn tree(project: &Project) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let mut tree: Vec<_> = walkdir::WalkDir::new(&project.root)
        .into_iter()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.path().to_owned(), entry.metadata().unwrap().modified().unwrap())
        })
        .collect();
    tree.sort();
    tree
}

/// A cluster file with something wrong in nearly every table; the comments name the code for the line.
const ALL_WRONG: &str = "schema = 1
[job.train]
bin = 'linkd'                        # program-unknown
profile = 'qick'                     # profile-unknown
colour = 'red'                       # unknown-key
[kind.k]
libtorch = 'test/cpx'                # libtorch-not-found
[kind.other]
libtorch = 'test/other'              # libtorch-other-cpu
[[host]]
name = 'node-1'
kind = 'k'
path = '.'
reach = 'local'
[[host]]
name = 'node-1'                      # duplicate-host
kind = 'k'
path = '.'
reach = 'local'
[[host]]
name = 'rack-[9-2]'                  # bad-range
kind = 'k'
path = '.'
reach = 'local'
[[host]]
name = 'under_score'                 # bad-name
kind = 'k'
path = '.'
reach = 'local'
[[host]]
name = 'gone'
kind = 'other'
path = '/does/not exist/ü'           # path-missing
reach = 'local'
[[host]]
name = 'far'
kind = 'k'
path = '/p'
reach = { ssh = 'me@far' }           # reach-not-yet
slot = 3                             # unknown-key
";

#[test]
fn all_that_is_wrong_with_a_cluster_is_told_in_one_run_and_nothing_is_written() {
    let project = Project::linked();
    for_another_cpu(&project.libtorch("other", false));
    project.write("cluster.toml", ALL_WRONG);
    let before = tree(&project);
    for verb in [&["build"][..], &["build", "--dry-run"], &["launch"], &["launch", "--no-build"]] {
        let ran = project.run(verb).fails(exit_code::CLUSTER_FILE);
        let blocks: Vec<&str> = ran.stderr.split("error[").skip(1).collect();
        let mut expected = 0;
        for (number, line) in ALL_WRONG.lines().enumerate() {
            let Some((_, code)) = line.split_once("# ") else { continue };
            let place = format!("--> cluster.toml:{}:", number + 1);
            let block = blocks.iter().find(|block| block.starts_with(&format!("{code}]")) && block.contains(&place));
            let block = block.unwrap_or_else(|| panic!("no {code} on line {} in:\n{}", number + 1, ran.stderr));
            assert!(block.contains("= help: "), "{block}");
            expected += 1;
        }
        assert_eq!(blocks.len(), expected, "each is told once:\n{}", ran.stderr);
        ran.says("did you mean `linked`?").says("did you mean `quick`?").says("did you mean `slots`?");
        assert_eq!(tree(&project), before);
    }
}

/// Changes the machine in the ELF header of a stand-in: 62 is x86-64, 183 is AArch64.
fn for_another_cpu(libtorch: &std::path::Path) {
    let library = libtorch.join("lib/libtorch_cpu.so");
    let mut bytes = fs_err::read(&library).unwrap();
    let other: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    bytes[18..20].copy_from_slice(&other.to_le_bytes());
    fs_err::write(&library, bytes).unwrap();
}

#[test]
fn a_libtorch_for_another_cpu_is_a_finding_before_the_build() {
    let project = Project::linked();
    for_another_cpu(&project.root.join("libtorch/test/cpu"));
    project.run(&["build"]).fails(exit_code::CLUSTER_FILE).says("error[libtorch-other-cpu]").says("cluster.toml:5:");
    assert!(!project.root.join("target").exists());
}

#[test]
fn a_folder_that_is_no_whole_libtorch_is_a_finding_with_what_to_write() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let whole = project.root.join("libtorch/test/cpu");
    let inside = format!("write `{}`", whole.display());
    for (folder, help) in [(whole.join("lib"), inside.as_str()), (project.root.join("nirgendwo"), "libtorch fetch")] {
        project.write("cluster.toml", &text.replace("\"test/cpu\"", &format!("\"{}\"", folder.display())));
        let ran = project.run(&["build", "--dry-run"]).fails(exit_code::CLUSTER_FILE);
        ran.says("error[libtorch-unusable]").says("--> cluster.toml:5:").says(help);
    }
}

#[test]
fn a_libtorch_that_was_passed_over_is_told_with_its_reason() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("\"test/cpu\"", "\"auto\""));
    let ran = project.run_with(&["build", "--dry-run"], &[("LIBTORCH", "/nirgendwo")]).ok();
    ran.says("warning[libtorch-skipped]").says("`LIBTORCH` (`/nirgendwo`)");
    assert!(ran.stdout.contains("target/cluster/node-2/test-cpu/quick/linked"), "{}", ran.stdout);
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
fn a_feature_that_the_package_lacks_is_answered_with_the_near_miss() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    project.write("cluster.toml", &text.replace("[kind.k]", "[kind.k]\nfeatures = [\"lowd\"]"));
    let ran = project.run(&["build"]).fails(exit_code::CLUSTER_FILE);
    ran.says("error[feature-unknown]").says("--> cluster.toml:5:").says("did you mean `loud`?");
}

#[test]
fn hosts_job_and_file_are_chosen_on_the_command_line() {
    let project = Project::linked();
    let text = fs_err::read_to_string(project.root.join("cluster.toml")).unwrap();
    let other = text.replace("[kind.k]", "[job.eval]\nprofile = \"dev\"\n[kind.k]").replace("[1-2]", "[1-4]");
    project.write("clusters/größer.toml", &other.replace("path = \".\"", "path = \"..\""));
    let folder = project.root.join("clusters");
    let plan = |args: &[&str]| -> (Vec<String>, String) {
        let mut command = project.command(&["build", "--dry-run", "--format", "json", "--cluster", "größer.toml"]);
        let ran = crate::support::Ran::of(&command.args(args).current_dir(&folder).output().unwrap()).ok();
        let plan: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        (plan["hosts"].as_array().unwrap().iter().map(|host| text(&host["name"])).collect(), text(&plan["profile"]))
    };
    assert_eq!(plan(&[]), (["node-1", "node-2", "node-3", "node-4"].map(str::to_owned).to_vec(), "quick".to_owned()));
    assert_eq!(plan(&["--exclude", "node-[2-3]"]).0, ["node-1", "node-4"]);
    assert_eq!(plan(&["--host", "node-[1-3]", "--exclude", "node-2"]).0, ["node-1", "node-3"]);
    assert_eq!(plan(&["--job", "eval"]).1, "dev");
}

#[test]
fn outside_of_a_workspace_the_error_is_cargos_own() {
    let project = Project::linked();
    fs_err::remove_file(project.root.join("Cargo.toml")).unwrap();
    project.run(&["build"]).fails(exit_code::BUILD).says("Cargo.toml").says("--manifest-path");
    let ran = project.run(&["build", "--manifest-path", "nirgendwo/Cargo.toml"]).fails(exit_code::BUILD);
    ran.says("nirgendwo/Cargo.toml").says("does not exist");
    assert!(!ran.stderr.contains("an installed cargo"), "{}", ran.stderr);
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
