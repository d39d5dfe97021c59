//! What is right with this machine and this cluster, what is not, and how to mend it.
//!
//! Every module looks at one part and gives a [`Section`]; the rules themselves are those of the rooms that build and launch.
//! Nothing is changed but what may be deleted at any time (remembered facts and digests), nothing needs a network, and no
//! question ends another: what gives no answer is a line that says so. Must not print.

mod build;
mod check;
mod cluster;
mod compiler;
mod environment;
mod leftover;
mod machine;
mod project;
mod rank;
mod store;
mod tool;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::clock::Clock;

pub use check::{Check, Counts, Examination, SECTIONS, Section, SectionId, State};

use crate::commands::Context;
use crate::facts::Choice;
use crate::libtorch::{Places, PlacesError};
use crate::toolchain::{self, Env};

/// How long the sections may take beyond the tools that they ask: NVIDIA's driver has a patience of its own, a minute in all.
const BEYOND_TOOLS: Duration = Duration::from_secs(75);
/// Tools that one section asks one after the other, at most.
const MOST_IN_A_ROW: u32 = 4;

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Question {
    /// What the command line chooses.
    pub choice: Choice,
    /// The process.
    pub context: Context,
    /// How long one tool may take.
    pub patience: Duration,
}

/// What every section gets.
#[derive(Debug)]
struct Scene {
    choice: Choice,
    context: Context,
    patience: Duration,
    /// Without what the outer cargo put there, and offline.
    env: Env,
    cargo: OsString,
    places: Result<Places, PlacesError>,
    /// The folder of the project as far as it can be told without cargo.
    folder: Utf8PathBuf,
}

impl Scene {
    fn new(question: Question) -> Self {
        let Question { mut choice, context, patience } = question;
        // Cargo is told so; the plan's own arguments are not looked at.
        choice.offline = true;
        let mut env = toolchain::inherited(&context);
        env.insert("CARGO_NET_OFFLINE".into(), "true".into());
        let cargo = toolchain::cargo_program(&context);
        let places = Places::from_env(&env);
        let folder = folder(&choice, &context);
        Self { choice, context, patience, env, cargo, places, folder }
    }

    /// A command of the tool, for a remedy: `cargo xtask libtorch fetch`.
    fn typed(&self, words: &str) -> String {
        format!("`{} {words}`", self.context.invocation)
    }
}

/// The folder of the cluster file or the manifest that is given, else the nearest that has either, else the working
/// directory.
fn folder(choice: &Choice, context: &Context) -> Utf8PathBuf {
    let given = choice.manifest_path.as_deref().or(choice.cluster.as_deref());
    let given = given.and_then(|file| context.cwd.join(file).parent().map(Utf8Path::to_owned));
    let has =
        |folder: &&Utf8Path| [crate::cluster::FILE_NAME, "Cargo.lock"].iter().any(|name| folder.join(name).is_file());
    given.or_else(|| context.cwd.ancestors().find(has).map(Utf8Path::to_owned)).unwrap_or_else(|| context.cwd.clone())
}

/// Looks at everything, side by side.
pub fn examine(question: Question) -> Examination {
    let scene = Arc::new(Scene::new(question));
    let (sender, receiver) = mpsc::channel();
    for look in [machine::look, tool::look, environment::look, leftover::look] {
        let (scene, sender) = (Arc::clone(&scene), sender.clone());
        thread::spawn(move || send(&sender, look(&scene)));
    }
    {
        let scene = Arc::clone(&scene);
        // The rest follows from the project, one from the other.
        thread::spawn(move || project::look(&scene, &sender));
    }
    let clock = Clock::start();
    let deadline = clock.now().plus(scene.patience * MOST_IN_A_ROW + BEYOND_TOOLS);
    let mut sections: Vec<Section> = Vec::new();
    while sections.len() < SECTIONS.len() {
        // The channel closes when every thread has ended; one that panicked has sent nothing.
        match receiver.recv_timeout(deadline.since(clock.now())) {
            Ok(section) => sections.push(section),
            Err(_) => break,
        }
    }
    let unanswered = SECTIONS.iter().filter(|id| sections.iter().all(|section| section.id != **id));
    let unanswered: Vec<Section> = unanswered.map(|id| silent(*id, &scene)).collect();
    sections.extend(unanswered);
    sections.sort_by_key(|section| section.id);
    Examination::new(sections)
}

/// The receiver goes away only when it does not wait any more.
fn send(sender: &Sender<Section>, section: Section) {
    let _ = sender.send(section);
}

/// A section of which nothing was heard.
fn silent(id: SectionId, scene: &Scene) -> Section {
    let mut section = Section::new(id);
    section.push(Check::unchecked(
        "no-answer",
        "looking at this did not end in time: a file system or a tool hangs",
        format!("see that {}, and its libtorch stores, can be listed", quoted(&scene.folder)),
    ));
    section
}

/// A path in backticks.
fn quoted(path: impl std::fmt::Display) -> String {
    format!("`{path}`")
}

/// `1 host`, `2 hosts`.
fn counted(count: usize, what: &str) -> String {
    crate::report::progress::counted(count, what)
}
