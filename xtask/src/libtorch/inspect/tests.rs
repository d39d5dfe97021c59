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
