//! What cargo says on its standard output, line by line.
//!
//! Only lines that are cargo's own JSON count. A build script's wrapper or a tool around rustc may print there too:
//! such lines are passed on as text, even when they look like JSON.

use camino::Utf8PathBuf;
use cargo_metadata::{Message, TargetKind};

use crate::workspace::{ArtifactKind, Program};

/// What happens while cargo runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CargoEvent<'a> {
    /// A crate is there, compiled or still good from an earlier run.
    Crate {
        /// Its name.
        name: &'a str,
        /// How many different packages have been seen, with this one.
        count: usize,
        /// Whether nothing had to be done for it.
        is_fresh: bool,
    },
    /// Bytes for people: cargo's stderr and whatever was no message on stdout, whole lines where they end in one.
    Text(&'a [u8]),
    /// Cargo has been waiting for a file that another process has locked.
    Waiting {
        /// The file, where it can be told.
        file: Option<&'a str>,
        /// The process that holds it, with its command.
        holder: &'a str,
    },
}

/// Whoever wants to know.
pub trait Watcher {
    /// Something happened.
    fn watch(&mut self, event: &CargoEvent<'_>);
    /// Called ten times a second while cargo runs.
    fn tick(&mut self) {}
}

/// A crate that was compiled.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CrateTime {
    /// Its name, with `(build script)` behind that of a build script.
    pub name: String,
    /// Milliseconds from the start of its cargo until it was there. Cargo compiles several at once, and does not say when it began.
    pub ready_ms: u64,
}

/// What the messages of one run add up to.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The program's file.
    pub(super) executable: Option<Utf8PathBuf>,
    /// Other programs that cargo told of.
    pub(super) other_executables: Vec<String>,
    /// Packages seen, in order.
    packages: Vec<String>,
    /// Crates that were compiled, in the order in which they were there.
    pub(super) compiled: Vec<CrateTime>,
    /// Milliseconds since cargo was started, as of the bytes that are taken.
    pub(super) now_ms: u64,
    /// Number of crates that were still good.
    pub(super) fresh: usize,
    /// What `build-finished` said.
    pub(super) is_success: Option<bool>,
    /// The start of a line whose end has not come yet.
    rest: Vec<u8>,
}

impl Messages {
    /// Takes bytes as they were read, cut anywhere.
    pub(super) fn take(&mut self, bytes: &[u8], program: &Program, watcher: &mut dyn Watcher) {
        self.rest.extend_from_slice(bytes);
        let buffer = std::mem::take(&mut self.rest);
        let mut lines = buffer.split_inclusive(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() && !line.ends_with(b"\n") {
                self.rest = line.to_owned();
            } else {
                self.line(line, program, watcher);
            }
        }
    }

    /// The stream is over: what is left is a line too.
    pub(super) fn end(&mut self, program: &Program, watcher: &mut dyn Watcher) {
        let line = std::mem::take(&mut self.rest);
        if !line.is_empty() {
            self.line(&line, program, watcher);
        }
    }

    fn line(&mut self, line: &[u8], program: &Program, watcher: &mut dyn Watcher) {
        let message = if line.starts_with(b"{") { serde_json::from_slice::<Message>(line).ok() } else { None };
        match message {
            Some(Message::CompilerArtifact(artifact)) => self.artifact(artifact, program, watcher),
            Some(Message::BuildFinished(finished)) => self.is_success = Some(finished.success),
            // Rendered diagnostics are on stderr already; what build scripts print is cargo's business.
            Some(_) => {}
            None => watcher.watch(&CargoEvent::Text(line)),
        }
    }

    fn artifact(&mut self, artifact: cargo_metadata::Artifact, program: &Program, watcher: &mut dyn Watcher) {
        let package = artifact.package_id.repr;
        if !self.packages.contains(&package) {
            self.packages.push(package.clone());
        }
        // Every build script has the same target name, which tells a person nothing.
        let script = artifact.target.is_kind(TargetKind::CustomBuild).then(|| package_name(&package));
        let script = script.flatten().map(|package| format!("{package} (build script)"));
        let name = script.as_deref().unwrap_or(&artifact.target.name);
        if artifact.fresh {
            self.fresh += 1;
        } else {
            self.compiled.push(CrateTime { name: name.to_owned(), ready_ms: self.now_ms });
        }
        watcher.watch(&CargoEvent::Crate { name, count: self.packages.len(), is_fresh: artifact.fresh });
        let Some(executable) = artifact.executable else { return };
        let kind = match program.kind {
            ArtifactKind::Bin => TargetKind::Bin,
            ArtifactKind::Example => TargetKind::Example,
        };
        if artifact.target.name == program.name && artifact.target.is_kind(kind) {
            self.executable = Some(executable);
        } else {
            self.other_executables.push(artifact.target.name);
        }
    }
}

