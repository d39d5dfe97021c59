//! A machine of its own for one test: a home, a `PATH` with nothing but fakes, and an index that is a folder.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use assert_cmd::Command;
use camino::{Utf8Path, Utf8PathBuf};

/// pip as far as a fetch uses it. It writes each call to `calls`, and takes wheels from `index`.
///
/// `hold` in the index makes it stop in the middle of a download: it says so through one pipe and waits at another, and
/// then fails. `pause` is the same half-way through the bytes that it announced, and then it goes on.
const PIP: &str = r#"#!/bin/sh
here=$(dirname "$0")
index="$here/../index"
case "$*" in
*"-m pip --version"*) echo "pip 99 (fake)"; exit 0 ;;
*"-m pip download"*) ;;
*) exit 0 ;;
esac
echo "$*" >> "$here/../calls"
dest=
wanted=
rest=
for arg in "$@"; do
    case "$arg" in
    --dest=*) dest=${arg#--dest=} ;;
    --) rest=yes ;;
    *) [ -n "$rest" ] && wanted="$wanted $arg" ;;
    esac
done
if [ -e "$index/unreachable" ]; then
    echo "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError: no route'" >&2
    echo "ERROR: No matching distribution found for$wanted" >&2
    exit 1
fi
[ -e "$index/announce" ] && cat "$index/announce"
for one in $wanted; do
    name=$(echo "${one%%==*}" | tr - _)
    found=$(ls "$index" | grep "^$name-${one##*==}-.*whl\$" | head -n 1)
    if [ -z "$found" ]; then
        echo "ERROR: No matching distribution found for $one" >&2
        exit 1
    fi
    echo "Collecting $one"
    echo "  Downloading $found (1.2 MB)"
    if [ -e "$index/hold" ]; then
        head -c 1000 "$index/$found" > "$TMPDIR/$found"
        echo ready > "$index/hold"
        cat "$index/release"
        exit 1
    fi
    if [ -e "$index/pause" ]; then
        head -c 600000 /dev/zero > "$TMPDIR/$found"
        echo ready > "$index/pause"
        cat "$index/release" > /dev/null
        : > "$TMPDIR/$found"
    fi
    cp "$index/$found" "$dest/$found"
    echo "Saved $dest/$found"
done
"#;

pub(crate) struct World {
    _temp: tempfile::TempDir,
    pub(crate) base: Utf8PathBuf,
}

impl World {
    /// With the fake pip and an empty index.
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap().join("Rechner über alles");
        for folder in ["bin", "index", "project"] {
            fs_err::create_dir_all(base.join(folder)).unwrap();
        }
        let world = Self { _temp: temp, base };
        // What the scripts call; nothing else of the machine is on the path, no curl and no other Python.
        for tool in ["sh", "cat", "cp", "dirname", "grep", "head", "ls", "tail", "tr", "wc"] {
            let real = ["/usr/bin", "/bin"].iter().map(|folder| Utf8Path::new(folder).join(tool));
            let real = real.into_iter().find(|path| path.exists()).unwrap();
            fs_err::os::unix::fs::symlink(real, world.base.join("bin").join(tool)).unwrap();
        }
        world.program("python3", PIP);
        world
    }

    /// With an index that has torch for CUDA and what it needs.
    pub(crate) fn with_torch() -> Self {
        let world = Self::new();
        let index = world.index();
        super::wheel::write(&index, super::wheel::TORCH, &super::wheel::REQUIRES, super::wheel::torch_members(&index));
        super::wheel::nvidia(&index);
        world
    }

    pub(crate) fn index(&self) -> Utf8PathBuf {
        self.base.join("index")
    }

    pub(crate) fn store(&self) -> Utf8PathBuf {
        self.base.join("home/libtorch")
    }

    pub(crate) fn downloads(&self) -> Utf8PathBuf {
        self.base.join("cache/downloads")
    }

    pub(crate) fn variant(&self) -> Utf8PathBuf {
        self.store().join("precompiled/cpu-2.9.0")
    }

    /// Puts a script on the path.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.base.join("bin").join(name);
        fs_err::write(&path, script).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// How often pip was asked for a package.
    pub(crate) fn calls(&self, requirement: &str) -> usize {
        let calls = fs_err::read_to_string(self.base.join("calls")).unwrap_or_default();
        calls.lines().filter(|line| line.contains(requirement)).count()
    }

    /// `libtorch …` with this world's environment and no other.
    pub(crate) fn command(&self, args: &[&str]) -> std::process::Command {
        self.tool(&[&["libtorch"], args].concat())
    }

    /// The tool with this world's environment and no other.
    pub(crate) fn tool(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(args)
            .current_dir(self.base.join("project"))
            .env_clear()
            .env("PATH", self.base.join("bin"))
            .env("TORCHLIFT_HOME", self.base.join("home"))
            .env("TORCHLIFT_CACHE", self.base.join("cache"));
        command
    }

    /// Fetches torch 2.9.0 for an x86_64 CPU.
    pub(crate) fn fetch(&self) -> Output {
        self.run(&FETCH)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::from_std(self.command(args)).output().unwrap()
    }

    /// Names of everything in the store and of all that is not a whole download: what a failure must not leave.
    pub(crate) fn remains(&self) -> Vec<String> {
        let names = |folder: &Utf8Path| -> Vec<String> {
            let Ok(entries) = folder.read_dir_utf8() else { return Vec::new() };
            entries.map(|entry| entry.unwrap().file_name().to_owned()).filter(|name| name != ".lock").collect()
        };
        let mut remains: Vec<String> =
            names(&self.downloads()).into_iter().filter(|name| name.starts_with(".partial")).collect();
        remains.extend(names(&self.store()).into_iter().filter(|name| name != "precompiled"));
        remains.extend(names(&self.store().join("precompiled")));
        remains
    }
}

/// The arguments of [`World::fetch`].
pub(crate) const FETCH: [&str; 6] = ["fetch", "--cpu", "--arch", "x86_64", "--torch", "2.9.0"];

/// What a command said on stderr.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
