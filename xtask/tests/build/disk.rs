//! A disk that is full while results are published.

use std::path::{Path, PathBuf};
use std::process::Command;

use torchlift_schema::exit_code;

use crate::skip::skip;
use crate::support::Project;

/// Enough for two binaries, twice over, and not much more.
const SIZE: &str = "size=8m";

/// A small file system of its own; gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path) -> Option<Self> {
        fs_err::create_dir_all(place).unwrap();
        let mut mount = Command::new("mount");
        let is_there = mount
            .args(["-t", "tmpfs", "-o", SIZE, "tmpfs"])
            .arg(place)
            .output()
            .is_ok_and(|output| output.status.success());
        is_there.then(|| Self(place.to_owned()))
    }

    fn fill(&self) -> PathBuf {
        let file = self.0.join(".filler");
        let mut open = fs_err::File::create(&file).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut open).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        file
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_leaves_no_half_file_and_keeps_what_was_there() {
    let project = Project::linked();
    let Some(disk) = SmallDisk::mount(&project.root.join("target/cluster")) else {
        let test = "a_full_disk_leaves_no_half_file_and_keeps_what_was_there";
        return skip(test, "no tmpfs can be mounted here", "run the tests as root in a container with CAP_SYS_ADMIN");
    };
    project.run(&["build"]).ok();
    let state = || -> Vec<(String, Vec<u8>)> {
        let read = |name: String| {
            let bytes = fs_err::read(project.root.join("target/cluster").join(&name)).unwrap();
            (name, bytes)
        };
        project.published().into_iter().filter(|name| name != ".filler").map(read).collect()
    };
    let before = state();
    assert_eq!(before.len(), 4);

    // Only envelopes would be new: of a file that the source id counts and the binary does not know.
    project.write("notes.toml", "");
    let filler = disk.fill();
    let ran = project.run(&["build"]).fails(exit_code::BUILD);
    ran.says("the envelope of host `node-1` cannot be written").says("No space left on device");
    assert_eq!(state(), before);

    // Binaries would be new too.
    let main = fs_err::read_to_string(project.root.join("src/main.rs")).unwrap();
    project.write("src/main.rs", &main.replace("the answer is", "the reply is"));
    let ran = project.run(&["build"]).fails(exit_code::BUILD);
    ran.says("the binary of host `node-1` cannot be published").says("No space left on device");
    assert_eq!(state(), before);

    fs_err::remove_file(filler).unwrap();
    project.run(&["build"]).ok();
    assert_ne!(state(), before);
}
