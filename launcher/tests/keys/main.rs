//! The built `torchlift keys`, from its command line to what openssl says of the certificates.
#![cfg(feature = "net")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod carry;
mod change;
mod judge;
mod refused;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

#[path = "../../../fixtures/support/skip.rs"]
#[expect(clippy::print_stdout, unreachable_pub, reason = "the file is shared by tests of several packages")]
mod skip;

/// A folder of keys below a temporary one, and the commands that use it.
struct Keys {
    folder: tempfile::TempDir,
}

impl Keys {
    /// Where there is nothing yet.
    fn none() -> Self {
        Self { folder: tempfile::Builder::new().prefix("ein Ordner é ").tempdir().unwrap() }
    }

    /// With an authority, host `node-a` and client `me`.
    fn issued() -> Self {
        let keys = Self::none();
        keys.ok(&["init"]);
        keys.ok(&["issue", "node-a", "--name", "10.0.0.5", "--name", "a.example.org"]);
        keys.ok(&["issue", "--client", "me"]);
        keys
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("Schlüssel/keys")
    }

    fn command(&self, args: &[&str]) -> Command {
        command(&self.path(), args)
    }

    /// Its stderr, when it succeeds.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stderr(&output)
    }

    /// Its stderr, when it fails with this code.
    #[track_caller]
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
        stderr(&output)
    }

    /// What `show --format json` prints.
    fn shown(&self) -> Value {
        shown(&self.path())
    }

    /// State by name.
    fn states(&self) -> Vec<(String, String)> {
        let shown = self.shown();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        shown["issued"].as_array().unwrap().iter().map(|entry| (text(&entry["name"]), text(&entry["state"]))).collect()
    }

    fn index(&self) -> String {
        fs_err::read_to_string(self.path().join("keys.json")).unwrap()
    }
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlift"));
    command.arg("keys").args(args).arg("--keys").arg(folder);
    command
}

fn shown(folder: &Path) -> Value {
    let output = command(folder, &["show", "--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
