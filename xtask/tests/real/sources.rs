//! Where the demo's libtorch comes from: each place where a person may have one, through the built binary.
//!
//! All places hold the same real libtorch, by links to it, so that one build serves them all.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests that show what was printed")]

use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err::os::unix::fs::symlink;
use torchlift_schema::read;

fn project() -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fixtures/projects/tch-train")
}

/// A folder with the parts of a libtorch, all of them links to the real one, and another version on its label.
fn libtorch(root: &Utf8Path, real: &Utf8Path, version: &str) {
    fs_err::create_dir_all(root).unwrap();
    for part in ["lib", "include"] {
        symlink(real.join(part), root.join(part)).unwrap();
    }
    fs_err::write(root.join("build-version"), format!("{version}\n")).unwrap();
}

/// A virtual environment whose `site-packages` are as `pip install torch` leaves them.
fn environment_with_torch(folder: &Utf8Path, real: &Utf8Path, version: &str) {
    duct::cmd!("python3", "-m", "venv", "--without-pip", folder.as_std_path()).run().unwrap();
    let where_to = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = duct::cmd!(folder.join("bin/python").as_std_path(), "-c", where_to).read().unwrap();
    let packages = Utf8Path::new(&packages);
    let torch = packages.join("torch");
    fs_err::create_dir_all(&torch).unwrap();
    for part in ["lib", "include"] {
        symlink(real.join(part), torch.join(part)).unwrap();
    }
    fs_err::write(torch.join("__init__.py"), "raise ImportError('nobody may import it')\n").unwrap();
    fs_err::write(torch.join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
    let info = packages.join(format!("torch-{version}.dist-info"));
    fs_err::create_dir(&info).unwrap();
    let metadata = format!("Metadata-Version: 2.4\nName: torch\nVersion: {version}\n");
    fs_err::write(info.join("METADATA"), metadata).unwrap();
}

/// The tool in the demo's project, as a shell without anything about libtorch would start it.
fn xtask(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).current_dir(project()).stdin(Stdio::null()).env_remove("LIBTORCH").env_remove("VIRTUAL_ENV");
    command
}

/// Runs the demo to its end; gives what it said of its libtorch, and the folder that its first envelope names.
fn demo(more: &[&str], env: &[(&str, &Utf8Path)]) -> (Vec<String>, Utf8PathBuf) {
    let args = [&["demo"], more, &["--", "--epochs", "1"]].concat();
    let output = xtask(&args).envs(env.iter().map(|(name, value)| (name, value.as_str()))).output().unwrap();
    let (stdout, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{stdout}");
    eprint!("{told}");
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(stdout.matches(": weights sha256 ").count(), 4, "all ranks trained");
    assert!(!told.contains("Compiling"), "one build serves all places");
    let (first, _) = told.split_once("\n2/3 ").unwrap();
    let about = first.lines().filter(|line| line.starts_with("libtorch ") || line.starts_with("skipped "));
    let envelope = fs_err::read(project().join("target/cluster/node-a/envelope.json")).unwrap();
    let path = read::envelope(&envelope).unwrap().ld_library_path;
    let lib = Utf8Path::new(path.split(':').next().unwrap());
    (about.map(str::to_owned).collect(), lib.parent().unwrap().to_owned())
}

#[test]
fn the_demo_says_which_libtorch_it_took_and_which_it_skipped() {
    // The first of all tests to need it may have to build it.
    let built = xtask(&["demo", "--", "--epochs", "1"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let envelope = fs_err::read(project().join("target/cluster/node-a/envelope.json")).unwrap();
    let envelope = read::envelope(&envelope).unwrap();
    let real = Utf8Path::new(envelope.ld_library_path.split(':').next().unwrap()).parent().unwrap().to_owned();
    let version = envelope.libtorch.unwrap().version;
    let public = version.split('+').next().unwrap();

    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = Utf8Path::from_path(temp.path()).unwrap().canonicalize_utf8().unwrap().join("mein Rechner ü");
    let (old, home, old_home) = (base.join("old"), base.join("home"), base.join("old home"));
    libtorch(&old, &real, "2.8.0+cpu");
    let stored = home.join("libtorch/real/here");
    libtorch(&stored, &real, &version);
    let other_stored = old_home.join("libtorch/precompiled/cpu-2.8.0");
    libtorch(&other_stored, &real, "2.8.0+cpu");
    let python = base.join("venv");
    environment_with_torch(&python, &real, &version);
    let is_other =
        |of: &str, root: &Utf8Path| format!("skipped {of} (`{root}`): it is torch 2.8.0+cpu, and {public} is needed");

    // What was named is taken, and nothing else is looked at.
    let (told, root) = demo(&["--libtorch", stored.as_str()], &[("LIBTORCH", &old), ("TORCHLIFT_HOME", &old_home)]);
    assert_eq!(told, [format!("libtorch {version} from `--libtorch`: `{stored}`")]);
    assert_eq!(root, stored);

    let (told, root) = demo(&[], &[("LIBTORCH", &real), ("TORCHLIFT_HOME", &old_home)]);
    assert_eq!(told, [format!("libtorch {version} from `LIBTORCH`: `{real}`")]);
    assert_eq!(root, real);

    let (told, root) = demo(&[], &[("LIBTORCH", &old), ("TORCHLIFT_HOME", &home)]);
    assert_eq!(
        told,
        [is_other("`LIBTORCH`", &old), format!("libtorch {version} from the store's `real/here`: `{stored}`")]
    );
    assert_eq!(root, stored);

    let (told, root) = demo(&[], &[("TORCHLIFT_HOME", &old_home), ("VIRTUAL_ENV", &python)]);
    assert_eq!(told[0], is_other("the store's `precompiled/cpu-2.8.0`", &other_stored));
    let of_python = format!("libtorch {version} from the torch of `{python}/bin/python`: `{python}/lib/");
    assert!(told.len() == 2 && told[1].starts_with(&of_python), "{told:?}");
    assert!(root.starts_with(&python) && root.ends_with("site-packages/torch"), "{root}");
}
