//! The loader's search, each case against the real loader.

use std::path::{Path, PathBuf};
use std::process::Command;

use torchlift::preflight::loader::{self, How, MissingReason};
use torchlift::preflight::{HostLibraries, LibraryPath};

use crate::real_loader::assert_same;
use crate::stand_in::{compile, library, search};
use crate::{Room, text};

/// `tree` needs `libbranch.so`, which needs `libleaf.so`. One leaf lies in each folder of `leaves`, and returns its
/// place in them; `libbranch.so` and all others are linked with what is given.
struct Tree {
    room: Room,
    program: PathBuf,
}

impl Tree {
    fn new(leaves: &[&str], branch_args: &[String], program_args: &[String]) -> Self {
        let room = Room::new();
        let build = room.folder("build");
        let lib = room.folder("lib");
        library::<&str>("leaf.c", &build.join("libleaf.so"), &[]);
        for (index, folder) in leaves.iter().enumerate() {
            let value = format!("-DLEAF={}", index + 1);
            library("leaf.c", &room.folder(folder).join("libleaf.so"), &[value]);
        }
        let mut args = vec![search(&build), "-lleaf".to_owned()];
        args.extend(branch_args.iter().map(|arg| arg.replace("@", text(&room.root))));
        library("branch.c", &lib.join("libbranch.so"), &args);
        let mut args = vec![search(&lib), "-lbranch".to_owned(), "-Wl,--allow-shlib-undefined".to_owned()];
        args.extend(program_args.iter().map(|arg| arg.replace("@", text(&room.root)).replace("#", &search(&build))));
        let program = room.folder("bin").join("tree");
        compile("cc", "tree.c", &program, &args);
        Self { room, program }
    }

    /// Compares with the real loader, and then runs the program: what it returns tells which leaf it really got.
    fn leaf(&self, library_path: &str) -> Option<How> {
        let library_path = library_path.replace("@", text(&self.room.root));
        let closure = assert_same(&self.program, &library_path, &self.room.root);
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir(&self.room.root);
        if !library_path.is_empty() {
            command.env("LD_LIBRARY_PATH", &library_path);
        }
        let code = command.output().unwrap().status.code();
        assert_eq!(closure.is_complete(), code != Some(127), "{closure:?}");
        closure.find("libleaf.so").map(|object| object.how)
    }
}

fn args(args: &[&str]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).collect()
}

const RPATH: &str = "-Wl,--disable-new-dtags,-rpath,";
const RUNPATH: &str = "-Wl,--enable-new-dtags,-rpath,";

#[test]
fn the_programs_of_this_machine_are_loaded_as_the_loader_loads_them() {
    let python = which("python3");
    for program in ["/bin/true", "/bin/ls", "/usr/bin/env", "/usr/bin/gcc"].iter().map(PathBuf::from).chain(python) {
        if program.exists() {
            let closure = assert_same(&program, "", Path::new("/"));
            assert!(closure.is_complete(), "{closure:?}");
        }
    }
    // A program with many libraries that is always there: this test.
    assert_same(&std::env::current_exe().unwrap(), "", Path::new("/"));
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| {
        // A shim may be a script.
        fs_err::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    })
}

#[test]
fn rpath_is_inherited_and_goes_before_the_library_path() {
    let tree = Tree::new(&["a", "b"], &[], &args(&[&format!("{RPATH}@/a:@/lib")]));
    assert_eq!(tree.leaf("@/b"), Some(How::Rpath));
    assert_eq!(tree.leaf(""), Some(How::Rpath));
}

#[test]
fn runpath_is_not_inherited_and_goes_behind_the_library_path() {
    let tree = Tree::new(&["a", "b"], &[], &args(&[&format!("{RUNPATH}@/a:@/lib")]));
    assert_eq!(tree.leaf(""), None);
    assert_eq!(tree.leaf("@/b"), Some(How::LibraryPath));
}

#[test]
fn an_rpath_is_not_inherited_by_an_object_with_a_runpath() {
    let program = args(&[&format!("{RPATH}@/a:@/lib")]);
    let tree = Tree::new(&["a", "b"], &args(&[&format!("{RUNPATH}@/b")]), &program);
    assert_eq!(tree.leaf(""), Some(How::Runpath));
    assert_eq!(tree.leaf("@/a"), Some(How::LibraryPath));
    let tree = Tree::new(&["a", "b"], &args(&[&format!("{RUNPATH}@/nowhere")]), &program);
    assert_eq!(tree.leaf(""), None);
}

#[test]
fn the_objects_own_rpath_goes_before_the_inherited_one() {
    let program = args(&[&format!("{RPATH}@/a:@/lib")]);
    let tree = Tree::new(&["a", "b"], &args(&[&format!("{RPATH}@/b")]), &program);
    assert_eq!(tree.leaf(""), Some(How::Rpath));
    assert_eq!(tree.leaf("@/a"), Some(How::Rpath));
}

