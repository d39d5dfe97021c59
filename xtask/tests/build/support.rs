//! A project in a temporary folder, a stand-in libtorch, and the built tool to run on them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use torchlift_schema::{Envelope, read};

use crate::stand_in;

/// Spaces and letters outside of ASCII, as real home folders have them.
const FOLDER: &str = "mein Projekt – ü";

pub(crate) struct Project {
    temp: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

/// What a run of the tool gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: u8) -> Self {
        assert_eq!(self.code, i32::from(code), "{}\n{}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "no {text:?} in:\n{}", self.stderr);
        self
    }
}

impl Project {
    /// A copy of the fixture `linked`, with two hosts of one kind and a stand-in libtorch for CPUs.
    pub(crate) fn linked() -> Self {
        let project = Self::copy_of("linked");
        project.libtorch("cpu", false);
        project.cluster(
            "[job.train]\nprofile = \"quick\"\n[kind.k]\nlibtorch = \"test/cpu\"\n\
             [[host]]\nname = \"node-[1-2]\"\nkind = \"k\"\npath = \".\"\nreach = \"local\"\nslots = 1\n",
        );
        project
    }

    pub(crate) fn copy_of(fixture: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join(FOLDER).join(fixture);
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/projects").join(fixture);
        copy(&from, &root);
        Self { temp, root }
    }

    /// A stand-in libtorch `test/<name>` in the workspace's own store.
    pub(crate) fn libtorch(&self, name: &str, has_cuda: bool) -> PathBuf {
        self.libtorch_by("cc", name, has_cuda)
    }

    /// The same with this compiler, which may be one for another CPU.
    pub(crate) fn libtorch_by(&self, cc: &str, name: &str, has_cuda: bool) -> PathBuf {
        let root = self.root.join("libtorch/test").join(name);
        fs_err::create_dir_all(root.join("lib")).unwrap();
        fs_err::create_dir_all(root.join("include/torch")).unwrap();
        fs_err::write(root.join("include/torch/torch.h"), format!("// {name}\n")).unwrap();
        let version = if has_cuda { "2.9.0+cu128\n" } else { "2.9.0+cpu\n" };
        fs_err::write(root.join("build-version"), version).unwrap();
        stand_in::libtorch_by(cc, &root.join("lib"), has_cuda);
        root
    }

    pub(crate) fn cluster(&self, text: &str) {
        self.write("cluster.toml", &format!("schema = 1\n{text}"));
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let file = self.root.join(file);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    }

    /// A folder beside the project.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let folder = self.temp.path().join(name);
        fs_err::create_dir_all(&folder).unwrap();
        folder
    }

    /// An executable shell script beside the project.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let file = self.beside("bin").join(name);
        fs_err::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    /// The environment of a person's shell: nothing of the cargo that runs the tests.
    pub(crate) fn env(&self) -> BTreeMap<OsString, OsString> {
        let mut env = BTreeMap::new();
        for name in ["PATH", "HOME", "RUSTUP_HOME", "CARGO_HOME"] {
            env.extend(std::env::var_os(name).map(|value| (name.into(), value)));
        }
        env.insert("LANG".into(), "C.UTF-8".into());
        env.insert("CARGO_NET_OFFLINE".into(), "true".into());
        env.insert("TORCHLIFT_HOME".into(), self.beside("home").into());
        // Keys of whoever runs the tests are none of theirs.
        env.insert("XDG_CONFIG_HOME".into(), self.beside("config").into());
        env.insert("TORCHLIFT_CACHE".into(), self.beside("cache").into());
        // Cards that tests make up are no other test's.
        env.insert("TORCHLIFT_CLAIMS".into(), self.beside("claims").into());
        env
    }

    /// The tool, in the project's folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(args).current_dir(&self.root).env_clear().envs(self.env());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    pub(crate) fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Ran {
        Ran::of(&self.command(args).envs(env.iter().copied()).output().unwrap())
    }

    pub(crate) fn envelope_file(&self, host: &str) -> PathBuf {
        self.root.join("target/cluster").join(host).join("envelope.json")
    }

    pub(crate) fn envelope(&self, host: &str) -> Envelope {
        read::envelope(&fs_err::read(self.envelope_file(host)).unwrap()).unwrap()
    }

    /// What is in `target/cluster` but for the lock: nothing of it may stay behind.
    pub(crate) fn published(&self) -> Vec<String> {
        let base = self.root.join("target/cluster");
        let mut files: Vec<String> = walkdir::WalkDir::new(&base)
            .into_iter()
            .flatten()
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| entry.path().strip_prefix(&base).unwrap().display().to_string())
            // What goes on is no result.
            .filter(|name| ![".lock", "events.ndjson"].contains(&name.as_str()))
            .collect();
        files.sort();
        files
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from).into_iter().filter_entry(|entry| entry.file_name() != "target") {
        let entry = entry.unwrap();
        let place = to.join(entry.path().strip_prefix(from).unwrap());
        if entry.file_type().is_dir() {
            fs_err::create_dir_all(place).unwrap();
        } else {
            fs_err::copy(entry.path(), place).unwrap();
        }
    }
}
