use super::*;

fn libraries(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_accelerator_follows_the_libraries_and_not_the_version() {
    let cuda = libraries(&["libc10.so", "libtorch_cuda.so"]);
    let cut = libraries(&["libc10.so", "libtorch_cpu.so"]);
    assert_eq!(accelerator(&cuda, "2.9.0+cu128", None), Accelerator::Cuda("12.8".into()));
    assert_eq!(accelerator(&cuda, "2.9.0+cu118", None), Accelerator::Cuda("11.8".into()));
    assert_eq!(accelerator(&cuda, "2.9.0", Some("12".into())), Accelerator::Cuda("12".into()));
    assert_eq!(accelerator(&cut, "2.9.0+cu128", None), Accelerator::Cpu);
    assert_eq!(accelerator(&libraries(&["libtorch_hip.so"]), "2.9.0+rocm6.3", None), Accelerator::Rocm("6.3".into()));
}

#[test]
fn the_folder_inside_and_the_folder_around_a_libtorch_name_the_one_that_was_meant() {
    let temp = tempfile::tempdir().unwrap();
    let base = Utf8Path::from_path(temp.path()).unwrap().join("mit Leerzeichen");
    let root = base.join("libtorch");
    for part in PARTS {
        let path = root.join(part);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, "").unwrap();
    }
    for given in [root.join("lib"), base] {
        let error = inspect(&given, None).unwrap_err();
        assert!(matches!(&error, InspectError::Inside { parent, .. } if *parent == root), "{error}");
    }
    let error = inspect(&root.join("nowhere"), None).unwrap_err();
    assert!(matches!(error, InspectError::Missing { .. }), "{error}");
    fs_err::remove_file(root.join("lib/libc10.so")).unwrap();
    let error = inspect(&root, None).unwrap_err();
    assert!(matches!(error, InspectError::NotLibtorch { part: "lib/libc10.so", .. }), "{error}");
}

/// A tree of stand-in libraries: enough to be inspected, each with the exports given as C source.
fn stand_in(root: &Utf8Path, c10: &str) {
    fs_err::create_dir_all(root.join("lib")).unwrap();
    fs_err::create_dir_all(root.join("include/torch")).unwrap();
    fs_err::write(root.join("include/torch/torch.h"), "// torch").unwrap();
    fs_err::write(root.join("build-version"), "2.9.0+cpu\n").unwrap();
    for (name, source) in [("libtorch_cpu.so", "int a;"), ("libtorch.so", ""), ("libc10.so", c10)] {
        compile(root, name, source);
    }
}

fn compile(root: &Utf8Path, name: &str, source: &str) {
    let soname = format!("-Wl,-soname,{name}");
    duct::cmd!("c++", "-shared", "-fPIC", "-x", "c++", "-", &soname, "-o", name)
        .dir(root.join("lib"))
        .stdin_bytes(source)
        .run()
        .unwrap();
}

const NEW_STRING: &str = "#include <string>\nvoid f(std::string) {}";
const OLD_STRING: &str = "#define _GLIBCXX_USE_CXX11_ABI 0\n#include <string>\nvoid f(std::string) {}";

#[test]
fn facts_come_from_files_and_the_abi_digest_follows_what_a_build_can_see() {
    let temp = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(temp.path()).unwrap().join("ein Baum");
    stand_in(&root, NEW_STRING);
    let facts = inspect(&root, None).unwrap();
    assert_eq!(facts.version, "2.9.0+cpu");
    assert_eq!(facts.public_version(), "2.9.0");
    assert_eq!(facts.accelerator, Accelerator::Cpu);
    assert_eq!(facts.cpu_arch, std::env::consts::ARCH);
    assert!(facts.is_cxx11_abi);
    assert_eq!(facts.libraries, ["libc10.so", "libtorch.so", "libtorch_cpu.so"]);

    compile(&root, "libtorch_cpu.so", "int a = 5; static int hidden = 7;");
    assert_eq!(inspect(&root, None).unwrap().abi_digest, facts.abi_digest, "the same exports are the same ABI");
    compile(&root, "libtorch_cpu.so", "int a; int b;");
    let exports = inspect(&root, None).unwrap();
    assert_ne!(exports.abi_digest, facts.abi_digest, "a new export is another ABI");
    fs_err::write(root.join("include/torch/torch.h"), "// other").unwrap();
    assert_ne!(inspect(&root, None).unwrap().abi_digest, exports.abi_digest, "a header is part of the ABI");
    compile(&root, "libc10.so", OLD_STRING);
    assert!(!inspect(&root, None).unwrap().is_cxx11_abi);
}

#[test]
fn cached_facts_hold_until_a_file_is_touched() {
    let temp = tempfile::tempdir().unwrap();
    let base = Utf8Path::from_path(temp.path()).unwrap();
    let (root, cache) = (base.join("tree"), base.join("cache/facts"));
    stand_in(&root, NEW_STRING);
    let first = inspect(&root, Some(&cache)).unwrap();
    let entry = cache.read_dir_utf8().unwrap().next().unwrap().unwrap().into_path();
    // What the entry says is what is given as long as nothing was touched, which shows that it was used.
    let text = fs_err::read_to_string(&entry).unwrap().replace("2.9.0+cpu", "9.9.9");
    fs_err::write(&entry, &text).unwrap();
    assert_eq!(inspect(&root, Some(&cache)).unwrap().version, "9.9.9");
    fs_err::write(root.join("include/torch/torch.h"), "// TORCH").unwrap();
    let touched = inspect(&root, Some(&cache)).unwrap();
    assert_eq!(touched.version, "2.9.0+cpu", "the same size and a new content");
    assert_ne!(touched.abi_digest, first.abi_digest);
    fs_err::write(&entry, "{ not json").unwrap();
    assert_eq!(inspect(&root, Some(&cache)).unwrap(), touched, "a damaged cache is no error");
}

#[test]
fn a_truncated_library_is_an_error_that_names_it() {
    let temp = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(temp.path()).unwrap().join("tree");
    stand_in(&root, NEW_STRING);
    let file = root.join("lib/libc10.so");
    let bytes = fs_err::read(&file).unwrap();
    fs_err::write(&file, &bytes[..bytes.len() / 3]).unwrap();
    let error = inspect(&root, None).unwrap_err();
    assert!(matches!(&error, InspectError::Library { file, .. } if file.ends_with("libc10.so")), "{error}");
}

#[test]
fn a_version_is_read_from_the_wheels_python_or_the_headers_where_no_build_version_is() {
    let temp = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(temp.path()).unwrap();
    let header = root.join("include/torch/csrc/api/include/torch/version.h");
    fs_err::create_dir_all(header.parent().unwrap()).unwrap();
    let numbers = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n";
    fs_err::write(header, numbers).unwrap();
    assert_eq!(version(root).as_deref(), Some("2.9.1"));
    fs_err::write(root.join("version.py"), "x = 1\n__version__ = '2.9.0+cu128'\n").unwrap();
    assert_eq!(version(root).as_deref(), Some("2.9.0+cu128"));
    fs_err::write(root.join("build-version"), " \n").unwrap();
    assert_eq!(version(root).as_deref(), Some("2.9.0+cu128"), "an empty file says nothing");
}
