//! What earlier commands left.

use std::process::{Command, Stdio};

use crate::examination::Examination;
use crate::support::Project;

#[test]
fn a_process_that_outlived_its_launcher_is_named_with_how_to_end_it() {
    let project = Project::linked();
    let id = format!("20200101-000000.000-{}", std::process::id());
    let mut orphan = Command::new("/bin/sh")
        .args(["-c", "echo; read -r word"])
        .envs([("TORCHLIFT_RUN_ID", id.as_str()), ("TORCHLIFT_RUN_DIR", "/runs/ü")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its first byte says that it is the shell by now.
    std::io::Read::read_exact(orphan.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let found = Examination::of(&project, &[], &[]);
    drop(orphan.stdin.take());
    orphan.wait().unwrap();
    let own =
        |found: &Examination| found.all("leftovers", "processes").into_iter().find(|look| look.found.contains(&id));
    let look = own(&found).unwrap();
    assert_eq!(look.state, "doubtful");
    assert!(look.found.contains("`/runs/ü`") && look.found.contains("/bin/sh -c"), "{look:?}");
    assert!(look.remedy.contains(&format!("`kill {}`", orphan.id())), "{look:?}");
    assert_eq!(own(&Examination::of(&project, &[], &[])), None);
}

#[test]
fn a_build_that_is_at_work_is_named() {
    let project = Project::linked();
    let file = project.root.join("target/cluster/.lock");
    fs_err::create_dir_all(file.parent().unwrap()).unwrap();
    let lock = fs_err::File::create(&file).unwrap();
    lock.file().lock().unwrap();
    let look = Examination::of(&project, &[], &[]).only("leftovers", "build-lock");
    assert!(look.state == "doubtful" && look.found.contains(&format!("process {}", std::process::id())), "{look:?}");
    drop(lock);
    assert_eq!(
        Examination::of(&project, &[], &[]).state("leftovers", "build-lock"),
        "right",
        "a file without a holder is no lock"
    );
}
