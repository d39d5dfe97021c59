//! A build's file for programs: `target/cluster/events.ndjson`, written while it goes on; the next build begins it anew.
//!
//! It has one object a line, each with `version`, `t` (seconds since the build began, monotonic) and `event`, as a run's own
//! `events.ndjson` has:
//!
//! | event | further keys |
//! | --- | --- |
//! | `build` | `job`, `started_at` (wall clock in UTC at `t` = 0), `builds`: `[{key, kinds, hosts}]` |
//! | `cargo-started` | `build` (its key) |
//! | `crate` | `build`, `name`, `is_fresh`: a crate is there, compiled now or still good from before |
//! | `waiting` | `build`, `file` (where it is known), `holder`: cargo waits for a lock |
//! | `cargo-ended` | `build`, `compiled`, `fresh`, `elapsed_ms` |
//! | `cargo-failed` | `build`, `reason` |
//! | `verified` | `host`, `not_checked` |
//! | `published` | `host`, `bin`, `sha256`, `is_new` |
//! | `finished` | `exit_code` |
//!
//! A reader passes over events and keys that it does not know. No variable's value and no text of cargo's is in it.

use std::io;
use std::sync::{Mutex, PoisonError};

use camino::{Utf8Path, Utf8PathBuf};
use fs_err::{File, OpenOptions};
use serde_json::{Value, json};
use torchlift::clock::{self, Clock};
use torchlift::plan::stamp;
use torchlift::report::stream::EventStream;

use super::build::HostResult;
use super::progress::Console;
use crate::cargo::{CargoError, CargoEvent, CargoRun, Watcher};
use crate::error::CommandError;
use crate::plan::{Build, BuildPlan, PUBLISHED};

/// Name of the stream in the folder of what is published.
const EVENTS: &str = "events.ndjson";
/// Version of each line: grows when a key changes its meaning or goes away.
const VERSION: u32 = 1;

/// Writes the stream; builds side by side share it.
#[derive(Debug)]
pub struct BuildEvents {
    clock: Clock,
    console: Console,
    /// None where the file could not be made.
    stream: Mutex<Option<EventStream>>,
}

impl BuildEvents {
    /// Begins the stream of a plan that is carried out now. A stream that cannot be written is told of, and ends no build.
    pub fn begin(plan: &BuildPlan, console: Console) -> Self {
        let clock = Clock::start();
        let path = events_file(&plan.workspace);
        let file = create(&path).map_err(|error| console.note(&format!("no events are written: {error}"))).ok();
        let stream = file.map(|file| EventStream::new(file, VERSION, clock.now()));
        let events = Self { clock, console, stream: Mutex::new(stream) };
        let builds: Vec<Value> = plan
            .builds
            .iter()
            .map(|build| json!({ "key": build.key, "kinds": build.kinds, "hosts": build.hosts }))
            .collect();
        events.line("build", json!({ "job": plan.job, "started_at": stamp(clock::wall()), "builds": builds }));
        events
    }

    /// Cargo is about to run for a build; what it tells goes to `progress` too.
    pub fn cargo<'a>(&'a self, build: &'a Build, progress: &'a mut dyn Watcher) -> CargoEvents<'a> {
        self.line("cargo-started", json!({ "build": build.key }));
        CargoEvents { events: self, build, progress }
    }

    /// Cargo ended.
    pub fn cargo_ended(&self, build: &Build, result: &Result<CargoRun, CargoError>) {
        match result {
            Ok(run) => {
                let elapsed_ms = u64::try_from(run.elapsed.as_millis()).unwrap_or(u64::MAX);
                let (compiled, fresh) = (run.compiled.len(), run.fresh);
                let keys =
                    json!({ "build": build.key, "compiled": compiled, "fresh": fresh, "elapsed_ms": elapsed_ms });
                self.line("cargo-ended", keys);
            }
            Err(error) => self.line("cargo-failed", json!({ "build": build.key, "reason": error.to_string() })),
        }
    }

    /// A host's binary holds.
    pub fn verified(&self, host: &str, not_checked: &[&str]) {
        self.line("verified", json!({ "host": host, "not_checked": not_checked }));
    }

    /// A host's binary is in its place.
    pub fn published(&self, host: &HostResult) {
        let HostResult { host, bin, sha256, is_new, .. } = host;
        self.line("published", json!({ "host": host, "bin": bin, "sha256": sha256, "is_new": is_new }));
    }

    /// All is over.
    pub fn finished<T>(&self, result: &Result<T, CommandError>) {
        self.line("finished", json!({ "exit_code": result.as_ref().err().map_or(0, CommandError::exit_code) }));
    }

    fn line(&self, name: &str, keys: Value) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stream) = stream.as_mut() else { return };
        if let Err(error) = stream.line(self.clock.now(), name, keys) {
            self.console.note(&format!("no more events are written: {error}"));
        }
    }
}

/// The stream of the workspace in `root`.
fn events_file(root: &Utf8Path) -> Utf8PathBuf {
    root.join(PUBLISHED).join(EVENTS)
}

/// Another file than before: whoever still reads that one reads it to its end. A pipe in its place would be waited for.
fn create(path: &Utf8Path) -> io::Result<File> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().create_new(true).append(true).open(path)
}

/// What cargo tells of one build.
pub struct CargoEvents<'a> {
    events: &'a BuildEvents,
    build: &'a Build,
    progress: &'a mut dyn Watcher,
}

impl Watcher for CargoEvents<'_> {
    fn watch(&mut self, event: &CargoEvent<'_>) {
        let build = &self.build.key;
        match event {
            CargoEvent::Crate { name, is_fresh, .. } => {
                self.events.line("crate", json!({ "build": build, "name": name, "is_fresh": is_fresh }));
            }
            CargoEvent::Waiting { file, holder } => {
                self.events.line("waiting", json!({ "build": build, "file": file, "holder": holder }));
            }
            CargoEvent::Text(_) => {}
        }
        self.progress.watch(event);
    }

    fn tick(&mut self) {
        self.progress.tick();
    }
}
