//! A store on a disk that is full or cannot be written.

use std::process::Command;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;

use crate::skip::skip;
use crate::tree::{ID, fails, gzip, libtorch, ok, tar, with_libtorch};
use crate::world::World;

/// A small file system of its own; gone with the value.
struct Disk(Utf8PathBuf);

impl Disk {
    fn mount(place: &Utf8Path, size: &str) -> Option<Self> {
        fs_err::create_dir_all(place).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(place).output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(place.to_owned()))
    }

    fn read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn disk(world: &World, size: &str, test: &str) -> Option<Disk> {
    let disk = Disk::mount(&world.base.join("home"), size);
    if disk.is_none() {
        skip(test, "no tmpfs can be mounted here", "run the tests as root in a container with CAP_SYS_ADMIN");
    }
    disk
}

#[test]
fn a_disk_without_room_is_told_with_both_sizes_and_nothing_is_left() {
    let (world, root) = with_libtorch();
    let test = "a_disk_without_room_is_told_with_both_sizes_and_nothing_is_left";
    let Some(_disk) = disk(&world, "8m", test) else { return };
    let archive = world.base.join("libtorch.tar.gz");
    fs_err::write(&archive, gzip(&tar(Some((&root, "libtorch")), &[]))).unwrap();
    for path in [&root, &archive] {
        let told = fails(&world.run(&["add", path.as_str()]), exit_code::BUILD);
        assert!(told.contains("are needed, and it has") && told.contains("make room there"), "{told}");
        assert_eq!(world.remains(), [""; 0]);
    }
}

#[test]
fn a_disk_that_is_full_keeps_the_pointer_that_was_there() {
    let (world, _root) = with_libtorch();
    let test = "a_disk_that_is_full_keeps_the_pointer_that_was_there";
    let Some(_disk) = disk(&world, "8m", test) else { return };
    for id in ["mine/a", "mine/b"] {
        libtorch(&world, &world.store().join(id), "2.9.0");
    }
    ok(&world.run(&["use", "mine/a"]));
    let mut filler = fs_err::File::create(world.base.join("home/filler")).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut filler).unwrap_err();
    let told = fails(&world.run(&["use", "mine/b"]), exit_code::BUILD);
    assert!(told.contains("No space left on device"), "{told}");
    assert_eq!(fs_err::read_to_string(world.store().join(".active")).unwrap(), "mine/a\n");
    let names: Vec<String> = world.remains().into_iter().filter(|name| name.starts_with(".use")).collect();
    assert_eq!(names, [""; 0]);
    // What is deleted needs no room.
    ok(&world.run(&["remove", "mine/b"]));
}

#[test]
fn a_store_that_cannot_be_written_is_read_all_the_same() {
    let (world, root) = with_libtorch();
    let test = "a_store_that_cannot_be_written_is_read_all_the_same";
    let Some(disk) = disk(&world, "256m", test) else { return };
    ok(&world.run(&["add", root.as_str()]));
    disk.read_only();
    assert!(ok(&world.run(&["list"])).starts_with(ID));
    assert!(ok(&world.run(&["verify", ID])).contains("as it was put in"));
    ok(&world.run(&["path", "--cpu", "--arch", "x86_64", "--torch", "2.9.0"]));
    let root = root.as_str();
    for args in [&["add", root, "--name", "mine/x"][..], &["remove", ID], &["use", ID]] {
        let told = fails(&world.run(args), exit_code::BUILD);
        assert!(told.contains("Read-only file system"), "{args:?}: {told}");
    }
}