/// The name in a package id such as `registry+https://host/index#dep@1.0.0` or `path+file:///w/dep#1.0.0`.
fn package_name(id: &str) -> Option<&str> {
    let (url, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => url.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<String>);

    impl Watcher for Seen {
        fn watch(&mut self, event: &CargoEvent<'_>) {
            self.0.push(match event {
                CargoEvent::Crate { name, count, is_fresh } => format!("{count} {name} {is_fresh}"),
                CargoEvent::Text(text) => format!("text {}", String::from_utf8_lossy(text).trim_end()),
                CargoEvent::Waiting { .. } => "waiting".to_owned(),
            });
        }
    }

    fn artifact(package: &str, target: &str, kind: &str, executable: Option<&str>, is_fresh: bool) -> String {
        let executable = executable.map_or("null".to_owned(), |path| format!("\"{path}\""));
        format!(
            "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{package}\",\"manifest_path\":\"/w/Cargo.toml\",\
             \"target\":{{\"kind\":[\"{kind}\"],\"crate_types\":[\"bin\"],\"name\":\"{target}\",\"src_path\":\"/w/m.rs\",\
             \"edition\":\"2024\",\"doc\":true,\"doctest\":false,\"test\":true}},\"profile\":{{\"opt_level\":\"0\",\
             \"debuginfo\":0,\"debug_assertions\":true,\"overflow_checks\":true,\"test\":false}},\"features\":[],\
             \"filenames\":[],\"executable\":{executable},\"fresh\":{is_fresh}}}\n"
        )
    }

    fn stream() -> String {
        [
            "plain text\n".to_owned(),
            artifact("path+file:///w#dep@1.0.0", "build-script-build", "custom-build", None, true),
            artifact("path+file:///w#dep@1.0.0", "dep", "lib", None, true),
            "{\"reason\":\"looks-like-it\"}\n".to_owned(),
            "{ not json\n".to_owned(),
            artifact("path+file:///w#p@1.0.0", "train", "example", Some("/t/examples/train"), false),
            artifact("path+file:///w#p@1.0.0", "train", "bin", Some("/t/train"), false),
            "{\"reason\":\"build-finished\",\"success\":true}\n".to_owned(),
            "no newline".to_owned(),
        ]
        .concat()
    }

    fn program() -> Program {
        Program { package: "p".to_owned(), kind: ArtifactKind::Bin, name: "train".to_owned() }
    }

    #[test]
    fn a_package_id_has_the_name_before_its_version_or_at_the_end_of_its_address() {
        assert_eq!(package_name("registry+https://host/index#dep@1.0.0"), Some("dep"));
        assert_eq!(package_name("path+file:///w/my%20dep#1.0.0"), Some("my%20dep"));
        assert_eq!(package_name("dep 1.0.0"), None);
    }

    #[test]
    fn messages_count_and_everything_else_is_text_however_the_bytes_are_cut() {
        for size in [1, 7, 4096] {
            let (mut messages, mut seen) = (Messages::default(), Seen::default());
            for chunk in stream().as_bytes().chunks(size) {
                messages.take(chunk, &program(), &mut seen);
            }
            messages.end(&program(), &mut seen);
            assert_eq!(
                seen.0,
                [
                    "text plain text",
                    "1 dep (build script) true",
                    "1 dep true",
                    "text {\"reason\":\"looks-like-it\"}",
                    "text { not json",
                    "2 train false",
                    "2 train false",
                    "text no newline"
                ]
            );
            assert_eq!(messages.executable.as_deref(), Some("/t/train".into()));
            assert_eq!(messages.other_executables, ["train"]);
            assert_eq!((messages.fresh, messages.compiled.len(), messages.is_success), (2, 2, Some(true)));
        }
    }
}