#[test]
fn a_library_that_is_loaded_already_is_not_searched_again() {
    // The program needs the leaf itself, and finds another than the branch would.
    let program = args(&["-DWITH_LEAF", "#", "-lleaf", &format!("{RUNPATH}@/a:@/lib")]);
    let tree = Tree::new(&["a", "b"], &args(&[&format!("{RUNPATH}@/b")]), &program);
    assert_eq!(tree.leaf(""), Some(How::Runpath));
    assert_eq!(tree.leaf("@/b:@/a"), Some(How::LibraryPath));
}

#[test]
fn origin_is_the_objects_own_folder_and_the_programs_real_one() {
    let tree = Tree::new(
        &["a", "lib/leaves"],
        &args(&[&format!("{RUNPATH}${{ORIGIN}}/leaves")]),
        &args(&[&format!("{RUNPATH}$ORIGIN/../lib")]),
    );
    assert_eq!(tree.leaf(""), Some(How::Runpath));
    // Through a link to the program from elsewhere.
    let link = tree.room.folder("elsewhere").join("tree");
    std::os::unix::fs::symlink(&tree.program, &link).unwrap();
    assert!(assert_same(&link, "", &tree.room.root).is_complete());
    // A link to a folder of libraries stays what it is called.
    let lib = tree.room.path("lib link");
    std::os::unix::fs::symlink(tree.room.path("lib"), &lib).unwrap();
    assert!(assert_same(&tree.program, text(&lib), &tree.room.root).is_complete());
    // In LD_LIBRARY_PATH it is the program's folder; `$LIB` and `$PLATFORM` are the host's words.
    assert_eq!(tree.leaf("$ORIGIN/../a"), Some(How::LibraryPath));
    let host = torchlift::preflight::HostLibraries::of_this_host();
    let words = tree.room.folder(&format!("{}/{}", host.lib, host.platform.unwrap()));
    library::<&str>("leaf.c", &words.join("libleaf.so"), &[]);
    assert_eq!(tree.leaf("@/$LIB/${PLATFORM}"), Some(How::LibraryPath));
}

