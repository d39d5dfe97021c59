//! What a tree is, is read from its files: stated versions are compared, libraries that are loaded by name are looked for.

use super::*;

fn stated(file: &str, version: &str) -> StatedVersion {
    StatedVersion { file: file.into(), version: version.to_owned(), cuda: None, hip: None }
}

fn differ(versions: &[StatedVersion]) -> bool {
    let mut findings = Vec::new();
    check_versions(versions, &mut findings);
    !findings.is_empty()
}

#[test]
fn a_header_without_a_local_part_agrees_and_another_number_does_not() {
    let build = stated("build-version", "2.9.0+cu128");
    assert!(!differ(&[build.clone(), stated("version.h", "2.9.0"), stated("version.py", "2.9.0+cu128")]));
    assert!(differ(&[build.clone(), stated("version.h", "2.9.1")]));
    assert!(differ(&[build.clone(), stated("version.py", "2.9.0+cu126")]));
    assert!(!differ(&[build]) && !differ(&[]));
}

#[test]
fn every_place_that_states_a_version_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let root = Utf8Path::from_path(temp.path()).unwrap().join("site-packages/torch");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    };
    write("build-version", "2.9.0+cu128\n");
    write("version.py", "__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n");
    write("../torch-2.9.0.dist-info/METADATA", "Metadata-Version: 2.4\nName: torch\nVersion: 2.9.0\n\nVersion: 9\n");
    let numbers = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 0\n";
    write("include/torch/headeronly/version.h", numbers);
    let versions = stated_versions(&root);
    let told: Vec<_> = versions.iter().map(|stated| (stated.file.as_str(), stated.version.as_str())).collect();
    let expected = [
        ("build-version", "2.9.0+cu128"),
        ("version.py", "2.9.0+cu128"),
        ("../torch-2.9.0.dist-info/METADATA", "2.9.0"),
        ("include/torch/headeronly/version.h", "2.9.0"),
    ];
    assert_eq!(told, expected);
    assert_eq!((versions[1].cuda.as_deref(), versions[1].hip.as_deref()), (Some("12.8"), None));
    assert!(!differ(&versions));
}

#[test]
fn a_toolkit_is_read_from_what_states_it() {
    let cuda = |version: &str| stated("build-version", version).cuda();
    assert_eq!(cuda("2.9.0+cu128").as_deref(), Some("12.8"));
    assert_eq!(cuda("2.0.1+cu118").as_deref(), Some("11.8"));
    assert_eq!(cuda("2.9.0+cu130.with.pypi.cudnn").as_deref(), Some("13.0"));
    for none in ["2.9.0", "2.9.0+cpu", "2.9.0+cu", "2.9.0+cu1", "2.9.0+custom", "2.9.0+cué"] {
        assert_eq!(cuda(none), None, "{none}");
    }
    let stated = StatedVersion { hip: Some("6.3.42131-fa1d09cbd".to_owned()), ..stated("version.py", "2.9.0") };
    assert_eq!(stated.rocm().as_deref(), Some("6.3"));
}

fn loads(version: &str, files: &[&str]) -> Vec<(String, Option<String>)> {
    loaded_by_name(version, &files.iter().copied().collect())
        .into_iter()
        .map(|loaded| (loaded.loads, loaded.found))
        .collect()
}

#[test]
fn what_is_loaded_by_name_depends_on_the_version_and_on_who_is_there() {
    let some = |name: &str| Some(name.to_owned());
    assert!(loads("2.9.0", &["libtorch_cpu.so"]).is_empty());
    let compilers = || [("libnvrtc.so.".to_owned(), None), ("libcaffe2_nvrtc.so".to_owned(), None)];
    assert_eq!(loads("1.12.1", &["libtorch_cuda.so"]), compilers());
    let new = loads("2.9.0", &["libtorch_cuda.so", "libtorch_cuda_linalg.so"]);
    let linalg = ("libtorch_cuda_linalg.so".to_owned(), some("libtorch_cuda_linalg.so"));
    assert_eq!(new, [&[linalg][..], &compilers()].concat());
    let builtins = loads("2.9.0", &["libnvrtc.so.12", "libnvrtc-builtins.so.12.8"]);
    assert_eq!(builtins, [("libnvrtc-builtins.so.12.".to_owned(), some("libnvrtc-builtins.so.12.8"))]);
    assert_eq!(loads("a new one", &["libtorch_cuda.so"]).len(), 3, "an unknown version is taken for a new one");
}

#[test]
fn what_is_loaded_by_name_loads_more_by_name() {
    let files = [
        "libcudnn.so.9",
        "libcudnn_engines_precompiled.so.9",
        "libcudnn_graph.so.9",
        "libnvrtc-builtins.so.12.8",
        "libnvrtc.so.12",
        "libtorch_cpu.so",
    ];
    let after = |loaded: &[&str]| {
        let followers = followers("2.9.0", &files.into(), &loaded.iter().copied().collect());
        followers.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(after(&["libcudnn.so.9"]), ["libcudnn_engines_precompiled.so.9", "libcudnn_graph.so.9"]);
    assert!(after(&["libtorch_cpu.so"]).is_empty());
}