#[test]
fn the_library_path_is_split_at_colons_and_semicolons() {
    let tree = Tree::new(&["a", "b"], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    assert_eq!(tree.leaf("@/none;@/b:@/a"), Some(How::LibraryPath));
    assert_eq!(tree.leaf("@/none/;@/a//;@/b"), Some(How::LibraryPath));
}

#[test]
fn an_empty_element_is_the_working_directory() {
    let tree = Tree::new(&["."], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    for library_path in [":/nowhere", "/nowhere:", "/nowhere::/nowhere", ";", "."] {
        assert_eq!(tree.leaf(library_path), Some(How::LibraryPath), "{library_path}");
    }
    assert_eq!(tree.leaf("/nowhere"), None);
    // In a search path of the file, too.
    let tree = Tree::new(&["."], &[], &args(&[&format!("{RPATH}@/lib:")]));
    assert_eq!(tree.leaf(""), Some(How::Rpath));
}

#[test]
fn a_library_for_another_cpu_is_passed_over() {
    let tree = Tree::new(&["a", "b"], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    let leaf = tree.room.path("a/libleaf.so");
    for (offset, value) in [(18, 183), (4, 1)] {
        let whole = fs_err::read(&leaf).unwrap();
        let mut bytes = whole.clone();
        // e_machine: AArch64; or the class: 32 bits.
        bytes[offset] = value;
        fs_err::write(&leaf, &bytes).unwrap();
        assert_eq!(tree.leaf("@/a:@/b"), Some(How::LibraryPath));
        let closure = assert_same(&tree.program, text(&tree.room.path("a")), &tree.room.root);
        let missing = closure.missing.iter().find(|missing| missing.name == "libleaf.so").unwrap();
        let MissingReason::NotFound { other_machines } = &missing.reason else { panic!("{missing:?}") };
        assert_eq!(other_machines[0].0, leaf);
        fs_err::write(&leaf, &whole).unwrap();
    }
}

#[test]
fn behind_qemu_each_file_is_looked_for_in_its_folder_first_and_a_whole_system_has_nothing_of_this_machine() {
    let tree = Tree::new(&["sys tem/usr/lib"], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    let system = tree.room.path("sys tem");
    let (arch, none) = (std::env::consts::ARCH, LibraryPath::default());
    let of = |host: &HostLibraries| loader::closure(&tree.program, &none, &tree.room.root, host).unwrap();

    let closure = of(&HostLibraries::of_this_host());
    assert_eq!(closure.missing.iter().map(|missing| missing.name.as_str()).collect::<Vec<_>>(), ["libleaf.so"]);
    let emulated = of(&HostLibraries::emulated(arch, Some(&system)));
    assert!(emulated.is_complete(), "{emulated:?}");
    let leaf = emulated.find("libleaf.so").unwrap();
    assert_eq!((&leaf.path, leaf.how), (&system.join("usr/lib/libleaf.so"), How::DefaultFolder));
    assert_eq!(emulated.find("libc.so.6").unwrap().facts.arch, arch);

    let whole = of(&HostLibraries::below(arch, &system));
    assert_eq!(whole.find("libleaf.so").unwrap().path, system.join("usr/lib/libleaf.so"));
    let missing: Vec<_> = whole.missing.iter().map(|missing| (missing.name.as_str(), missing.is_interpreter)).collect();
    assert!(missing.contains(&("libc.so.6", false)) && missing.iter().any(|(_, is_loader)| *is_loader), "{missing:?}");
    assert!(whole.objects.iter().all(|object| object.path.starts_with(&tree.room.root)), "{whole:?}");
}

#[test]
fn a_text_in_place_of_a_library_ends_the_search() {
    let tree = Tree::new(&["a", "b"], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    fs_err::write(tree.room.path("a/libleaf.so"), "INPUT(-lbranch)\n".repeat(10)).unwrap();
    let library_path = format!("{}:{}", text(&tree.room.path("a")), text(&tree.room.path("b")));
    // The real loader dies of it, even while it only lists.
    let output = Command::new(&tree.program).env("LD_LIBRARY_PATH", &library_path).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid ELF header"));
    let host = torchlift::preflight::HostLibraries::of_this_host();
    let path = torchlift::preflight::LibraryPath::parse(library_path.as_ref());
    let closure = torchlift::preflight::loader::closure(&tree.program, &path, &tree.room.root, &host).unwrap();
    let MissingReason::Unusable { path, .. } = &closure.missing[0].reason else { panic!("{closure:?}") };
    assert_eq!(path, &tree.room.path("a/libleaf.so"));
}

#[test]
fn a_library_for_a_better_cpu_level_goes_first() {
    let host = torchlift::preflight::HostLibraries::of_this_host();
    let tree = Tree::new(&["a"], &[], &args(&[&format!("{RUNPATH}@/lib")]));
    for level in host.hwcaps.iter().rev() {
        let folder = tree.room.folder(&format!("a/glibc-hwcaps/{level}"));
        library::<&str>("leaf.c", &folder.join("libleaf.so"), &[]);
        assert_eq!(tree.leaf("@/a"), Some(How::LibraryPath));
    }
    let unknown = tree.room.folder("a/glibc-hwcaps/x86-64-v99");
    library::<&str>("leaf.c", &unknown.join("libleaf.so"), &[]);
    assert_eq!(tree.leaf("@/a"), Some(How::LibraryPath));
}

#[test]
fn one_file_under_two_names_is_loaded_once() {
    let room = Room::new();
    let lib = room.folder("lib");
    library::<&str>("leaf.c", &lib.join("libleaf.so"), &[]);
    // Without a soname, libraries are needed by the name that they were linked with.
    compile("cc", "leaf.c", &lib.join("libone.so"), &["-shared", "-fPIC"]);
    let program = room.path("tree");
    let folder = search(&lib);
    library("branch.c", &lib.join("libbranch.so"), &[folder.as_str(), "-lone"]);
    std::os::unix::fs::symlink(lib.join("libone.so"), lib.join("libtwo.so")).unwrap();
    let args = [folder.as_str(), "-Wl,--no-as-needed", "-lbranch", "-ltwo", "-lone"];
    compile("cc", "tree.c", &program, &args);
    let closure = assert_same(&program, text(&lib), &room.root);
    assert_eq!(closure.objects.iter().filter(|object| object.path.starts_with(&lib)).count(), 2, "{closure:?}");
}

#[test]
fn a_name_with_a_slash_is_a_path() {
    let room = Room::new();
    let lib = room.folder("lib");
    let leaf = lib.join("libleaf.so");
    compile("cc", "leaf.c", &leaf, &["-shared", "-fPIC", "-Wl,-soname,lib/libleaf.so"]);
    let folder = search(&lib);
    library("branch.c", &lib.join("libbranch.so"), &[folder.as_str(), "-lleaf"]);
    let program = room.path("tree");
    compile("cc", "tree.c", &program, &[folder.as_str(), "-lbranch", "-Wl,--allow-shlib-undefined"]);
    let closure = assert_same(&program, text(&lib), &room.root);
    assert_eq!(closure.find("lib/libleaf.so").unwrap().how, How::Path);
    assert!(!assert_same(&program, text(&lib), &lib).is_complete());
}
